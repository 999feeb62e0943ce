"""Callers in the same process: known by the object that they present, and by nothing else."""

from orchid.kernel.access.authenticators.in_process import InProcessCallers
from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.wire.user import UserInfo


def presented(peer: Peer) -> HttpRequest:
    return HttpRequest("GET", "/", "/", "", {}, peer)


async def test_introduced_peer_is_its_user() -> None:
    """At every request, without any credential."""
    callers, peer = InProcessCallers(), Peer("")
    callers.introduce(peer, UserInfo(username="somebody"))

    found = await callers.authenticate(presented(peer))

    assert found is not None
    assert found.user.username == "somebody"


async def test_peer_that_looks_the_same_is_nobody() -> None:
    """Equal is not enough: it has to be the very object."""
    callers, peer = InProcessCallers(), Peer("")
    callers.introduce(peer, UserInfo(username="somebody"))

    assert await callers.authenticate(presented(Peer(""))) is None


async def test_account_has_the_groups_of_service_accounts() -> None:
    """Bindings to the groups of accounts apply to controllers too."""
    callers, peer = InProcessCallers(), Peer("")
    callers.introduce_account(peer, "home", "worker")

    found = await callers.authenticate(presented(peer))

    assert found is not None
    assert found.user.username == "system:serviceaccount:home:worker"
    assert found.user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:home",
        "system:authenticated",
    )
