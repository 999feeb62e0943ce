"""Errors become responses: every response to a request that was read and then failed is built here.

    refused  an error of a step of the chain (`FORESEEN`), usually as a Status
    panicked any other exception in the chain: a bare 500, with the details in the log
    failed   an exception that left the handler of a listener: the client's format is unknown
    TIMEOUT  a request that took too long; the listener sends it while the handler still runs

docs/architecture.md lists the few other files, and tests/unit/kernel/server/test_failures.py
enforces the list.
"""

import asyncio
import logging
from typing import Final

from orchid.kernel.base.telemetry import failure_story
from orchid.kernel.credentials.refusals import is_panic
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.http.messages import HttpRequest, Response
from orchid.kernel.server.authorize import AuthorizerFailed
from orchid.kernel.server.fairness import Overloaded
from orchid.kernel.server.negotiate import RAW, form_of
from orchid.kernel.server.parse import UnreadableTarget
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import NOSNIFF, PLAIN, head, status_response, text
from orchid.kernel.wire.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NoSuchRoute,
    Unauthorized,
)
from orchid.kernel.wire.naming import Naming

log = logging.getLogger(__name__)

TOO_MANY: Final = "Too many requests, please try again later.\n"
PANIC: Final = "This request failed inside the server. Look in its log for details.\n"
TIMEOUT: Final = Response(
    504,
    PLAIN,
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n',
)


class NoSuchPage(Exception):
    """A path without a resource or page: 404 in plain text, as in Kubernetes, or a reason."""


class BareRefusal(Exception):
    """A refusal by the rules of another protocol than the API: of HTTP, or of OAuth."""

    def __init__(
        self,
        status: int,
        headers: bytes = b"",
        body: bytes = b"",
        *,
        cache: bytes = b"no-cache, private",
    ) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body
        self.cache = cache


FORESEEN: Final = (
    ApiError, Rejected, Overloaded, AuthorizerFailed, UnreadableTarget, NoSuchPage, BareRefusal,
)  # fmt: skip


def refused(state: RequestState, error: Exception, naming: Naming) -> Response:
    """The response to an error of a step of the chain."""
    if isinstance(error, Forbidden | NoSuchRoute | NoSuchPage):
        _warn_of_naming(state, naming)
    if isinstance(error, Rejected):
        log.debug("request.rejected", extra={"why": type(error).__name__})
        error = Unauthorized()
    if isinstance(error, ApiError):
        return _status(state, error)
    if isinstance(error, Overloaded):
        state.extra_headers += b"Retry-After: 1\r\n"
        return text(state, 429, TOO_MANY)
    if isinstance(error, AuthorizerFailed):
        return text(state, 500, f'Internal Server Error: "{state.http.target}": {error}\n')
    if isinstance(error, NoSuchPage):
        return text(state, 404, f"{str(error) or '404 page not found'}\n")
    if isinstance(error, BareRefusal):
        return Response(error.status, head(state, error.headers, cache=error.cache), error.body)
    return text(state, 400, f'Bad Request: "{state.http.path}" names no resource\n')


def panicked(state: RequestState, problem: BaseException) -> Response:
    """The response to an unexpected exception; SystemExit and the like are raised again.

    The panic of a library ends its request, like any other failure.
    """
    if not isinstance(problem, Exception) and not is_panic(type(problem)):
        raise problem
    extra = {"audit_id": state.audit_id, "story": failure_story(problem)}
    log.error("request.failed", extra=extra)
    state.panicked = True
    return text(state, 500, PANIC)


def failed(http: HttpRequest, problem: BaseException) -> Response:
    """The response to an exception that left a handler."""
    if isinstance(problem, MethodNotAllowed):
        return Response(405, PLAIN + b"Allow: GET, HEAD\r\n", f"{problem}\n".encode())
    if isinstance(problem, ApiError):  # from revocation lists over plain HTTP
        return Response(problem.code, PLAIN, f"{problem}\n".encode())
    if isinstance(problem, asyncio.CancelledError):
        # The server stops in the middle of the request: its outcome is unknown.
        return Response(503, PLAIN, b"the server is stopping\n")
    log.error("request.failed", extra={"story": failure_story(problem)})
    return Response(500, PLAIN, b"internal error\n")


def _status(state: RequestState, error: ApiError) -> Response:
    """A failure as a Status. Transforms do not apply; without an acceptable format it is sent
    anyway.
    """
    form = form_of(state.accept, table=False, transforms=False) or RAW
    if error.details and error.details.retry_after_seconds:
        state.extra_headers += b"Retry-After: %d\r\n" % error.details.retry_after_seconds
    if _is_denial(state, error):
        state.extra_headers += NOSNIFF
    return status_response(state, error.code, error.status(), form)


def _warn_of_naming(state: RequestState, naming: Naming) -> None:
    """Clients of the other naming get 403 or 404, which does not explain the reason."""
    asked = state.target.group
    if group := naming.instead_of(asked):
        state.warnings.append(
            f"this server was started with --naming {naming.name} and serves {group}, not {asked}"
        )


def _is_denial(state: RequestState, error: ApiError) -> bool:
    """Whether impersonation or authorization refused an authenticated caller."""
    if state.caller is None or (state.decision and state.decision.allowed):
        return False
    return isinstance(error, BadRequest | Forbidden)
