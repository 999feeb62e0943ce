"""The pages below /acme/<authority>/: GET for the directory and nonces, signed POST for the rest.

Every answer has a link to the directory, and every answer to a POST a new nonce. Errors are problem
documents; an error of the API behind a page becomes one here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from orchid.features.acme.accounts import AccountPages
from orchid.features.acme.orders import OrderPages
from orchid.features.acme.protocol import links, problems
from orchid.features.acme.protocol.links import LONGEST_PATH, PREFIX, Links
from orchid.features.acme.protocol.nonces import Nonces
from orchid.features.acme.protocol.problems import NO_STORE, AcmeProblem, malformed, unknown
from orchid.features.acme.protocol.replies import Reply
from orchid.features.acme.protocol.requests import (
    METHOD_NOT_ALLOWED,
    RequestTarget,
    SignedRequests,
    VerifiedRequest,
)
from orchid.features.acme.revoking import RevocationPage
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.kernel.base.metrics import Counter
from orchid.kernel.http.messages import Response
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.errors import ApiError, TooManyRequests

log = logging.getLogger(__name__)

READING: Final = ("GET", "HEAD")
DIRECTORY_CACHE: Final = b"public, max-age=60"
UNAVAILABLE, SERVER_ERROR, NO_CONTENT = 503, 500, 204
Find = Callable[[str], CertificateAuthority | None]
Handler = Callable[[VerifiedRequest], Awaitable[Reply]]


class AcmePages:
    """All pages; call it with an exchange."""

    def __init__(
        self,
        base: str,
        find: Find,
        nonces: Nonces,
        *,
        ensure_key: Callable[[], Awaitable[None]],
        requests: SignedRequests,
        accounts: AccountPages,
        orders: OrderPages,
        revocations: RevocationPage,
    ) -> None:
        """`find`: the authority of a name, if it has ACME. `ensure_key`: create the key of nonces,
        if there is none.
        """
        self._base = base.rstrip("/")
        self._find = find
        self._nonces = nonces
        self._ensure_key = ensure_key
        self._requests = requests
        self._handlers: dict[str, Handler] = {
            links.NEW_ACCOUNT: accounts.new,
            links.ACCOUNT: accounts.show,
            links.KEY_CHANGE: accounts.change_key,
            links.NEW_ORDER: orders.new,
            links.ORDER: orders.show,
            links.AUTHORIZATION: orders.authorization,
            links.CERTIFICATE: orders.certificate,
            links.REVOKE: revocations.revoke,
        }
        self.answers = Counter(
            "orchid_acme_requests_total",
            "ACME requests, by page and by error (empty: none).",
            "page",
            "error",
        )

    async def __call__(self, state: RequestState) -> Response:
        page, error = "", ""
        try:
            target, page = self._target(state)
            return await self._page(state, target, page)
        except AcmeProblem as problem:
            error = problem.type
            problem.headers += self._nonce_header()
            raise
        finally:
            self.answers.count(page or "unknown", error)

    def _target(self, state: RequestState) -> tuple[RequestTarget, str]:
        path = state.target.path
        name, _, below = path.removeprefix(PREFIX).partition("/")
        page, *rest = below.split("/")
        authority = self._find(name) if len(path) <= LONGEST_PATH else None
        if authority is None:
            raise unknown("ACME server")
        if page not in self._handlers and page not in (links.DIRECTORY, links.NEW_NONCE):
            raise unknown("page")
        http = state.http
        url = self._base + http.path + (f"?{http.query}" if http.query else "")
        return RequestTarget(authority, Links(self._base, name), url, tuple(rest)), page

    async def _page(self, state: RequestState, target: RequestTarget, page: str) -> Response:
        if page == links.DIRECTORY:
            return self._directory(state, target)
        await asyncio.sleep(0)  # calls of the API need a task: see kernel/http/messages.py
        handler = self._handlers.get(page)
        try:
            await self._ensure_key()
            if handler is None:
                return self._nonce(state, target)
            reply = await handler(await self._requests.read(state, target))
        except (ApiError, CallFailed) as problem:
            raise _translated(problem) from None
        location = f"Location: {reply.location}\r\n".encode() if reply.location else b""
        headers = b"".join(
            (
                f"Content-Type: {reply.media}\r\n".encode() if reply.encoded() else b"",
                location,
                reply.headers,
                target.links.index(),
                self._nonce_header(),
            )
        )
        return Response(reply.code, head(state, headers, cache=NO_STORE), reply.encoded())

    def _directory(self, state: RequestState, target: RequestTarget) -> Response:
        require_reading(state, target)
        body = msgspec.json.encode(target.links.directory())
        headers = b"Content-Type: application/json\r\n"
        return Response(200, head(state, headers, cache=DIRECTORY_CACHE), body)

    def _nonce(self, state: RequestState, target: RequestTarget) -> Response:
        require_reading(state, target)
        nonce = self._nonce_header()
        if not nonce:
            raise problems.internal(UNAVAILABLE, b"Retry-After: 1\r\n")
        code = NO_CONTENT if state.http.method == "GET" else 200
        return Response(code, head(state, nonce + target.links.index(), cache=NO_STORE))

    def _nonce_header(self) -> bytes:
        nonce = self._nonces.issue()
        return f"Replay-Nonce: {nonce}\r\n".encode() if nonce else b""


def require_reading(state: RequestState, target: RequestTarget) -> None:
    if state.http.method not in READING or target.rest:
        raise malformed(
            "this resource needs GET", code=METHOD_NOT_ALLOWED, headers=b"Allow: GET, HEAD\r\n"
        )


def _translated(problem: ApiError | CallFailed) -> AcmeProblem:
    """An error of the API as a problem; the text of a failure is only in the log."""
    if isinstance(problem, TooManyRequests):
        text = "the server is busy: try again later"
        return AcmeProblem("rateLimited", text, headers=b"Retry-After: 5\r\n")
    log.warning("acme.failed", extra={"why": str(problem)})
    code = problem.code if isinstance(problem, ApiError) else UNAVAILABLE
    if code >= SERVER_ERROR and code != SERVER_ERROR:
        return problems.internal(UNAVAILABLE, b"Retry-After: 5\r\n")
    return problems.internal()
