"""Clients that send the same headers share their values, which are always those of the request."""

from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.access.impersonation.impersonation import is_asked_for
from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.server.memory.head_facts import LONGEST_SHARED, ClientFacts, facts_of

VALUES = st.sampled_from(
    ["", "application/json", "gzip, br", "curl/8", "kubectl/v1", "a" * (LONGEST_SHARED + 1)]
)
NAMES = ("accept", "accept-encoding", "user-agent", "content-type")
OTHERS = st.sampled_from(["x-request-id", "audit-id", "impersonate-user", "traceparent"])


@given(
    st.lists(
        st.tuples(
            st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, VALUES)),
            st.dictionaries(OTHERS, st.sampled_from(["1", "jane", "\x7f"])),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_shared_values_are_those_of_the_request(
    heads: list[tuple[dict[str, str], dict[str, str]]],
) -> None:
    """Whatever came before, and whatever other headers a request has."""
    for client, others in heads:
        headers = client | others
        http = HttpRequest("GET", "/", "/", "", headers, Peer("127.0.0.1:1"))

        facts, alone = facts_of(http), ClientFacts(*(client.get(name, "") for name in NAMES))

        for name in ("accept", "accepts_gzip", "indented", "manager", "media"):
            assert getattr(facts.client, name) == getattr(alone, name)
        assert facts.impersonates == is_asked_for(headers)
        assert facts.audit_id == (others.get("audit-id", "").replace("\x7f", ""))
