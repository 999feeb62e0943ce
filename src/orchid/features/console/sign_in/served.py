"""Sign-in to the console of a server: by OpenID Connect, or by a client certificate.

`OpenIdSignIn` has sessions (sessions.py); `CertificateSignIn` has none: each request has the
certificate of its connection. Both pass the credential of the user to the API with every call, so
that the console has no rights of its own over the objects that it shows.
"""

import asyncio
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit
from weakref import WeakValueDictionary

import msgspec

from orchid.features.console.api import Api, Json, Refused, Unreachable, UserTransport
from orchid.features.console.decoding import decode_certificate
from orchid.features.console.live import Changes
from orchid.features.console.page import Viewer
from orchid.features.console.rendering import Renderer
from orchid.features.console.sign_in.openid import (
    Login,
    OpenIdProvider,
    ProviderUnavailable,
    SignInFailed,
)
from orchid.features.console.sign_in.sessions import OpenSession, Sessions
from orchid.features.console.site import Site
from orchid.features.console.text import parse_time
from orchid.features.console.web import guard
from orchid.features.console.web.messages import WebRequest, WebResponse
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.rate_limits import RateLimit, network_of
from orchid.kernel.wire.naming import Naming

log = logging.getLogger(__name__)

COOKIE: Final = "__Host-orchid"
LOGIN_COOKIE: Final = "__Host-orchid-login"
CALLBACK: Final = "/callback"
LOGIN_SECONDS: Final = 600
RENEW_SECONDS: Final = 60.0  # before the end of an ID token
SIGN_INS: Final = (10, 60.0)  # of an address, in seconds
MOST_PER_SESSION: Final = 4
MOST_AT_ONCE: Final = 64
MOST_STRANGERS: Final = 16  # requests without a session, some of which wait for the provider
MOST_WAITING: Final = 8  # of one session, so that it does not take the places of others
PATIENCE: Final = 10.0  # seconds that a request waits for others of its session

Find = Callable[[], Awaitable[OpenSession | None]]
Connect = Callable[[str], UserTransport]  # with a token; empty: with the certificate


class SessionUse:
    """The running requests of a session, in this process."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(MOST_PER_SESSION)
        self.waiting = 0
        self.renewing = asyncio.Lock()
        self.changes = Changes()

    def holding(self, response: WebResponse, find: Find | None = None) -> WebResponse:
        """A response whose stream, if it is one, ends with the session that `find` finds."""
        if response.stream is None:
            return response
        return msgspec.structs.replace(response, stream=self._pieces(response.stream, find))

    async def _pieces(self, stream: Any, find: Find | None) -> AsyncIterator[bytes]:
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                if find is not None and await find() is None:
                    return
                yield piece


class SignIn(ABC):
    """What both ways of signing in share: the host, forged forms, limits, files."""

    def __init__(
        self, site: Site, renderer: Renderer, *, url: str, server: str, naming: Naming
    ) -> None:
        """`url` is the origin of the console, `server` the URL of the API."""
        self.site = site
        self.renderer = renderer
        self.server = server
        self.naming = naming
        self._origin = url.rstrip("/").lower()
        self._host = urlsplit(self._origin).netloc
        self._running = 0
        self._uses: WeakValueDictionary[str, SessionUse] = WeakValueDictionary()

    async def respond(self, request: WebRequest, connect: Connect) -> WebResponse:
        return guard.protected(await self._guarded(request, connect), guard.ALWAYS_TLS)

    async def _guarded(self, request: WebRequest, connect: Connect) -> WebResponse:
        if guard.is_rebound(request.headers, (self._host,)):
            return WebResponse(421, b"this console has another address\n", media="text/plain")
        if request.path.startswith("/static/"):
            return self.site.static(request.path)
        if request.method == "POST" and guard.is_forged(request.headers, (self._origin,)):
            return self.note(403, "This form was not sent by the console", "forged")
        if self._running >= MOST_AT_ONCE:
            return self.note(503, "The console is busy", "busy")
        self._running += 1
        try:
            return await self.admitted(request, connect)
        except (Refused, Unreachable) as problem:  # of the console itself
            log.warning("console.sessions_unavailable: %s", problem)
            return self.note(503, "The console cannot read its sessions", "busy")
        finally:
            self._running -= 1

    @abstractmethod
    async def admitted(self, request: WebRequest, connect: Connect) -> WebResponse:
        """The page, for a user who has signed in; for others the way to do so."""

    def use_of(self, user: str) -> SessionUse:
        """The use of a session, or of a certificate."""
        use = self._uses.get(user) or SessionUse()
        self._uses[user] = use
        return use

    async def in_turn(self, use: SessionUse, page: Coroutine[Any, Any, WebResponse]) -> WebResponse:
        """The page, when few others of the same session are being made."""
        if use.waiting >= MOST_WAITING or not await self._has_turn(use):
            page.close()
            return self.note(503, "The console is busy", "busy")
        try:
            return await page
        finally:
            use.turns.release()

    async def _has_turn(self, use: SessionUse) -> bool:
        """Wait for a turn of the session, for a limited time."""
        use.waiting += 1
        try:
            async with asyncio.timeout(PATIENCE):
                return await use.turns.acquire()
        except TimeoutError:
            return False
        finally:
            use.waiting -= 1

    def continued(self, target: str, *headers: tuple[str, str]) -> WebResponse:
        # A page that continues by itself, not a redirect: after a redirect from another site the
        # browser would not send a strict cookie.
        return WebResponse(200, self.renderer.render("opened.html", target=target), headers)

    def note(
        self,
        status: int,
        title: str,
        why: str,
        headers: tuple[tuple[str, str], ...] = (),
        **values: Any,
    ) -> WebResponse:
        """A page without the frame of the console."""
        shown = {"again": None, "message": "", "sign_out": "", **values}
        body = self.renderer.render("closed.html", title=title, why=why, **shown)
        return WebResponse(status, body, headers)


class CertificateSignIn(SignIn):
    """Users with a client certificate, which the API verifies with every call."""

    async def admitted(self, request: WebRequest, connect: Connect) -> WebResponse:
        if request.certificate is None:
            return self.note(401, "Your browser sent no certificate", "no-certificate")
        if guard.is_foreign(request.headers):
            # A browser presents its certificate for the pages of every site.
            if request.headers.get("sec-fetch-mode") == "navigate":
                return self.continued(_target(request))
            return WebResponse(403, b"another site asked for this\n", media="text/plain")
        certificate = decode_certificate(request.certificate)
        end = parse_time(certificate.not_after) if certificate else None
        use = self.use_of(hashlib.sha256(request.certificate).hexdigest())
        viewer = Viewer(
            Api(connect(""), self.naming),
            use.changes,
            self.server,
            lambda: end,
            is_local=False,
            can_sign_out=False,
        )
        page = self.site.respond(request, "", viewer)
        return use.holding(await self.in_turn(use, page))


class OpenIdSignIn(SignIn):
    """Users whom the provider has identified. The ID token is their credential."""

    def __init__(
        self,
        site: Site,
        renderer: Renderer,
        sessions: Sessions,
        provider: OpenIdProvider,
        *,
        url: str,
        server: str,
        naming: Naming,
        monotonic: Monotonic,
    ) -> None:
        super().__init__(site, renderer, url=url, server=server, naming=naming)
        self.sessions = sessions
        self._provider = provider
        self._sign_ins: RateLimit[str] = RateLimit(*SIGN_INS, monotonic)
        self._strangers = 0

    async def admitted(self, request: WebRequest, connect: Connect) -> WebResponse:
        if request.path == CALLBACK:
            return await self._among_strangers(self._finish(request, connect))
        session = await self.sessions.find(request.cookie(COOKIE))
        if session is None:
            return await self._among_strangers(self._unknown(request))
        if request.method == "POST" and request.path == "/out":
            return await self._sign_out(request, session)
        use = self.use_of(session.name)
        return await self.in_turn(use, self._serve(request, session, use, connect))

    async def _among_strangers(self, page: Coroutine[Any, Any, WebResponse]) -> WebResponse:
        """The page, unless many wait: users with a session are served while the provider hangs."""
        if self._strangers >= MOST_STRANGERS:
            page.close()
            return self.note(503, "The console is busy", "busy")
        self._strangers += 1
        try:
            return await page
        finally:
            self._strangers -= 1

    # -- pages -----------------------------------------------------------------------------

    async def _serve(
        self, request: WebRequest, session: OpenSession, use: SessionUse, connect: Connect
    ) -> WebResponse:
        if session.tokens.expires - self.sessions.now().timestamp() < RENEW_SECONDS:
            renewed = await self._renewed(session, use, connect)
            if renewed is None:
                return await self._unknown(request)
            session = renewed
        if request.headers.get("sec-fetch-mode") == "navigate":
            await self.sessions.touch(session)
        tokens = session.tokens
        end = datetime.fromtimestamp(tokens.expires, UTC)
        viewer = Viewer(
            Api(connect(tokens.id_token), self.naming),
            use.changes,
            self.server,
            lambda: session.expires if tokens.refresh_token else min(end, session.expires),
            is_local=False,
            sessions=lambda: self._listed(session),
        )
        response = await self.site.respond(request, "", viewer)
        return use.holding(response, lambda: self.sessions.find(session.id))

    async def _renewed(
        self, session: OpenSession, use: SessionUse, connect: Connect
    ) -> OpenSession | None:
        """The session with a token that is still valid; one renewal for all waiting requests."""
        async with use.renewing:
            now = await self.sessions.find(session.id)
            if now is None or now.tokens.expires - self.sessions.now().timestamp() >= RENEW_SECONDS:
                return now
            if not now.tokens.refresh_token:
                return now if now.tokens.expires > self.sessions.now().timestamp() else None
            try:
                tokens = await self._provider.renew(now.tokens)
                # A session ends with the user whom it names: revocations name users.
                if await self._user(connect(tokens.id_token)) != now.username:
                    raise SignInFailed("The renewed ID token is not one of the same user.")
                return await self.sessions.renew(now, tokens)
            except ProviderUnavailable as problem:
                log.warning("console.renewal_failed: %s", problem)
                return now if now.tokens.expires > self.sessions.now().timestamp() else None
            except SignInFailed as problem:
                other = await self.sessions.find(session.id)  # another server may have renewed it
                if other is not None and other.tokens.id_token != now.tokens.id_token:
                    return other
                log.info("console.session_ended: %s", problem)
                await self.sessions.end(session.name)
                return None

    async def _listed(self, session: OpenSession) -> list[Json]:
        """The sessions of the user, the last used one first."""
        rows = [
            {
                "is_this": listed["metadata"]["name"] == session.name,
                "address": str(listed["spec"].get("address") or ""),
                "begun": listed["metadata"].get("creationTimestamp"),
                "seen": listed["spec"].get("lastSeen"),
                "expires": listed["spec"].get("expires"),
            }
            for listed in await self.sessions.of(session.username)
        ]
        return sorted(rows, key=lambda row: str(row["seen"]), reverse=True)

    # -- signing in and out ----------------------------------------------------------------

    async def _unknown(self, request: WebRequest) -> WebResponse:
        """A request without a session: begin to sign in, or show what was typed."""
        if request.method == "POST":
            target = _target(request)
            again = {"target": target, "fields": request.form}
            return self.note(401, "Your session has ended", "session-ended", again=again)
        if request.headers.get("sec-fetch-mode", "navigate") != "navigate":
            return WebResponse(401, b"the session has ended\n", media="text/plain")
        if guard.is_foreign(request.headers):
            # A link of another site: its request had no strict cookie, and the next one has.
            return self.continued(_target(request))
        login = Login.begin(_target(request))
        try:
            target = await self._provider.sign_in_url(login)
        except SignInFailed as problem:
            return self._failed(problem)
        return WebResponse(
            303,
            headers=(
                ("Location", target),
                _cookie(LOGIN_COOKIE, login.cookie, "Lax", LOGIN_SECONDS),
            ),
        )

    async def _finish(self, request: WebRequest, connect: Connect) -> WebResponse:
        """The provider has sent the browser back."""
        login = Login.of_cookie(request.cookie(LOGIN_COOKIE))
        if request.method != "GET" or login is None:
            return self.note(400, "This sign-in has ended", "sign-in-ended")
        if self._sign_ins.wait_for(network_of(request.address)):
            return self.note(429, "Too many sign-ins", "busy")
        try:
            tokens = await self._provider.redeem(login, request.query)
        except SignInFailed as problem:
            return self._failed(problem)
        user = await self._user(connect(tokens.id_token))
        if not user:
            return self._failed(SignInFailed("The server does not accept the ID token."))
        issuer = self._provider.settings.issuer
        session = await self.sessions.begin(user, issuer, request.address, tokens)
        log.info("console.signed_in", extra={"user": user, "address": request.address})
        left = session.expires - self.sessions.now()
        cookie = _cookie(COOKIE, session.id, "Strict", int(left.total_seconds()))
        return self.continued(login.target, cookie, _cookie(LOGIN_COOKIE, "", "Lax", 0))

    async def _user(self, transport: UserTransport) -> str:
        """The user of an ID token, as the server sees them; empty if it is not accepted."""
        api = Api(transport, self.naming)
        body = {"apiVersion": f"{self.naming.authentication}/v1", "kind": "SelfSubjectReview"}
        target = await api.group("authentication", "v1", "selfsubjectreviews")
        try:
            review = await api.post(target, body)
        except Refused:
            return ""
        return str(review.get("status", {}).get("userInfo", {}).get("username") or "")

    async def _sign_out(self, request: WebRequest, session: OpenSession) -> WebResponse:
        await self.sessions.end(session.name)
        if request.form.get("everywhere") == "yes":
            for listed in await self.sessions.of(session.username):
                await self.sessions.end(str(listed["metadata"]["name"]))
        log.info("console.signed_out", extra={"user": session.username})
        headers = (_cookie(COOKIE, "", "Strict", 0),)
        leave = await self._provider.sign_out_url()
        return self.note(200, "Signed out", "sign-in-ended", headers, sign_out=leave)

    def _failed(self, problem: SignInFailed) -> WebResponse:
        log.warning("console.sign_in_failed: %s", problem)
        status = 503 if isinstance(problem, ProviderUnavailable) else 403
        return self.note(status, "You are not signed in", "sign-in-ended", message=str(problem))


def _target(request: WebRequest) -> str:
    """The page of a request, as a path that cannot leave this site."""
    path = "/" + quote(request.path.lstrip("/\\"), safe="/%:@!$&'()*+,;=~-._")
    return f"{path}?{urlencode(request.query)}" if request.query else path


def _cookie(name: str, value: str, same_site: str, seconds: int) -> tuple[str, str]:
    attributes = f"Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite={same_site}"
    return "Set-Cookie", f"{name}={value}; {attributes}"
