"""Exchanges for tests of single pages: a request as the chain hands it on."""

from datetime import UTC, datetime

from orchid.kernel.engine.request import Request
from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.server.memory.head_facts import facts_of
from orchid.kernel.server.memory.paths import PathCache
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.user import ANONYMOUS, UserInfo

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def state_of(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    user: str = ANONYMOUS,
    too_large: bool = False,
    **headers: str,
) -> RequestState:
    """An exchange with its path parsed and its user known; `_` in a header's name means `-`."""
    path, _, query = target.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    peer = Peer("10.0.0.9:1")
    http = HttpRequest(method, target, path, query, named, peer, body=body, too_large=too_large)
    state = RequestState(http, facts_of(http), "the-id", NOW)
    state.path, state.query = PathCache().parse(http)
    state.target = state.path.target
    request = Request(target=state.target, user=UserInfo(username=user), now=NOW)
    request.audit_annotations = {}
    state.request = request
    return state
