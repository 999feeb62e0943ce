"""Values derived from the headers of a request, cached for requests with the same headers.

All requests that share a cached head (head_cache.py) share one `HeadMemo`; any other request has
its own. `facts_of` returns the decoded headers. Authentication sets the caller
(access/authenticators/union.py), and checks in every request that it is still valid.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from orchid.access.impersonation.impersonation import is_asked_for
from orchid.engine.interfaces import Authenticated
from orchid.server.negotiate import JSON, LONGEST_ACCEPT, Form, media_type_of, wants_pretty
from orchid.wire.options import default_manager


class HeadFacts:
    """Values of the headers, decoded."""

    __slots__ = (
        "accept",
        "accepts_gzip",
        "audit_id",
        "forms",
        "impersonates",
        "indented",
        "manager",
        "media",
    )

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.accept = headers.get("accept", "")[:LONGEST_ACCEPT]
        encodings = headers.get("accept-encoding", "").split(",")
        self.accepts_gzip = "gzip" in [token.strip() for token in encodings]
        self.audit_id = _usable(headers.get("audit-id"))  # from the client, or empty
        self.impersonates = is_asked_for(headers)
        agent = headers.get("user-agent", "")
        self.indented = wants_pretty(None, agent)  # the query may override it
        self.manager = default_manager(agent)  # the query may override it
        content_type = headers.get("content-type", "")
        self.media = media_type_of(content_type) if content_type else JSON  # of the body
        # Negotiated forms, by the media types offered and whether there is a Table: a few at most.
        self.forms: dict[tuple[tuple[str, ...], bool], Form] = {}


class HeadMemo(msgspec.Struct, eq=False):
    """Cache beside the headers of a request."""

    facts: HeadFacts | None = None
    caller: Authenticated | None = None

    __repr__ = object.__repr__  # shows no field: the caller is in it


class HasHead(Protocol):
    """The part of a request that is read here."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def memo(self) -> HeadMemo: ...


def facts_of(request: HasHead) -> HeadFacts:
    """The decoded headers of a request; computed the first time."""
    memo = request.memo
    if memo.facts is None:
        memo.facts = HeadFacts(request.headers)
    return memo.facts


def _usable(audit_id: str | None) -> str:
    usable = audit_id and audit_id.isprintable() and audit_id.isascii()
    return audit_id if audit_id and usable else ""
