"""Field sets: reading, writing, and arithmetic held against plain sets of paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.engine.patch.field_set import FieldSet, Tree

LABELS = {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])


def build(paths: set[tuple[str, ...]]) -> FieldSet:
    """A field set from paths, the slow and plain way."""
    fields: Tree = {}
    for path in paths:
        node = fields
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return FieldSet.parse(fields)


def paths_of(fields: FieldSet) -> set[tuple[str, ...]]:
    found = set()
    waiting: list[tuple[tuple[str, ...], Tree]] = [((), fields.tree)]
    while waiting:
        above, tree = waiting.pop()
        for key, node in tree.items():
            if key == ".":
                found.add(above)
            elif node:
                waiting.append(((*above, key), node))
            else:
                found.add((*above, key))
    return found


paths = st.sets(st.lists(elements, min_size=1, max_size=3).map(tuple), max_size=6)


def test_paths_read_as_the_contract_prints_them() -> None:
    """Fields, keys and set members; those of a level before those below."""
    fields = FieldSet.parse(
        {
            "f:status": {"f:conditions": {'k:{"type":"Approved"}': {"f:reason": {}}}},
            "f:secrets": {".": {}, 'k:{"name":"x"}': {}},
            "f:metadata": {"f:finalizers": {'v:"f/x"': {}}, "f:labels": {"f:a": {}}},
        }
    )

    assert list(fields.paths()) == [
        ".secrets",
        '.metadata.finalizers[="f/x"]',
        ".metadata.labels.a",
        '.secrets[name="x"]',
        '.status.conditions[type="Approved"].reason',
    ]


def test_siblings_stand_in_order_and_keys_in_one_form() -> None:
    """Fields, then keys, then values; a key's own members sorted, without blanks."""
    fields = FieldSet.parse({"v:1": {}, 'k:{"b": 1, "a": "x"}': {}, "f:b": {}, "f:a": {".": {}}})

    assert list(fields.tree.items()) == [
        ("f:a", {}),
        ("f:b", {}),
        ('k:{"a":"x","b":1}', {}),
        ("v:1", {}),
    ]


def test_unknown_kinds_of_elements_are_left_out() -> None:
    """A later version may know them."""
    assert not FieldSet.parse({"q:new": {}})


@pytest.mark.parametrize(
    "fields", [[1], {"f:a": 1}, {"k:{": {}}, {"k:1": {}}, {"v:": {}}, {"i:x": {}}, {"k:{}": {}}]
)
def test_what_is_no_field_set_is_refused(fields: object) -> None:
    """The caller then keeps what is stored."""
    with pytest.raises(ValueError, match="not"):
        FieldSet.parse(fields)


def test_a_bottomless_tree_is_refused() -> None:
    """Depth is bounded where a client hands the tree in."""
    tree: Tree = {}
    for _ in range(500):
        tree = {"f:a": tree}

    with pytest.raises(ValueError, match="not a field set"):
        FieldSet.parse(tree)


def test_taking_a_container_away_leaves_what_is_below() -> None:
    """Difference is about single paths, `without` about whole subtrees."""
    fields, labels = FieldSet.parse(LABELS), FieldSet.of_paths(("metadata.labels",))

    assert fields.difference(labels).tree == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert not fields.without(labels)


def test_a_container_without_its_last_member_is_a_leaf() -> None:
    """It is still owned, and written as `{}`."""
    fields = FieldSet.parse(LABELS)

    rest = fields.difference(FieldSet.of_paths(("metadata.labels.a",)))

    assert rest.tree == {"f:metadata": {"f:labels": {}}}


@given(paths)
def test_what_is_written_reads_back(some: set[tuple[str, ...]]) -> None:
    """A tree is the set; reading it again gives the same tree in the same order."""
    fields = build(some)

    again = FieldSet.parse(fields.tree)

    assert again == fields
    assert list(again.tree) == list(fields.tree)
    assert paths_of(fields) == some


@given(paths, paths)
def test_arithmetic_is_that_of_sets(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> None:
    """Union, difference and intersection, held against sets of tuples."""
    assert paths_of(build(one).union(build(other))) == one | other
    assert paths_of(build(one).difference(build(other))) == one - other
    assert paths_of(build(one).intersection(build(other))) == one & other


@given(paths, paths)
def test_without_takes_everything_below(
    one: set[tuple[str, ...]], roots: set[tuple[str, ...]]
) -> None:
    """A path goes if a prefix of it is among the roots."""
    left = build(one).without(build(roots))

    assert paths_of(left) == {
        path for path in one if not any(path[: len(root)] == root for root in roots)
    }


@given(paths, paths)
def test_results_are_in_order(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> None:
    """After any operation, a tree can be encoded as it is."""
    waiting = [build(one).union(build(other)).tree, build(one).difference(build(other)).tree]
    while waiting:
        tree = waiting.pop()
        assert list(tree) == sorted(tree)
        waiting += tree.values()
