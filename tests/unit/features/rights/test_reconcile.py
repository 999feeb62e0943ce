"""At each start what is missing is added, and what operators did stays."""

from typing import Any, TypeVar

import pytest

from orchid.assembly.components import default_policy
from orchid.features.rights.bootstrap import BootstrapPolicy
from orchid.features.rights.kinds.role import AggregationRule, ClusterRole
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleBinding
from orchid.features.rights.reconcile import reconcile
from orchid.kernel.wire.errors import AlreadyExists, Conflict, ErrorSubject
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.selectors.label_selectors import LabelSelector
from orchid.kernel.wire.struct import replace
from tests.unit.features.rights.policy_world import a_cluster_role, bound, role_ref, rule, user

T = TypeVar("T", bound=Object)
MARKS = {"rbac.authorization.orch.io/autoupdate": "true"}


class Objects:
    """A store of a few objects that counts writes and can lose races."""

    def __init__(self, *there: Object) -> None:
        self.there: dict[Any, Object] = {self._key(thing): thing for thing in there}
        self.writes: list[str] = []
        self.races = 0

    @staticmethod
    def _key(thing: Object) -> Any:
        return type(thing), thing.namespace, thing.name

    async def get(self, type_: type[T], namespace: str, name: str) -> T | None:
        return self.there.get((type_, namespace, name))

    async def create(self, new: Object) -> None:
        if self.races:
            self.races -= 1
            raise AlreadyExists(ErrorSubject("", "x", new.name))
        assert self._key(new) not in self.there
        self._write("create", new)

    async def update(self, new: Object) -> None:
        if self.races:
            self.races -= 1
            raise Conflict(ErrorSubject("", "x", new.name), "changed")
        self._write("update", new)

    async def delete(self, old: Object) -> None:
        self.writes.append(f"delete {old.name}")
        del self.there[self._key(old)]

    def _write(self, word: str, new: Object) -> None:
        self.writes.append(f"{word} {new.name}")
        self.there[self._key(new)] = new

    def one(self, type_: type[T], name: str) -> T:
        return self.there[type_, "", name]


def policy(*things: Any) -> BootstrapPolicy:
    marked = [thing.with_meta(annotations=MARKS) for thing in things]
    return BootstrapPolicy(
        tuple(thing for thing in marked if isinstance(thing, ClusterRole)),
        tuple(thing for thing in marked if isinstance(thing, ClusterRoleBinding)),
        (),
        (),
    )


async def test_an_empty_store_is_filled_and_the_next_start_writes_nothing() -> None:
    """Everything is created once, roles before bindings."""
    objects, wanted = Objects(), default_policy(ORCH)

    await reconcile(wanted, objects, ORCH)
    written = len(objects.writes)
    await reconcile(wanted, objects, ORCH)

    assert len(objects.writes) == written == len(objects.there)
    are_bindings = [type_ in (ClusterRoleBinding, RoleBinding) for type_, _, _ in objects.there]
    assert are_bindings == sorted(are_bindings)
    assert set(are_bindings) == {False, True}


async def test_missing_rules_are_added_and_others_stay() -> None:
    """A right that was taken out comes back; one that was put in is kept."""
    own = rule("delete", "nodes")
    objects = Objects(a_cluster_role("r", rule("get", "pods"), own))

    await reconcile(policy(a_cluster_role("r", rule("get list", "pods"))), objects, ORCH)

    role = objects.one(ClusterRole, "r")
    assert role.rules == (rule("get", "pods"), own, rule("list", "pods"))
    assert role.metadata.annotations == MARKS


async def test_wider_rights_are_not_narrowed() -> None:
    """A role that already covers what is wanted only gets its marks."""
    objects = Objects(a_cluster_role("r", rule("*", "*", "*")).with_meta(annotations=MARKS))

    await reconcile(policy(a_cluster_role("r", rule("get", "pods"))), objects, ORCH)

    assert objects.writes == []


async def test_an_operator_can_opt_out() -> None:
    """An object whose annotation says false is left alone."""
    off = {"rbac.authorization.orch.io/autoupdate": "false"}
    objects = Objects(a_cluster_role("r").with_meta(annotations=off))

    await reconcile(policy(a_cluster_role("r", rule("get", "pods"))), objects, ORCH)

    assert objects.writes == []


async def test_missing_subjects_are_added() -> None:
    """A binding keeps whom operators added."""
    objects = Objects(bound("b", "r", user("eve")))

    await reconcile(policy(bound("b", "r", user("bob"))), objects, ORCH)

    assert objects.one(ClusterRoleBinding, "b").subjects == (user("eve"), user("bob"))


async def test_a_binding_to_another_role_is_recreated() -> None:
    """A roleRef cannot change, so the binding goes and comes back."""
    objects = Objects(bound("b", "other", user("eve")))

    await reconcile(policy(bound("b", "r", user("bob"))), objects, ORCH)

    binding = objects.one(ClusterRoleBinding, "b")
    assert objects.writes == ["delete b", "create b"]
    assert (binding.role_ref, binding.subjects) == (role_ref("r"), (user("bob"),))


async def test_selectors_are_added_and_rules_of_aggregated_roles_left() -> None:
    """The rules of an aggregated role are not compared one by one."""
    one, two = LabelSelector(match_labels={"a": "1"}), LabelSelector(match_labels={"b": "1"})
    there = replace(a_cluster_role("r"), aggregation_rule=AggregationRule((one,)))
    wanted = replace(a_cluster_role("r"), aggregation_rule=AggregationRule((two,)))
    objects = Objects(there)

    await reconcile(policy(wanted), objects, ORCH)

    gathered = objects.one(ClusterRole, "r").aggregation_rule
    assert gathered == AggregationRule((one, two))


@pytest.mark.parametrize("there", [[], [a_cluster_role("r")]])
async def test_losing_a_race_means_looking_again(there: list[Object]) -> None:
    """Two servers may start at once."""
    objects = Objects(*there)
    objects.races = 3

    await reconcile(policy(a_cluster_role("r", rule("get", "pods"))), objects, ORCH)

    assert objects.one(ClusterRole, "r").rules == (rule("get", "pods"),)


async def test_losing_for_ever_is_an_error() -> None:
    """A store that never lets the policy in stops the start, loudly."""
    objects = Objects()
    objects.races = 1000

    with pytest.raises(AlreadyExists):
        await reconcile(policy(a_cluster_role("r")), objects, ORCH)
