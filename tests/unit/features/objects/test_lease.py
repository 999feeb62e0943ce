"""Live servers: by their Leases, and by our own clock."""

import pytest

from orchid.features.objects.kinds.lease import SERVER_LASTS, LiveServers, opens_annotation
from orchid.kernel.wire.naming import ORCH

NAME = "orch-server-a"
OPENS = {opens_annotation(ORCH): "core/secrets/key1"}


class Hand:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def servers(clock: Hand) -> LiveServers:
    return LiveServers(ORCH, clock)


def test_a_lease_that_was_only_found_may_be_of_a_dead_server(servers: LiveServers) -> None:
    """It counts as live, and is not renewed; the second version shows that its server lives."""
    servers.renewed(NAME, "1", OPENS)
    at_first = servers.live()[NAME]
    servers.renewed(NAME, "2", OPENS)

    assert at_first.opens == {"core/secrets/key1"}
    assert not at_first.is_renewed
    assert servers.live()[NAME].is_renewed


def test_a_dead_server_counts_for_its_time(clock: Hand, servers: LiveServers) -> None:
    """Measured from the last version of its Lease."""
    servers.renewed(NAME, "1", OPENS)
    clock.now += SERVER_LASTS
    at_the_end = set(servers.live())
    clock.now += 0.1

    assert at_the_end == {NAME}
    assert servers.live() == {}


@pytest.mark.parametrize("is_cleared", [True, False])
def test_a_lease_that_is_read_again_is_not_renewed(
    clock: Hand, servers: LiveServers, is_cleared: bool
) -> None:
    """A watch that begins again lists all Leases: a dead server does not live again."""
    servers.renewed(NAME, "1", OPENS)
    clock.now += SERVER_LASTS + 1
    if is_cleared:
        servers.clear()
    servers.renewed(NAME, "1", OPENS)

    assert servers.live() == {}


def test_a_lease_is_renewed_also_across_a_gap_of_the_watch(servers: LiveServers) -> None:
    """Its version changed meanwhile."""
    servers.renewed(NAME, "1", OPENS)
    servers.clear()
    servers.renewed(NAME, "2", OPENS)

    assert servers.live()[NAME].is_renewed


def test_a_lease_that_is_gone_counts_no_more(servers: LiveServers) -> None:
    """Deleted in our sight, or missing when all were read again."""
    servers.renewed(NAME, "1", OPENS)
    servers.renewed("orch-server-b", "1", OPENS)
    servers.ended(NAME)
    left = set(servers.live())
    servers.clear()

    assert left == {"orch-server-b"}
    assert servers.live() == {}
