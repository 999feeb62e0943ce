"""The console of a server in this process, with a provider that renews tokens."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from orchid.assembly.console.listener import ServedConsole
from orchid.features.sign_in.parts import OutsideIssuers
from orchid.kernel.http.messages import HttpRequest, Peer, Response, Stream
from orchid.kernel.store.interface import Store
from tests.api.world import Answer, Api, EventStream, api, parsed
from tests.e2e.outside_issuer import OutsideIssuer
from tests.unit.features.beside import MovingClock

CLIENT = "orchid-console"
URL = "https://console.test"
SESSIONS = "/apis/identity.orch.io/v1alpha1/consolesessions"


class SignInProvider(OutsideIssuer):
    """Redeems a code, which is the name of a user, and renews by refresh tokens."""

    def __init__(self) -> None:
        self.clock = MovingClock()
        self.seconds = 300  # of its ID tokens
        self.nonce = ""
        self.renewals = 0
        super().__init__()

    def publish(self) -> None:
        super().publish()
        self.pages["/.well-known/openid-configuration"] |= {
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
        }

    def id_token(self, user: str, **claims: Any) -> str:
        now = int(self.clock.now().timestamp())
        times = {"iat": now, "nbf": now, "exp": now + self.seconds}
        return self.token(**{"sub": user, "aud": CLIENT, **times, **claims})

    def redeemed(self, form: Mapping[str, str]) -> dict[str, str]:
        if form["grant_type"] == "refresh_token":
            self.renewals += 1
            user, claims = form["refresh_token"].partition(":")[0], {}
        else:
            user, claims = form["code"], {"nonce": self.nonce}
        return {
            "id_token": self.id_token(user, **claims),
            "refresh_token": f"{user}:{uuid.uuid4()}",
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self
        pages: Any = super()._handler()

        class Tokens(pages):  # type: ignore[misc]  # a class that a function has made
            def do_POST(self) -> None:  # noqa: N802 -- the name of http.server
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                found = json.dumps(provider.redeemed(form)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

        return Tokens


class Browser:
    """Sends requests to the console of a server; has the cookies of its user."""

    def __init__(self, server: Api, provider: SignInProvider) -> None:
        self.server, self.provider = server, provider
        self.console = ServedConsole(server.server)
        self.cookie = ""

    async def send(self, target: str, **headers: str) -> Response | Stream:
        sent = {"host": "console.test", "sec-fetch-mode": "navigate", **headers}
        if self.cookie:
            sent["cookie"] = self.cookie
        path, _, query = target.partition("?")
        return await self.console._handle(
            HttpRequest("GET", target, path, query, sent, Peer("192.0.2.7:4711"))
        )

    async def get(self, target: str = "/", **headers: str) -> Answer:
        found = await self.send(target, **headers)
        assert isinstance(found, Response)
        return Answer(found.status, parsed(found.headers), found.body)

    async def follow(self, kind: str) -> EventStream:
        """The stream with which an open page follows changes."""
        found = await self.send(f"/live?of={kind}", **{"sec-fetch-mode": "cors"})
        assert isinstance(found, Stream)
        stream = EventStream(found.status, parsed(found.headers))
        found.open(stream)
        return stream

    async def sign_in(self, user: str) -> "Browser":
        begun = await self.get()
        assert begun.status == 303, begun.text
        asked = parse_qs(urlsplit(begun.header("location") or "").query)
        self.provider.nonce = asked["nonce"][0]
        self.cookie = (begun.header("set-cookie") or "").partition(";")[0]
        back = await self.get(f"/callback?code={user}&state={asked['state'][0]}")
        assert back.status == 200, back.text
        cookies = [value for name, value in back.headers if name == "Set-Cookie"]
        self.cookie = cookies[0].partition(";")[0]
        return self


async def sessions_of(server: Api) -> list[str]:
    """The users of the stored sessions."""
    found = (await server.call("GET", SESSIONS)).json["items"]
    return [session["spec"]["username"] for session in found]


@asynccontextmanager
async def signing_in(
    files: Path,
    provider: SignInProvider,
    place: Path,
    clock: MovingClock,
    *,
    store: Store | None = None,
    **settings: Any,
) -> AsyncIterator[Api]:
    """A server that accepts ID tokens of the provider, and has a console for its users."""
    provider.clock = clock
    authority = place / "provider.crt"
    authority.write_text(provider.trusted)
    console = {"console_listen": "127.0.0.1:0", "console_url": URL}
    oidc = {"oidc_issuer_url": provider.url, "oidc_client_id": CLIENT, "oidc_username_prefix": "-"}
    async with api(
        files, store=store, oidc_ca_file=str(authority), **oidc, **console, **settings
    ) as server:
        outside = server.server.context.port(OutsideIssuers).authenticator
        assert outside is not None
        running = asyncio.create_task(outside.run())
        try:
            await outside.sources[provider.url].newer()
            yield server
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
