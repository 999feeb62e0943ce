"""Fairness: which level a request belongs to, and how levels share their seats."""

import asyncio

import pytest

from orchid.kernel.engine.request import Target
from orchid.kernel.server import fairness
from orchid.kernel.server.fairness import Fairness
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import AUTHENTICATED, UNAUTHENTICATED, UserInfo

LIST = Target("list", "/api/v1/pods", is_resource=True, resource="pods")
LEASE = Target("update", "/x", is_resource=True, resource="leases")
PROBE = Target("get", "/livez")
ACCOUNTS = "system:serviceaccounts"
SYSTEM = f"{ACCOUNTS}:{ORCH.system_namespace}"


def user(name: str, *groups: str) -> UserInfo:
    return UserInfo(username=name, groups=groups)


@pytest.mark.parametrize(
    ("who", "target", "level"),
    [
        (user("root", "system:masters", AUTHENTICATED), LIST, "exempt"),
        (user("anyone", UNAUTHENTICATED), PROBE, "exempt"),
        (user("controller", ACCOUNTS, SYSTEM, AUTHENTICATED), LEASE, "leader-election"),
        (user("controller", ACCOUNTS, SYSTEM, AUTHENTICATED), LIST, "workload-high"),
        (user("robot", ACCOUNTS, AUTHENTICATED), LIST, "workload-low"),
        (user("robot", ACCOUNTS, AUTHENTICATED), LEASE, "workload-low"),
        (user("system:node:a", "system:nodes", AUTHENTICATED), LIST, "system"),
        (user("jane", AUTHENTICATED), LIST, "global-default"),
        (user("anyone", UNAUTHENTICATED), LIST, "global-default"),
        (user("odd"), LIST, "catch-all"),
    ],
)
def test_requests_belong_to_levels_as_in_the_reference(
    who: UserInfo, target: Target, level: str
) -> None:
    """By group and resource, the first schema that matches."""
    seats = Fairness(ORCH, 400, 200)

    assert seats.flow_of(who, target).level.name == level
    assert seats.flow_of(who, target) is seats.flow_of(who, target)


def test_the_same_name_with_other_groups_is_another_flow() -> None:
    """An administrator's name without his groups gives no priority."""
    seats = Fairness(ORCH, 400, 200)
    seats.flow_of(user("root", "system:masters"), LIST)

    assert seats.flow_of(user("root", AUTHENTICATED), LIST).level.name == "global-default"


def entered(seats: Fairness, name: str, *groups: str) -> int:
    """How many requests of a user get a seat at once."""
    flow = seats.flow_of(user(name, *groups), LIST)
    count = 0
    while flow.enter():
        count += 1
    return count


def test_nobody_gets_all_seats_and_no_level_is_starved() -> None:
    """Users of one level may fill it and what others lend; the rest keep seats of their own."""
    seats = Fairness(ORCH, 400, 200)
    one = entered(seats, "greedy", ACCOUNTS, AUTHENTICATED)
    crowd = sum(entered(seats, f"robot-{n}", ACCOUNTS, AUTHENTICATED) for n in range(50))

    human = entered(seats, "jane", AUTHENTICATED)
    node = entered(seats, "system:node:a", "system:nodes", AUTHENTICATED)

    assert one < 250
    assert one + crowd < 500
    assert human > 20
    assert node > 50


def test_masters_have_no_limit_and_take_no_seat_from_others() -> None:
    """However many they ask, the others have as many as before."""
    alone = entered(Fairness(ORCH, 400, 200), "jane", AUTHENTICATED)
    seats = Fairness(ORCH, 400, 200)
    masters = seats.flow_of(user("root", "system:masters"), LIST)

    assert all(masters.enter() for _ in range(10_000))
    assert entered(seats, "jane", AUTHENTICATED) == alone


def test_the_last_seat_is_given_and_no_more() -> None:
    """At the limit itself a request is let in, beyond it it is not."""
    seats = Fairness(ORCH, 1, 1)
    level = seats.levels["catch-all"]
    flows = [seats.flow_of(user(f"odd-{n}"), LIST) for n in range(10)]
    count = sum(flow.enter() for flow in flows)

    assert count == level.own + level.pool.size
    flows[0].leave()
    assert flows[-1].enter()


def test_flows_that_are_idle_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invented user names do not fill the memory; users with requests in flight are kept."""
    monkeypatch.setattr(fairness, "MOST_FLOWS", 10)
    seats = Fairness(ORCH, 400, 200)
    busy = seats.flow_of(user("busy", AUTHENTICATED), LIST)
    busy.enter()
    for number in range(100):
        seats.flow_of(user(f"somebody {number}", AUTHENTICATED), LIST)

    assert len(seats._flows) <= 10
    assert seats.flow_of(user("busy", AUTHENTICATED), LIST) is busy


def test_users_have_few_seats_while_the_event_loop_is_late() -> None:
    """A late loop has no time for many requests of one; masters are not held back."""
    seats = Fairness(ORCH, 400, 200)
    calm = entered(Fairness(ORCH, 400, 200), "jane", AUTHENTICATED)
    seats.feel_lag(0.2)
    seats.feel_lag(0.03)  # better, but not well

    crowded = entered(seats, "jane", AUTHENTICATED)
    masters = seats.flow_of(user("root", "system:masters"), LIST)

    assert crowded == fairness.MOST_PER_FLOW_LATE < calm
    assert all(masters.enter() for _ in range(100))
    seats.feel_lag(0.001)
    assert crowded + entered(seats, "jane", AUTHENTICATED) == calm


async def test_who_waited_goes_on_when_the_loop_is_on_time_again() -> None:
    """Nobody has to leave first."""
    seats = Fairness(ORCH, 400, 200)
    seats.feel_lag(0.2)
    flow = seats.flow_of(user("jane", AUTHENTICATED), LIST)
    while flow.enter():
        pass
    waiting = asyncio.ensure_future(flow.wait())
    await asyncio.sleep(0)
    held_back = waiting.done()
    seats.feel_lag(0.0)
    await waiting

    assert not held_back
    assert flow.taken == fairness.MOST_PER_FLOW_LATE + 1


async def test_a_seat_given_to_a_request_that_is_cancelled_is_not_lost() -> None:
    """It was cancelled in the very turn of the loop in which it got the seat."""
    seats = Fairness(ORCH, 1, 1)
    flow = seats.flow_of(user("jane", AUTHENTICATED), LIST)
    level = flow.level
    taken = entered(seats, "jane", AUTHENTICATED)
    waiting = asyncio.create_task(flow.wait())
    await asyncio.sleep(0)

    flow.leave()  # hands the seat on
    assert flow.taken == taken
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert flow.taken == level.taken == taken - 1
    assert flow.enter()


def test_anonymous_callers_of_some_paths_have_a_flow_for_each_address() -> None:
    """Their credential is in the body: a flood from one address does not delay the others."""
    seats = Fairness(ORCH, 10, 10, by_address=("/oauth2/introspect",))
    page, other = Target("post", "/oauth2/introspect"), Target("get", "/version")
    anyone, known = user("system:anonymous", UNAUTHENTICATED), user("jane", AUTHENTICATED)

    one = seats.flow_of(anyone, page, "192.0.2.1:1")

    assert seats.flow_of(anyone, page, "192.0.2.1:2") is one
    assert seats.flow_of(anyone, page, "192.0.2.2:1") is not one
    assert seats.flow_of(anyone, other, "192.0.2.1:1") is not one
    assert seats.flow_of(anyone, other, "192.0.2.1:1") is seats.flow_of(
        anyone, other, "198.51.100.1:1"
    )
    assert seats.flow_of(known, page, "192.0.2.1:1") is seats.flow_of(known, page, "192.0.2.2:1")


def test_a_request_with_the_work_of_several_has_their_seats() -> None:
    """Other requests of its user wait for them; all are free in the end."""
    seats = Fairness(ORCH, 10, 10)
    flow = seats.flow_of(user("jane", AUTHENTICATED), LIST)
    level = flow.level
    assert flow.enter()

    flow.occupy(40)
    full = flow.enter()
    flow.vacate(40)
    flow.leave()

    assert full is False
    assert (flow.taken, level.taken, level.borrowed, level.pool.taken) == (0, 0, 0, 0)
    assert flow.enter()
