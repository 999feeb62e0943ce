"""The console of a server: its listener, and the pages as clients of the API in this process.

A page calls the chain with the credential and the address of
its user; only sessions are written with the account of the console.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from orchid.assembly.console.provider import openid_provider
from orchid.assembly.server import Assembly
from orchid.features.console.api import JSON, Api, Refused, Unreachable
from orchid.features.console.identity import IDENTITY
from orchid.features.console.pages import PAGES
from orchid.features.console.rendering import Renderer
from orchid.features.console.settings import CERTIFICATE, ConsoleSettings
from orchid.features.console.sign_in.served import CertificateSignIn, OpenIdSignIn, SignIn
from orchid.features.console.sign_in.sessions import Sessions
from orchid.features.console.site import Site
from orchid.features.console.web import guard
from orchid.features.console.web.handler import plain, rendered, web_request
from orchid.features.console.web.messages import (
    UnreadableRequest,
)
from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.base.version import __version__
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.http.descriptors import fitted
from orchid.kernel.http.listener import ConnectionLimits, Listener
from orchid.kernel.http.messages import HttpRequest, Peer, Response, Stream
from orchid.kernel.http.tls.files import TlsFiles
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.https_client import Pieces
from orchid.kernel.server.failures import TIMEOUT, failed
from orchid.kernel.server.in_process.transport import InProcessTransport
from orchid.kernel.server.memory.head_facts import facts_of
from orchid.kernel.server.respond import compressed
from orchid.kernel.settings.errors import BadSettings

log = logging.getLogger(__name__)

AGENT: Final = f"orchid-console/{__version__}"
COMPRESSED_ABOVE: Final = 2048  # bytes
SWEEP_SECONDS: Final = 300.0


class ServedConsole:
    """The console of one process."""

    def __init__(self, server: Assembly) -> None:
        """Raises BadSettings."""
        self._settings, self._clock = server.settings, server.clock
        self._console = self._settings.given.of(ConsoleSettings)
        self._chain, self._offload = server.chain, server.offload
        self._sessions = Sessions(
            Api(PageTransport(server.clients.transport(IDENTITY.name)), server.settings.naming),
            server.clock.now,
            self._console.console_session.delta,
            server.context.port(Revocations).has_revoked,
        )
        self._renderer = Renderer()
        self._sign_in = self._new_sign_in()
        self.listener = Listener(
            self._handle,
            timeout_response=TIMEOUT,
            failure=failed,
            monotonic=server.clock.monotonic,
            limits=fitted(ConnectionLimits(request_timeout=server.settings.request_timeout)),
            tls=self._tls(server),
        )

    async def start(self) -> None:
        listen = self._console.console_listen
        await asyncio.to_thread(self._renderer.compile_all)
        try:
            await self.listener.start(*listen.parts)
        except OSError as problem:
            why = problem.strerror or problem
            raise BadSettings(f"--console-listen: {listen}: {why}") from None
        log.info("console.listening", extra={"addresses": self.listener.addresses})

    async def run(self) -> None:
        """Delete ended sessions, until cancelled."""
        while True:
            try:
                await self._sessions.sweep()
            except (Refused, Unreachable) as problem:
                log.warning("console.sweep_failed: %s", problem)
            await asyncio.sleep(SWEEP_SECONDS)

    # -- parts -----------------------------------------------------------------------------

    def _new_sign_in(self) -> SignIn:
        renderer = self._renderer
        place: Any = {
            "url": self._console.console_url,
            "server": self._settings.url,
            "naming": self._settings.naming,
        }
        site = Site(renderer, PAGES)
        if self._console.console_login == CERTIFICATE:
            return CertificateSignIn(site, renderer, **place)
        provider = openid_provider(self._settings, self._clock.monotonic)
        monotonic = self._clock.monotonic
        return OpenIdSignIn(site, renderer, self._sessions, provider, **place, monotonic=monotonic)

    def _tls(self, server: Assembly) -> TlsFiles:
        console, files = self._console, server.files
        certificate = self._settings.path(console.console_tls_cert_file, "")
        key = self._settings.path(console.console_tls_private_key_file, "")
        if not console.console_tls_cert_file:
            certificate, key = files.serving_certificate, files.serving_key
        authorities = []
        if self._console.console_login == CERTIFICATE:
            own = self._settings.given.of(SignInSettings).client_ca_file
            authorities = [Path(own) if own else files.ca_certificate]
        try:
            return TlsFiles(certificate, key, authorities)
        except Refusal as problem:
            raise BadSettings(f"--console-listen: {problem}") from None

    # -- requests --------------------------------------------------------------------------

    async def _handle(self, http: HttpRequest) -> Response | Stream:
        await asyncio.sleep(0)  # pages need a task, for timeouts
        try:
            request = web_request(http)
            connect = functools.partial(self._connect, http.peer)
            response = rendered(await self._sign_in.respond(request, connect))
        except UnreadableRequest as problem:
            return rendered(plain(400, str(problem), guard.ALWAYS_TLS))
        if isinstance(response, Stream) or len(response.body) < COMPRESSED_ABOVE:
            return response
        # Not for other sites: the size of a compressed page with a word that they have chosen
        # shows those who see the traffic whether the word is in the page.
        if guard.is_foreign(request.headers) or not facts_of(http).client.accepts_gzip:
            return response
        return await self._offload(len(response.body), functools.partial(compressed, response))

    def _connect(self, peer: Peer, token: str) -> "PageTransport":
        """The API for a user: with a token, or with the certificate of the connection."""
        caller = Peer(peer.address) if token else peer
        credential = SecretValue(token) if token else None
        return PageTransport(InProcessTransport(self._chain, caller, AGENT, credential))


class PageTransport:
    """The chain of this process, as the pages use it: events of a watch are lines."""

    def __init__(self, transport: InProcessTransport) -> None:
        self._transport = transport

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = JSON, *, accept: str = ""
    ) -> Answer:
        return await self._transport.send(method, target, body, media, accept=accept)

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[Pieces]:
        async with self._transport.stream(target) as pieces:
            yield _lines(pieces)


async def _lines(pieces: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """The types of the events of a watch, as JSON lines. The pages need no more."""
    async for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
        else:
            yield b"".join(b'{"type":"%b"}\n' % type_.encode() for type_, _ in piece)
