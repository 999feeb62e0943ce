"""Sign-in of `orchid console`: a link that works once, a path that cannot be guessed, a cookie.

All pages are below a random path, because a cookie of one port of this host is sent to every other
port, but only below its own path. The session ends with the program, after 12 hours, or when the
user signs out. It holds no credential: the program has the one of the kubeconfig.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import msgspec

from orchid.features.console.page import Viewer
from orchid.features.console.rendering import Renderer
from orchid.features.console.site import Site
from orchid.features.console.web import guard
from orchid.features.console.web.messages import WebRequest, WebResponse
from orchid.kernel.base.clock import Monotonic

LINK_SECONDS: Final = 60.0
SESSION_SECONDS: Final = 12 * 3600
MOST_SESSIONS: Final = 20
COOKIE: Final = "orchid"


class LinkSignIn:
    """Admits the browsers that have opened a link of this program."""

    def __init__(
        self, site: Site, renderer: Renderer, viewer: Viewer, monotonic: Monotonic
    ) -> None:
        self._site = site
        self._viewer = viewer
        self._renderer = renderer
        self._monotonic = monotonic
        self._prefix = f"/{secrets.token_urlsafe(12)}"
        self._links: dict[str, float] = {}  # token: the end of its validity
        self._sessions: dict[str, float] = {}  # id: the end of the session
        self._hosts: tuple[str, ...] = ()

    def listens_at(self, port: int) -> None:
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")

    def new_link(self) -> str:
        """A URL that opens the console once, within a minute."""
        now = self._monotonic()
        self._links = {token: end for token, end in self._links.items() if end > now}
        token = secrets.token_urlsafe(32)
        self._links[token] = now + LINK_SECONDS
        return f"http://{self._hosts[0]}/in/{token}"

    def has_session(self, request: WebRequest) -> bool:
        """Whether a browser that has signed in sent the request to this console."""
        return not guard.is_rebound(request.headers, self._hosts) and bool(self._session(request))

    async def respond(self, request: WebRequest) -> WebResponse:
        return guard.protected(await self._respond(request))

    async def _respond(self, request: WebRequest) -> WebResponse:
        if guard.is_rebound(request.headers, self._hosts):
            return WebResponse(421, b"this console has another address\n", media="text/plain")
        if request.path.startswith("/static/"):
            return self._site.static(request.path)
        if request.path.startswith("/in/"):
            return self._open(request)
        prefix, path = request.path[: len(self._prefix)], request.path[len(self._prefix) :]
        if not _is_same(prefix, self._prefix) or not path.startswith("/"):
            return WebResponse(404, b"not found\n", media="text/plain")
        session = self._session(request)
        if not session:
            return self._closed(403, "This console is closed", "signed-out")
        origins = tuple(f"http://{host}" for host in self._hosts)
        if request.method == "POST" and guard.is_forged(request.headers, origins):
            return self._closed(403, "This form was not sent by the console", "forged")
        if request.method == "POST" and path == "/out":
            del self._sessions[session]
            return self._closed(200, "Signed out", "signed-out", (self._cookie("", 0),))
        inner = WebRequest(request.method, path, request.query, request.headers, request.body)
        response = await self._site.respond(inner, self._prefix, self._viewer)
        if response.stream is None:
            return response
        return msgspec.structs.replace(response, stream=self._while_open(session, response.stream))

    def _open(self, request: WebRequest) -> WebResponse:
        """Exchange a link for a session. A prefetch or HEAD does not use the link up."""
        token = request.path.removeprefix("/in/")
        is_preview = "sec-purpose" in request.headers or request.method != "GET"
        now = self._monotonic()
        link = next((candidate for candidate in self._links if _is_same(candidate, token)), "")
        if not link or is_preview or self._links.pop(link) < now:
            return self._closed(403, "This link no longer works", "used-link")
        self._sessions = {candidate: end for candidate, end in self._sessions.items() if end > now}
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = now + SESSION_SECONDS
        # A page that continues by itself, not a redirect: after a redirect from another site the
        # browser would not send a strict cookie.
        body = self._renderer.render("opened.html", target=f"{self._prefix}/")
        return WebResponse(200, body, (self._cookie(session, SESSION_SECONDS),))

    def _session(self, request: WebRequest) -> str:
        """The id of the session of a request; empty if there is none."""
        given = request.cookie(COOKIE)
        found = next((one for one in self._sessions if _is_same(one, given)), "")
        return found if self._is_open(found) else ""

    def _is_open(self, session: str) -> bool:
        return self._sessions.get(session, 0.0) > self._monotonic()

    async def _while_open(self, session: str, stream: Any) -> AsyncIterator[bytes]:
        """The pieces of a stream, until the session ends."""
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                if not self._is_open(session):
                    return
                yield piece

    def _cookie(self, value: str, seconds: int) -> tuple[str, str]:
        attributes = f"Path={self._prefix}/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
        return "Set-Cookie", f"{COOKIE}={value}; {attributes}"

    def _closed(
        self, status: int, title: str, why: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> WebResponse:
        body = self._renderer.render("closed.html", title=title, why=why)
        return WebResponse(status, body, headers)


def _is_same(one: str, other: str) -> bool:
    """Compare secrets in constant time; any characters are allowed."""
    return secrets.compare_digest(one.encode(), other.encode())
