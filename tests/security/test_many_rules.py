"""The attack: a user who holds thousands of rules, and grants thousands.

A user who may write roles in a namespace can hold any number of rules. Comparing 3,400 granted
rules with 68,000 held ones took minutes on the event loop, listing them 0.2 s, and searching them
for one request 0.1 s, each time that a role had changed.
"""

import threading
from typing import Any

import pytest

from orchid.features.rights import rules
from orchid.features.rights.authorizers import rbac
from orchid.features.rights.authorizers.rbac import MOST_LISTED
from orchid.kernel.wire.policy_rules import PolicyRule
from tests.api.world import BOB, Api
from tests.security.threads import threads_of

GROUP = "rbac.authorization.orch.io"
RBAC = f"/apis/{GROUP}/v1"
LISTED = "/apis/authorization.orch.io/v1/selfsubjectrulesreviews"


def rule(number: int, verb: str = "get") -> dict[str, Any]:
    return {"apiGroups": [f"g{number}"], "resources": ["things"], "verbs": [verb]}


async def hold(server: Api, name: str, *held: dict[str, Any]) -> None:
    """Bob holds a role with these rules."""
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": GROUP, "kind": "User", "name": "bob"}
    await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(held)})
    await server.make(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    )


async def test_rules_are_compared_beside_the_event_loop(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held rules are granted and others refused, as ever; but not on the loop."""
    threads = threads_of(monkeypatch, rbac, "missing")
    await hold(server, "writes", {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["create"]})
    await hold(server, "many", *(rule(number) for number in range(100)))
    granted = {"metadata": {"name": "a"}, "rules": [rule(number) for number in range(50)]}
    refused = {"metadata": {"name": "b"}, "rules": [rule(n, "delete") for n in range(50)]}

    answers = [
        await server.call("POST", f"{RBAC}/clusterroles", role, token=BOB)
        for role in (granted, refused)
    ]

    assert [answer.status for answer in answers] == [201, 403]
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_comparing_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that were not compared count as not held; a holder of everything is found first."""
    compared = 0
    covers = rules.covers

    def counting(own: PolicyRule, wanted: PolicyRule) -> bool:
        nonlocal compared
        compared += 1
        return covers(own, wanted)

    monkeypatch.setattr(rules, "covers", counting)
    monkeypatch.setattr(rules, "MOST_COMPARED", 1000)
    held = [PolicyRule(("get",), (f"g{number}",), ("things",)) for number in range(300)]
    everything = PolicyRule(("*",), ("*",), ("*",))

    lacking = rules.missing(held, held)
    few = compared

    assert few == 1000
    assert 0 < len(lacking) < len(held)
    assert rules.missing([*held, everything], held) == ()
    assert compared == few + len(held)


async def test_many_rules_are_looked_through_beside_the_event_loop(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request by somebody who holds thousands is decided as ever; but not on the loop."""
    threads = threads_of(monkeypatch, rbac, "resource_grant")
    await hold(server, "many", *(rule(number) for number in range(3000)))
    await hold(server, "reads", {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]})

    answers = [
        await server.call("GET", f"/api/v1/namespaces/default/{plural}", token=BOB)
        for plural in ("pods", "secrets")
    ]

    assert [answer.status for answer in answers] == [200, 403]
    assert threads
    assert threading.main_thread() not in threads


async def test_the_rules_of_one_user_are_listed_up_to_a_limit(server: Api) -> None:
    """And the answer says that it is not complete."""
    for name in ("a", "b"):
        await hold(server, name, *(rule(number) for number in range(3000)))

    answer = await server.make(LISTED, {"spec": {"namespace": "default"}}, token=BOB)

    assert len(answer["status"]["resourceRules"]) == MOST_LISTED
    assert answer["status"]["incomplete"] is True
