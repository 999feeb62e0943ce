"""The pages of the console over a server in this process, as a browser without script sees them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from orchid.features.console import api as console_api
from orchid.features.console.api import Api as ConsoleApi
from orchid.features.console.live import Changes
from orchid.features.console.page import Viewer
from orchid.features.console.pages import PAGES
from orchid.features.console.rendering import Renderer
from orchid.features.console.sign_in.local import LinkSignIn
from orchid.features.console.site import Site
from orchid.features.console.web.messages import FORM, WebRequest, WebResponse, parse_target
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.outbound.answer import Answer
from tests.api.world import ADMIN, Api

PORT = 8123
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
OWN = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
RENDERER = Renderer()


class Calls:
    """A transport into the chain of the server, with a token."""

    def __init__(self, server: Api, token: str) -> None:
        self.server, self.token = server, token
        self.sent: list[tuple[str, str]] = []

    async def send(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        media: str = console_api.JSON,
        *,
        accept: str = "",
    ) -> Answer:
        self.sent.append((method, target))
        headers = {"content-type": media, "user-agent": "orchid-console/tests"}
        headers |= {"accept": accept} if accept else {}
        found = await self.server.call(
            method, target, body or None, token=self.token, headers=headers
        )
        return Answer(found.status, found.body)

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self.server.watch(target, token=self.token) as events:

            async def pieces() -> AsyncIterator[bytes]:
                while True:
                    yield f"{await events.next()}\n".replace("'", '"').encode()

            yield pieces()


class Browser:
    """Follows no redirect and runs no script; has the cookie of its session."""

    def __init__(self, server: Api, token: str = ADMIN) -> None:
        self.calls = Calls(server, token)
        viewer = Viewer(ConsoleApi(self.calls), Changes(), "https://orchid.test")
        self.sign_in = LinkSignIn(Site(RENDERER, PAGES), RENDERER, viewer, SystemClock.monotonic)
        self.sign_in.listens_at(PORT)
        self.base = ""
        self.cookie = ""

    async def open(self) -> "Browser":
        """Use a link."""
        opened = await self.get(self.sign_in.new_link().removeprefix(ORIGIN))
        assert opened.status == 200
        self.cookie = dict(opened.headers)["Set-Cookie"].partition(";")[0]
        found = re.search(r'url=(/[^"]+)/"', opened.body.decode())
        assert found is not None
        self.base = found[1]
        return self

    async def get(self, target: str, **headers: str) -> WebResponse:
        return await self._send("GET", target, b"", headers)

    async def page(self, path: str) -> str:
        """The HTML of a page below the path of the console."""
        found = await self.get(f"{self.base}{path}")
        assert found.status == 200, (found.status, found.body.decode())
        return found.body.decode()

    async def post(
        self, path: str, fields: dict[str, str], headers: dict[str, str] | None = None
    ) -> WebResponse:
        sent = {"content-type": FORM, **(OWN if headers is None else headers)}
        return await self._send("POST", f"{self.base}{path}", urlencode(fields).encode(), sent)

    async def _send(
        self, method: str, target: str, body: bytes, headers: dict[str, str]
    ) -> WebResponse:
        path, query = parse_target(target)
        sent = {"host": HOST, **({"cookie": self.cookie} if self.cookie else {}), **headers}
        return await self.sign_in.respond(WebRequest(method, path, query, sent, body))


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of the forms of a page."""
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page))


def location(response: WebResponse) -> str:
    assert response.status == 303, (response.status, response.body.decode())
    return dict(response.headers)["Location"]
