"""Exchanges for tests of single pages: a request as the chain hands it on."""

from datetime import UTC, datetime

from orchid.kernel.engine.request import Request
from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.server.exchange import Exchange
from orchid.kernel.server.memory.head_facts import facts_of
from orchid.kernel.server.memory.paths import PathCache
from orchid.kernel.wire.user import ANONYMOUS, UserInfo

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def exchange_of(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    user: str = ANONYMOUS,
    too_large: bool = False,
    **headers: str,
) -> Exchange:
    """An exchange with its path parsed and its user known; `_` in a header's name means `-`."""
    path, _, query = target.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    peer = Peer("10.0.0.9:1")
    http = HttpRequest(method, target, path, query, named, peer, body=body, too_large=too_large)
    exchange = Exchange(http, facts_of(http), "the-id", NOW)
    exchange.path, exchange.query = PathCache().parse(http)
    exchange.target = exchange.path.target
    request = Request(target=exchange.target, user=UserInfo(username=user), now=NOW)
    request.audit_annotations = {}
    exchange.request = request
    return exchange
