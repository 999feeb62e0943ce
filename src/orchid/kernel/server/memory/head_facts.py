"""Values derived from the headers of a request, cached for requests with the same headers.

All requests that share a cached head (kernel/http/reading/head_cache.py) share one `HeadMemo`; any
other request has its own. `facts_of` returns the decoded headers. Those that describe a client
(Accept, User-Agent and the like) are few in number, and are shared by all connections: proxies and
tracing add headers that differ in each request, and leave these as they are. Authentication sets
the caller of a memo (kernel/access/authenticators/union.py), and checks in every request that it is
still valid.
"""

from functools import lru_cache
from typing import Final

import msgspec

from orchid.kernel.access.impersonation.impersonation import is_asked_for
from orchid.kernel.http.messages import HttpRequest
from orchid.kernel.server.negotiate import JSON, LONGEST_ACCEPT, Form, media_type_of, wants_pretty
from orchid.kernel.wire.options import default_manager

SHARED_FACTS: Final = 256  # clients with other headers
LONGEST_SHARED: Final = 1024  # characters of such headers


class ClientFacts:
    """Values of the headers that describe a client, decoded; shared by all requests with them."""

    __slots__ = ("accept", "accepts_gzip", "forms", "indented", "manager", "media")

    def __init__(self, accept: str, encodings: str, agent: str, content_type: str) -> None:
        self.accept = accept[:LONGEST_ACCEPT]
        self.accepts_gzip = "gzip" in [token.strip() for token in encodings.split(",")]
        self.indented = wants_pretty(None, agent)  # the query may override it
        self.manager = default_manager(agent)  # the query may override it
        self.media = media_type_of(content_type) if content_type else JSON  # of the body
        # Negotiated forms, by the media types offered and whether there is a Table: a few at most.
        self.forms: dict[tuple[tuple[str, ...], bool], Form] = {}


_shared_clients: Final = lru_cache(SHARED_FACTS)(ClientFacts)


class HeadFacts(msgspec.Struct, eq=False):
    """Values of all headers of a request."""

    client: ClientFacts
    audit_id: str  # from the client, or empty
    impersonates: bool


def facts_of(request: HttpRequest) -> HeadFacts:
    """The decoded headers of a request; they are in its memo from now on."""
    memo, get = request.memo, request.headers.get
    if memo.facts is None:
        values = get("accept", ""), get("accept-encoding", ""), get("user-agent", "")
        content_type = get("content-type", "")
        is_short = len("".join(values)) + len(content_type) <= LONGEST_SHARED
        client = (_shared_clients if is_short else ClientFacts)(*values, content_type)
        audit_id, impersonates = _usable(get("audit-id")), is_asked_for(request.headers)
        memo.facts = HeadFacts(client, audit_id, impersonates)
    facts: HeadFacts = memo.facts
    return facts


def _usable(audit_id: str | None) -> str:
    usable = audit_id and audit_id.isprintable() and audit_id.isascii()
    return audit_id if audit_id and usable else ""
