"""The attack: large objects of others make the console of a server block its event loop.

A user who may only create certificate requests made 400 of 80 kB. Each view of the requests or of
the overview read and decoded all of them, 32 MB, on the event loop of the API, and pages are read
again with every change.
"""

import base64
import json
import threading
from typing import Any

import pytest

from orchid.features.console import api as console_api
from orchid.features.console.pages import PAGES, shared
from orchid.features.console.rendering import Renderer
from orchid.features.console.sign_in.served import COOKIE, CertificateSignIn
from orchid.features.console.site import Site
from orchid.features.console.web.messages import MOST_COOKIES, WebRequest
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.wire.naming import ORCH
from tests.api.console_pages import Browser, Calls
from tests.api.test_approval_reviews import REQUESTS, terms
from tests.api.world import ADMIN, Api
from tests.security.threads import threads_of

LARGE = 80_000
COUNT = 40


def large_request(number: int) -> dict[str, Any]:
    """A valid request, and text after it: its signature and names are as usual."""
    spec = terms(f"host-{number}.web.example.com")
    spec["request"] = base64.b64encode(
        base64.b64decode(spec["request"]) + b"#" * (LARGE * 3 // 4)
    ).decode()
    return {"metadata": {"name": f"r{number:03}"}, "spec": spec}


@pytest.mark.parametrize("path", ["/", "/requests"])
async def test_the_size_of_requests_does_not_count_for_a_page(
    server: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a Table are read; a page shows all requests."""
    for number in range(COUNT):
        await server.make(REQUESTS, large_request(number))
    browser = await Browser(server).open()
    sizes: list[int] = []
    send = browser.calls.send

    async def measured(method: str, target: str, *given: Any, **named: Any) -> Answer:
        answer = await send(method, target, *given, **named)
        if "certificatesigningrequests" in target:
            sizes.append(len(answer.body))
        return answer

    monkeypatch.setattr(browser.calls, "send", measured)
    page = await browser.page(path)

    assert "r000" in page
    assert sizes
    assert sum(sizes) < LARGE


async def test_a_long_list_is_decoded_beside_the_loop(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of objects as a whole."""
    note = {"metadata": {"name": "a", "annotations": {"x": "y" * console_api.SHORT}}}
    role = "/apis/rbac.authorization.orch.io/v1/clusterroles"
    await server.make(role, {**note, "rules": []})
    threads = threads_of(monkeypatch, console_api, "decoded")
    browser = await Browser(server).open()

    objects, has_more = await shared.everything(console_api.Api(browser.calls, ORCH), role)

    assert "a" in [one["metadata"]["name"] for one in objects]
    assert not has_more
    assert threads
    assert threading.main_thread() not in threads


class Pages:
    """A list of objects of one size."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size, self.sent = count, size, 0
        self.limits: list[int] = []

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = "", *, accept: str = ""
    ) -> Answer:
        limit = int(target.partition("limit=")[2].partition("&")[0])
        self.limits.append(limit)
        items = [{"x": "y" * self.size}] * min(limit, self.count - self.sent)
        self.sent += len(items)
        after = "more" if self.sent < self.count else ""
        return Answer(200, json.dumps({"metadata": {"continue": after}, "items": items}).encode())

    def stream(self, target: str) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("count", "size", "read"),
    [
        (1500, 1, 1500),
        (5000, 1, shared.MOST_OBJECTS + shared.FIRST_PAGE),
        (100, 1 << 20, shared.FIRST_PAGE),
        (5000, 10_000, shared.MOST_BYTES // 10_000),
    ],
)
async def test_a_page_reads_so_many_objects_and_bytes(count: int, size: int, read: int) -> None:
    """In pages that are decoded one by one, each of a limited size."""
    pages = Pages(count, size)

    objects, has_more = await shared.everything(console_api.Api(pages, ORCH), "/x")

    assert has_more is (count > len(objects))
    assert abs(len(objects) - read) <= min(shared.PAGE, shared.PAGE_BYTES // size)
    assert pages.limits[0] == shared.FIRST_PAGE
    assert all(limit * size <= shared.PAGE_BYTES for limit in pages.limits[1:])


def test_a_header_of_semicolons_is_cheap() -> None:
    """125 kB of them cost 16 ms of every request, without credentials: each was a cookie."""
    header = ";" * 125_000 + f"{COOKIE}=late"
    split = CountedText(header)

    late = WebRequest("GET", "/", headers={"cookie": split})
    early = WebRequest("GET", "/", headers={"cookie": f"{COOKIE}=early{header}"})

    assert late.cookie(COOKIE) == ""
    assert early.cookie(COOKIE) == "early"
    assert split.parts <= MOST_COOKIES + 1


class CountedText(str):
    """Counts the parts into which it was split."""

    parts = 0

    def split(self, *given: Any, **named: Any) -> list[str]:
        parts = super().split(*given, **named)
        self.parts = len(parts)
        return parts


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_site_reads_nothing_by_certificate(server: Api, site: str) -> None:
    """A browser presents its certificate for requests of every site: an image, or a link."""
    renderer = Renderer()
    sign_in = CertificateSignIn(
        Site(renderer, PAGES), renderer, url="https://console.test", server="", naming=ORCH
    )
    calls = Calls(server, ADMIN)

    async def status(**headers: str) -> tuple[int, bytes]:
        sent = {"host": "console.test", **headers}
        request = WebRequest("GET", "/requests", {}, sent, certificate=b"any")
        answer = await sign_in.respond(request, lambda token: calls)
        return answer.status, answer.body

    image = await status(**{"sec-fetch-site": site, "sec-fetch-mode": "no-cors"})
    link = await status(**{"sec-fetch-site": site, "sec-fetch-mode": "navigate"})
    calls_of_others = list(calls.sent)
    own = await status(**{"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"})

    assert image[0] == 403
    assert link[0] == 200
    assert b"/requests" in link[1]
    assert calls_of_others == []
    assert own[0] == 200
    assert calls.sent
