"""The policies that decide: all of them or none, as they are now, and how one is paused."""

from typing import Any

import pytest

from orchid.features.approving.controllers.follow_policies import PolicyFollower
from orchid.features.approving.kinds.approval_policy import ApprovalPolicy, compiled
from orchid.kernel.client.client import WatchedChange
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import MODIFIED, Conflict, ErrorSubject, NotFound
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import NOW

ABOUT = ErrorSubject("", "approvalpolicies", "a")
READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "Compiled"}]}


def policy(name: str = "a", version: str = "1", status: Any = READY) -> ApprovalPolicy:
    meta = {"name": name, "resourceVersion": version}
    spec = {"signerNames": ["example.com/web"], "requesters": {"users": ["alice"]}}
    return convert({"metadata": meta, "spec": spec, "status": status}, ApprovalPolicy)


def follower(*stored: ApprovalPolicy) -> tuple[PolicyFollower, SmallClient]:
    client: Any = SmallClient(*stored)
    return PolicyFollower(client, FakeClock(NOW)), client


async def follow(made: PolicyFollower, client: SmallClient, *batches: Any) -> int:
    """Follow these batches; returns how often a change was reported."""
    reported: list[None] = []
    client.batches = list(batches)
    await made.follow(lambda: reported.append(None))
    return len(reported)


def added(*found: ApprovalPolicy) -> list[WatchedChange[Any]]:
    return [change(one, "ADDED") for one in found]


def names(made: PolicyFollower) -> set[tuple[str, str]]:
    return {(one.name, one.revision) for one in made.loaded}


async def test_nothing_is_decided_with_a_part_of_the_policies() -> None:
    made, client = follower()

    await follow(made, client, added(policy("a")), added(policy("b")))

    with pytest.raises(TryAgain):
        _ = made.loaded
    assert made.any
    assert not made.all_loaded.is_set()


async def test_all_are_loaded_after_the_last_page() -> None:
    """The first list is no change."""
    made, client = follower()

    changes = await follow(made, client, added(policy("a")), added(policy("b")), [])

    assert names(made) == {("a", "1"), ("b", "1")}
    assert made.all_loaded.is_set()
    assert changes == 0


async def test_a_single_policy_is_one() -> None:
    made, client = follower()

    await follow(made, client, added(policy()), [])

    assert made.any


async def test_without_policies_there_is_none() -> None:
    made, client = follower()

    await follow(made, client, [])

    assert not made.any


async def test_each_change_is_reported_when_it_counts() -> None:
    made, client = follower()

    changes = await follow(
        made, client, added(policy("a"), policy("b")), [], [change(policy("a", "2"))],
        [change(policy("b"), "DELETED")],
    )  # fmt: skip

    assert names(made) == {("a", "2")}
    assert changes == 2


async def test_after_a_new_start_all_policies_are_loaded_again() -> None:
    made, client = follower()
    await follow(made, client, added(policy("a")), [])

    made.forget()

    assert made.any
    assert not made.all_loaded.is_set()
    with pytest.raises(TryAgain):
        _ = made.loaded


async def test_a_list_that_is_read_again_has_nothing_of_the_list_before() -> None:
    """A policy may have been deleted while nothing was followed."""
    made, client = follower()
    await follow(made, client, added(policy("a"), policy("b")), [])

    await follow(made, client, added(policy("b", "2")), [])

    assert names(made) == {("b", "2")}


@pytest.mark.parametrize(
    ("stored", "current"),
    [((policy(),), True), ((policy(version="2"),), False), ((policy("b"),), False), ((), False)],
)
async def test_a_policy_is_current_in_its_version_alone(stored: Any, current: bool) -> None:
    made, _ = follower(*stored)

    assert await made.is_current(compiled(policy(), Compiler())) is current


@pytest.mark.parametrize(
    ("stored", "current"),
    [
        (("a", "b"), True),
        (("a",), False),
        (("a", "b", "c"), False),
        (("a", "c"), False),
        ((), False),
    ],
)
async def test_all_are_current_if_none_came_went_or_changed(
    stored: tuple[str, ...], current: bool
) -> None:
    made, client = follower(*map(policy, stored))
    await follow(made, client, added(policy("a"), policy("b")), [])

    assert await made.all_current() is current


async def test_of_two_policies_each_must_be_current() -> None:
    made, client = follower(policy("a"), policy("b", "2"))
    await follow(made, client, added(policy("a"), policy("b")), [])

    assert not await made.all_current()


# -- the status -----------------------------------------------------------------------------------


async def test_a_policy_that_exceeded_its_limits_is_paused() -> None:
    made, client = follower(policy(), policy("b"))
    slow = compiled(policy(), Compiler())
    slow.exceeded = "too slow"

    await made.pause(slow)

    (paused,) = client.written("status")
    (condition,) = paused.status.conditions
    assert (paused.name, condition.type, condition.status) == ("a", "Ready", "False")
    assert "too slow" in condition.message
    assert condition.last_transition_time == NOW


@pytest.mark.parametrize("stored", [(), (policy(version="2"),), (policy("b"),)])
async def test_a_policy_that_has_changed_is_not_paused(stored: tuple[ApprovalPolicy, ...]) -> None:
    """Its new rules have exceeded nothing."""
    made, client = follower(*stored)

    await made.pause(compiled(policy(), Compiler()))

    assert client.writes == []


@pytest.mark.parametrize("refusal", [Conflict(ABOUT, MODIFIED), NotFound(ABOUT)])
async def test_a_change_in_the_last_moment_is_no_failure(refusal: Any) -> None:
    """Neither while one is paused, nor when one cannot be compiled."""
    made, client = follower(policy())
    client.refuses["status"] = refusal

    await made.pause(compiled(policy(), Compiler()))
    await follow(made, client, added(broken()), [])

    assert client.writes == []


def broken(status: Any = READY) -> ApprovalPolicy:
    """A policy that an earlier version accepted."""
    found = policy(status=status)
    rules = convert({"spec": {"rules": [{"expression": "1 +"}]}}, ApprovalPolicy).spec.rules
    return replace(found, spec=replace(found.spec, rules=rules))


async def test_a_stored_policy_that_cannot_be_compiled_is_not_ready() -> None:
    """It stays in the index, where it decides nothing."""
    made, client = follower()

    await follow(made, client, added(broken(), policy("b")), [])

    (written,) = client.written("status")
    assert (written.name, written.is_ready) == ("a", False)
    assert names(made) == {("a", "1"), ("b", "1")}


async def test_it_is_ready_when_it_can_be_compiled_again() -> None:
    made, client = follower()
    await follow(made, client, added(broken()), [])
    (unready,) = client.written("status")

    await follow(made, client, added(replace(policy(), status=unready.status)), [])

    assert client.written("status")[1].is_ready
