"""Decisions of the garbage collector, without a server: which owners count, and what is written."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.objects.controllers.collect_dependents import (
    FOREGROUND,
    ORPHAN,
    CollectDependents,
    DependencyNode,
    Notes,
)
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.secret import Secret
from orchid.features.rights.kinds.role import ClusterRole
from orchid.kernel.client.client import LISTED
from orchid.kernel.wire.errors import MODIFIED, Conflict, ErrorSubject, NotFound
from orchid.kernel.wire.meta import Object, ObjectMeta, OwnerReference
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.credentials.samples import NOW

ABOUT = ErrorSubject("", "configmaps", "a")
KINDS = [(ConfigMap, True), (Secret, True), (ClusterRole, False)]
KINDS_BY_NAME = {
    type_.__name__: SimpleNamespace(type=type_, namespaced=namespaced)
    for type_, namespaced in KINDS
}


class Collecting(SmallClient):
    """Records deletions and patches: the uid, and the policy or the change."""

    def __init__(self, *stored: Object) -> None:
        super().__init__(*stored)
        self.catalog = SimpleNamespace(
            stored=tuple(KINDS_BY_NAME.values()),
            named=lambda _version, kind: KINDS_BY_NAME.get(kind),
        )
        self.done: list[tuple[str, Any]] = []
        self.problem: Exception | None = None

    async def delete(
        self, _type: Any, _name: str, _namespace: str, *, uid: str, propagation: str
    ) -> None:
        if self.problem:
            raise self.problem
        self.done.append((uid, propagation))

    async def patch(self, _type: Any, _name: str, _namespace: str, changed: Any) -> None:
        if self.problem:
            raise self.problem
        meta = dict(changed["metadata"])
        self.done.append((meta.pop("uid"), meta))


def collector(*stored: Object) -> tuple[CollectDependents, Collecting]:
    client: Any = Collecting(*stored)
    return CollectDependents(client), client


def node(of: Object) -> DependencyNode:
    return DependencyNode(type(of), of.namespace, of.name, of.metadata.uid)


def config(name: str, *owners: OwnerReference, place: str = "team", **meta: Any) -> ConfigMap:
    given = {"uid": f"u-{name}", "resource_version": "7", **meta}
    return ConfigMap(
        metadata=ObjectMeta(name=name, namespace=place, owner_references=owners, **given)
    )


def role(name: str, *owners: OwnerReference) -> ClusterRole:
    return ClusterRole(metadata=ObjectMeta(name=name, uid=f"u-{name}", owner_references=owners))


def owner(
    name: str, uid: str = "", kind: str = "ConfigMap", *, blocks: bool = True
) -> OwnerReference:
    return OwnerReference(
        api_version="v1", kind=kind, name=name, uid=uid or f"u-{name}", block_owner_deletion=blocks
    )


A, B = owner("a"), owner("b")
GOING = {"deletion_timestamp": NOW, "finalizers": (FOREGROUND,)}
BACKGROUND = [("u-x", "Background")]


def release(*kept: OwnerReference) -> list[tuple[str, Any]]:
    return [("u-x", {"resourceVersion": "7", "ownerReferences": list(kept) or None})]


@pytest.mark.parametrize(
    ("dependent", "stored", "done"),
    [
        (config("x", A), (config("a"),), []),
        (config("x", A), (), BACKGROUND),
        (config("x", A), (config("a", uid="later"),), BACKGROUND),
        (config("x", A), (config("a", place="other"),), BACKGROUND),
        (config("x", A), (config("b"),), BACKGROUND),
        (config("x", A, B), (), BACKGROUND),
        (config("x", A, B), (config("b"),), release(B)),
        (config("x", A, B), (config("a"),), release(A)),
        (config("x", A, B), (config("a"), config("b", **GOING)), release(A)),
        (config("x", A), (config("a", **GOING),), BACKGROUND),
        (config("x", A), (config("a", deletion_timestamp=NOW, finalizers=("x",)),), []),
        (config("x", A), (config("a", finalizers=(FOREGROUND,)),), []),
        (config("x", owner("a", kind="Unknown")), (), []),
        (config("x", owner("a", kind="Unknown"), B), (), release(owner("a", kind="Unknown"))),
        (role("x", A), (), []),
        (config("x", owner("r", kind="ClusterRole")), (role("r"),), []),
        (config("x", owner("r", kind="ClusterRole")), (), BACKGROUND),
        (role("x", owner("r", kind="ClusterRole")), (), BACKGROUND),
        (config("x"), (), []),
        (config("x", A, deletion_timestamp=NOW), (), []),
    ],
)
async def test_an_object_goes_when_none_of_its_owners_is_left(
    dependent: Any, stored: Any, done: Any
) -> None:
    """An owner is one by its uid, in its namespace; one of an unknown kind is left in peace."""
    made, client = collector(dependent, *stored)

    await made.attend(node(dependent), None)

    assert client.done == done


@pytest.mark.parametrize(
    ("finalizers", "policy"),
    [
        ((), "Background"),
        ((FOREGROUND,), "Foreground"),
        ((ORPHAN,), "Orphan"),
        ((FOREGROUND, ORPHAN), "Orphan"),
    ],
)
async def test_a_dependent_goes_as_its_finalizers_say(finalizers: Any, policy: str) -> None:
    made, client = collector(config("x", A, finalizers=finalizers))

    await made.attend(node(config("x")), None)

    assert client.done == [("u-x", policy)]


async def test_dependents_of_a_dependent_go_first_if_the_owner_waits() -> None:
    x = config("x", A)
    made, client = collector(x, config("a", **GOING))
    made._notes.put(node(config("y")), (owner("x"),))

    await made.attend(node(x), None)

    assert client.done == [("u-x", "Foreground")]


@pytest.mark.parametrize("now", [(), (config("x", A, uid="later"),)])
async def test_an_object_that_was_created_again_is_not_judged(now: Any) -> None:
    """Its namesake is gone, and so are the notes about it."""
    made, client = collector(*now)
    made._notes.put(node(config("x")), (A,))

    await made.attend(node(config("x")), None)

    assert client.done == []
    assert made._notes.dependents("u-a") == []


@pytest.mark.parametrize("problem", [NotFound(ABOUT), Conflict(ABOUT, MODIFIED)])
async def test_an_object_that_changes_meanwhile_is_judged_again_later(problem: Any) -> None:
    """Its change is an event; a deletion needs no failure."""
    made, client = collector(config("x", A))
    client.problem = problem

    await made.attend(node(config("x")), None)

    assert client.done == []


async def test_a_release_of_a_changed_object_fails_and_is_tried_again() -> None:
    """Somebody may have added an owner."""
    made, client = collector(config("x", A, B), config("a"))
    client.problem = Conflict(ABOUT, MODIFIED)

    with pytest.raises(Conflict):
        await made.attend(node(config("x")), None)


# -- owners that go -------------------------------------------------------------------------------


async def test_orphans_keep_their_other_owners() -> None:
    """In every namespace that the owner can have them, also those that no note names."""
    going = config("a", deletion_timestamp=NOW, finalizers=("x", ORPHAN))
    made, client = collector(
        going, config("x", A, B), config("y", B), config("z", owner("a", "earlier")),
        config("x", A, place="other"), role("r", A),
    )  # fmt: skip

    await made.attend(node(going), None)

    assert client.done == [
        *release(B),
        ("u-a", {"resourceVersion": "7", "finalizers": ["x"]}),
    ]


async def test_the_orphans_of_a_cluster_scoped_owner_are_everywhere() -> None:
    r = owner("r", kind="ClusterRole")
    going = role("r").with_meta(deletion_timestamp=NOW, finalizers=(ORPHAN,))
    made, client = collector(going, config("x", r), config("y", r, place="other"), role("s", r))

    await made.attend(node(going), None)

    assert [uid for uid, _ in client.done] == ["u-x", "u-y", "u-s", "u-r"]


@pytest.mark.parametrize(
    ("dependents", "goes"),
    [
        ((), True),
        ((config("x", A),), False),
        ((config("x", owner("a", blocks=False)),), True),
        ((config("x", A, place="other"),), True),
        ((config("x", owner("a", blocks=False), owner("b")),), True),
        ((config("x", owner("a", blocks=False)), config("y", A)), False),
    ],
)
async def test_an_owner_waits_for_dependents_that_block_it(dependents: Any, goes: bool) -> None:
    going = config("a", **GOING)
    made, client = collector(going)
    made._note(ConfigMap, change(going, LISTED))
    for one in dependents:
        made._note(ConfigMap, change(one, LISTED))
    made.queue.clear()

    await made.attend(node(going), None)

    assert bool(client.done) is goes
    assert {one.name for one in made.queue._waiting} == {one.name for one in dependents}
    assert ("u-a" in made._notes.waiting) is not goes


# -- the index ------------------------------------------------------------------------------------


def test_an_index_has_only_the_newest_owners() -> None:
    notes = Notes()
    notes.put(node(config("x")), (A, B))
    notes.put(node(config("y")), (A,))
    assert [one.name for one in notes.dependents("u-b")] == ["x"]

    notes.put(node(config("x")), (B,))
    assert [one.name for one in notes.dependents("u-a")] == ["y"]
    assert notes.drop(node(config("x"))) == (B,)
    assert notes.dependents("u-b") == []
    notes.put(node(config("y")), ())
    assert (notes._owners, notes._dependents) == ({}, {})


@pytest.mark.parametrize(
    ("waiting", "blocked"),
    [(("a", "b"), False), (("a",), True), (("a", "b", "c"), True)],
)
def test_owners_in_a_circle_do_not_wait_for_each_other(waiting: Any, blocked: bool) -> None:
    """Each owns the other; `c` is a dependent of `b` that nobody deletes, unless it waits."""
    notes = Notes()
    notes.put(node(config("a")), (B,))
    notes.put(node(config("b")), (A,))
    if "c" in waiting:
        notes.put(node(config("c")), (A,))
    for name in waiting:
        if name != "c":
            notes.waiting[f"u-{name}"] = node(config(name))

    assert notes.is_blocked("u-a") is blocked


@pytest.mark.parametrize(
    ("last", "blocked"),
    [("a", False), ("c", True), ("b", True)],
)
def test_a_longer_circle_blocks_nobody_and_a_line_does(last: str, blocked: bool) -> None:
    """`a` owns `b`, which owns `c`; that owns the last one, and all of them wait."""
    notes = Notes()
    owners = {"b": [A], "c": [B]}
    owners.setdefault(last, []).append(owner("c"))
    for name in ("a", "b", "c"):
        notes.put(node(config(name)), tuple(owners.get(name, ())))
        notes.waiting[f"u-{name}"] = node(config(name))

    assert notes.is_blocked("u-a") is blocked


@pytest.mark.parametrize(
    ("event", "queued"),
    [
        (change(config("x"), LISTED), []),
        (change(config("x", A), LISTED), ["x"]),
        (change(config("x", finalizers=(FOREGROUND,)), "ADDED"), []),
        (change(config("x", **GOING)), ["x"]),
        (change(config("x", deletion_timestamp=NOW, finalizers=(ORPHAN,))), ["x"]),
        (change(config("x", deletion_timestamp=NOW, finalizers=("y",))), []),
    ],
)
async def test_only_objects_with_owners_or_a_policy_are_queued(event: Any, queued: Any) -> None:
    made, _ = collector()

    made._note(ConfigMap, event)

    assert [one.name for one in made.queue._waiting] == queued


async def test_a_deletion_queues_dependents_and_waiting_owners() -> None:
    """`x` is owned by `a`, which waits for it, and owns `y`."""
    made, _ = collector()
    for one in (config("a", **GOING), config("x", A), config("y", owner("x"))):
        made._note(ConfigMap, change(one, LISTED))
    made.queue.clear()

    made._note(ConfigMap, change(config("x", A), "DELETED"))

    assert [one.name for one in made.queue._waiting] == ["y", "a"]


async def test_an_owner_that_waits_is_queued_when_a_dependent_leaves_it() -> None:
    made, _ = collector()
    for one in (config("a", **GOING), config("x", A)):
        made._note(ConfigMap, change(one, LISTED))
    made.queue.clear()

    made._note(ConfigMap, change(config("x")))

    assert [one.name for one in made.queue._waiting] == ["a"]
