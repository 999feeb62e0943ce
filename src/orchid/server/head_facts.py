"""What the headers of a request say: read once for all requests that have the same headers.

Clients send the same headers again and again, and the reader hands such requests the same memo
(server/sockets/reader.py). `facts_of` keeps there what it has read. Who the caller is does not
belong here: that is judged in every request (access/authenticators/union.py).
"""

from collections.abc import Mapping

from orchid.access.impersonation.impersonation import is_asked_for
from orchid.server.negotiate import JSON, LONGEST_ACCEPT, Form, media_type_of, wants_pretty
from orchid.server.sockets.messages import HttpRequest
from orchid.wire.options import default_manager

FACTS = "facts"


class HeadFacts:
    """The headers, read."""

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
        self.audit_id = _usable(headers.get("audit-id"))  # the client's own; else empty
        self.impersonates = is_asked_for(headers)
        agent = headers.get("user-agent", "")
        self.indented = wants_pretty(None, agent)  # unless the query says otherwise
        self.manager = default_manager(agent)  # unless the query names one
        content_type = headers.get("content-type", "")
        self.media = media_type_of(content_type) if content_type else JSON  # of the body
        # What was agreed on, by what there is to choose from: a few at most.
        self.forms: dict[tuple[tuple[str, ...], bool], Form] = {}


def facts_of(http: HttpRequest) -> HeadFacts:
    """The facts about a request's headers; read now if they come for the first time."""
    found: HeadFacts | None = http.head_memo.get(FACTS)
    if found is None:
        found = http.head_memo[FACTS] = HeadFacts(http.headers)
    return found


def _usable(audit_id: str | None) -> str:
    usable = audit_id and audit_id.isprintable() and audit_id.isascii()
    return audit_id if audit_id and usable else ""
