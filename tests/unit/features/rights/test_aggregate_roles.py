"""Aggregated roles: the rules of all roles that are selected now, and none before all are known."""

from typing import Any

import pytest

from orchid.features.rights.controllers.aggregate_roles import AggregateRoles
from orchid.features.rights.kinds.role import ClusterRole
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import ErrorSubject, NotFound
from tests.unit.features.small_client import SmallClient, change


def rule(verb: str) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}


def role(name: str, *verbs: str, version: str = "1", **labels: str) -> ClusterRole:
    meta = {"name": name, "labels": labels, "resourceVersion": version}
    return convert({"metadata": meta, "rules": [rule(verb) for verb in verbs]}, ClusterRole)


def aggregated(*verbs: str, name: str = "all", version: str = "1") -> ClusterRole:
    selector = {"matchLabels": {"team": "a"}}
    found = {"metadata": {"name": name, "resourceVersion": version}}
    found |= {"rules": [rule(verb) for verb in verbs]}
    return convert({**found, "aggregationRule": {"clusterRoleSelectors": [selector]}}, ClusterRole)


async def aggregating(*found: ClusterRole) -> tuple[AggregateRoles, SmallClient]:
    client: Any = SmallClient(*found)
    made = AggregateRoles(client)
    made.starting()
    for one in found:
        made.take(change(one, "LISTED"))
    await made.all_listed()
    return made, client


def verbs(found: ClusterRole) -> list[str]:
    return [verb for one in found.rules or () for verb in one.verbs]


def queued(made: AggregateRoles) -> set[str]:
    return {name for _, name in made.queue._waiting}


async def test_an_aggregated_role_has_the_rules_of_those_that_are_selected() -> None:
    """In the order of their names; a role without the label is not among them."""
    made, client = await aggregating(
        role("b", "list", team="a"), role("a", "get", team="a"), role("c", "delete", team="b"),
        aggregated(),
    )  # fmt: skip

    await made.reconcile(aggregated())

    assert [verbs(one) for one in client.written("update")] == [["get", "list"]]


async def test_a_role_that_is_right_is_not_written() -> None:
    made, client = await aggregating(role("a", "get", team="a"), aggregated("get"))

    await made.reconcile(aggregated("get"))

    assert client.writes == []


async def test_a_right_that_somebody_added_is_removed() -> None:
    """Rules are those of the selected roles alone; without any there are none."""
    made, client = await aggregating(aggregated("delete"))

    await made.reconcile(aggregated("delete"))

    (written,) = client.written("update")
    assert written.rules is None


async def test_only_roles_with_a_selection_are_written() -> None:
    """Nor one that is gone, or whose selection was removed while it was queued."""
    made, client = await aggregating(role("a", "get", team="a"), role("all", "get"))

    assert queued(made) == set()
    for one in (role("a", "get", team="a"), aggregated(), aggregated(name="gone")):
        await made.reconcile(one)

    assert client.writes == []


async def test_the_newest_version_is_written() -> None:
    """An older one would undo the change of another client."""
    made, client = await aggregating(role("a", "get", team="a"), aggregated())
    made.take(change(aggregated("list", version="2")))

    await made.reconcile(aggregated())

    (written,) = client.written("update")
    assert written.metadata.resource_version == "2"


async def test_nothing_is_written_before_all_roles_are_known() -> None:
    """Rules of roles that are not yet loaded would be lost, also after a new start."""
    client: Any = SmallClient()
    made = AggregateRoles(client)
    made.take(change(aggregated("get"), "LISTED"))
    assert queued(made) == set()
    await made.all_listed()
    assert queued(made) == {"all"}

    made.queue.clear()
    made.starting()
    made.take(change(aggregated("get", name="other"), "LISTED"))

    assert queued(made) == set()
    assert set(made._roles) == {"other"}


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED", "DELETED"])
async def test_each_change_of_a_role_looks_at_every_aggregated_one(type_: str) -> None:
    """Any may have begun or ceased to be selected."""
    made, _ = await aggregating(aggregated(), aggregated(name="more"), role("a", "get", team="a"))
    made.queue.clear()

    made.take(change(role("a", "get"), type_))

    assert queued(made) == {"all", "more"}


async def test_a_deleted_role_gives_no_rules() -> None:
    """And is not written itself."""
    found = role("a", "get", team="a")
    made, client = await aggregating(found, aggregated("get"), aggregated(name="more"))

    made.take(change(found, "DELETED"))
    made.take(change(aggregated(name="more"), "DELETED"))
    await made.reconcile(aggregated("get"))

    assert queued(made) == {"all"}
    assert [one.rules for one in client.written("update")] == [None]


async def test_a_role_that_is_deleted_meanwhile_is_no_failure() -> None:
    made, client = await aggregating(aggregated("get"))
    client.refuses["update"] = NotFound(ErrorSubject("", "clusterroles", "all"))

    await made.reconcile(aggregated("get"))

    assert client.writes == []
