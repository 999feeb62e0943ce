"""The pages as one site: routing, rendering and errors.

Start with `Site.respond`. The path is relative to `base`, the path that all pages are below. The
user is read from the server for every request; an action that was refused shows its page again
with the typed text.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote, urlencode

import msgspec

from orchid.features.console import text
from orchid.features.console.api import UNAUTHORIZED, Api, Json, Refused, Unreachable
from orchid.features.console.page import (
    ConsolePage,
    Download,
    Retry,
    Shown,
    Succeeded,
    Viewer,
    Visit,
)
from orchid.features.console.rendering import Renderer
from orchid.features.console.web.messages import Fields, WebRequest, WebResponse, redirect

NAVIGATION: Final = (
    ("", "Overview"),
    ("requests", "Requests"),
    ("issued", "Certificates"),
    ("revocations", "Revocations"),
    ("accounts", "Accounts"),
    ("authorities", "Authorities"),
    ("bundles", "Bundles"),
    ("policies", "Policies"),
    ("rights", "Rights"),
    ("ledger", "Ledger"),
    ("health", "Health"),
)
WARNED: Final = 300.0  # seconds before the credential expires
A_YEAR: Final = ("Cache-Control", "private, max-age=31536000, immutable")
TITLES: Final = {
    400: "Invalid request",
    401: "The server does not accept your credential",
    403: "You may not do that",
    404: "Page not found",
    409: "It changed since you looked",
    422: "The server refuses that",
    429: "The server is busy",
    502: "The server cannot be reached",
}


class Site:
    """All pages."""

    def __init__(self, renderer: Renderer, pages: Sequence[ConsolePage | Download]) -> None:
        self._renderer = renderer
        self._pages = [(each.path.strip("/").split("/"), each) for each in pages]

    def static(self, path: str) -> WebResponse:
        """A file under its name with digest, so that browsers may keep it."""
        file = self._renderer.files.get(path)
        if file is None:
            return WebResponse(404, b"not found\n", media="text/plain")
        media, data = file
        return WebResponse(200, data, (A_YEAR,), media)

    async def respond(self, request: WebRequest, base: str, viewer: Viewer) -> WebResponse:
        page, names = self._find(request.path)
        form = request.form if request.method == "POST" else {}
        visit = Visit(viewer, base, request.path, names, request.query, {}, form)
        try:
            visit = msgspec.structs.replace(visit, user=await _user(viewer.api))
            if request.path == "/live":
                return await viewer.changes.respond(viewer.api, request.query.get("of", ""))
            if page is None:
                return self._error(404, "No page has this address.", visit)
            if isinstance(page, Download):
                return await page.fetch(visit)
            if request.method == "POST":
                return await self._act(page, visit)
            return await self._show(page, visit)
        except Refused as refused:
            return self._error(refused.status, refused.message, visit)
        except Unreachable as problem:
            return self._error(502, str(problem), visit)

    def _find(self, path: str) -> tuple[ConsolePage | Download | None, Fields]:
        segments = path.strip("/").split("/")
        for pattern, page in self._pages:
            if len(pattern) != len(segments):
                continue
            names = {}
            for expected, segment in zip(pattern, segments, strict=True):
                if expected.startswith("{") and segment:
                    names[expected.strip("{}")] = unquote(segment)
                elif expected != segment:
                    break
            else:
                return page, names
        return None, {}

    async def _show(self, page: ConsolePage, visit: Visit) -> WebResponse:
        values = await page.read(visit)
        return WebResponse(200, self._render(page, visit, values))

    async def _act(self, page: ConsolePage, visit: Visit) -> WebResponse:
        if page.act is None:
            return self._error(405, "This page has no form.", visit)
        try:
            outcome = await page.act(visit)
        except Refused as refused:
            outcome = Retry(refused.message, refused.status)
        if isinstance(outcome, Succeeded):
            mark = "&" if "?" in outcome.target else "?"
            notice = f"{mark}{urlencode({'done': outcome.notice})}" if outcome.notice else ""
            return redirect(f"{outcome.target}{notice}")
        if isinstance(outcome, Shown):
            outcome = Retry("", 200, outcome.values)
        values = {**await page.read(visit), **outcome.values, "problem": outcome.problem}
        return WebResponse(outcome.status, self._render(page, visit, values))

    def _render(self, page: ConsolePage, visit: Visit, values: Any) -> bytes:
        shown = {
            "problem": "",
            "form": visit.form,
            "query": visit.query,
            "visit": visit,
            "link": visit.link,
            **_frame(visit, page.section),
            **values,
            "live": ",".join(page.live),
            "every": page.every or "",
        }
        return self._renderer.render(page.template, **shown)

    def _error(self, status: int, message: str, visit: Visit) -> WebResponse:
        shown = status if status in (400, 401, 403, 404, 405, 409, 422, 429) else 502
        title = TITLES.get(shown, "Something failed")
        values = {"title": title, "message": message, "status": shown, "problem": "", "query": {}}
        values["is_refused"] = shown == UNAUTHORIZED
        # What was typed, to be sent again: a browser does not restore it on these pages.
        again = visit.form if shown in (UNAUTHORIZED, 429, 502) else {}
        values["again"] = {"target": visit.link_again, "fields": again} if again else None
        body = self._renderer.render("error.html", **_frame(visit, "none"), **values)
        return WebResponse(shown, body)


async def _user(api: Api) -> Json:
    naming = await api.naming()
    body = {"apiVersion": f"{naming.authentication}/v1", "kind": "SelfSubjectReview"}
    target = await api.group("authentication", "v1", "selfsubjectreviews")
    user: Json = (await api.post(target, body)).get("status", {}).get("userInfo", {})
    return user


def _frame(visit: Visit, section: str) -> dict[str, Any]:
    """The values of every page."""
    end = visit.viewer.expiry()
    left = None if end is None else (end - text.now()).total_seconds()
    return {
        "base": visit.base,
        "user": visit.user,
        "section": section,
        "navigation": NAVIGATION,
        "server": visit.viewer.server,
        "is_local": visit.viewer.is_local,
        "ends": end.isoformat() if end else "",
        "ends_soon": left is not None and left < WARNED,
        "live": "",
        "every": "",
    }
