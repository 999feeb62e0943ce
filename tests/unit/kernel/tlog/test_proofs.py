"""Proofs are those of RFC 6962, hold when they should, and are refused when anything is changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.tlog import proofs
from orchid.kernel.tlog.merkle import TreeNode, leaf_hash, tree_hash
from orchid.kernel.tlog.proofs import ProofRefused, check_consistency, check_inclusion
from tests.unit.kernel.tlog import naive

entries_of_a_log = st.lists(st.binary(max_size=4), min_size=1, max_size=70)


def hashes(subtrees: list[proofs.Subtree], entries: list[bytes]) -> list[bytes]:
    def of_node(node: TreeNode) -> bytes:
        first, last = node.position << node.height, (node.position + 1) << node.height
        return tree_hash([leaf_hash(entry) for entry in entries[first:last]])

    return [subtree.hash(of_node) for subtree in subtrees]


@given(entries_of_a_log, st.data())
def test_an_inclusion_proof_is_the_naive_one_and_holds(
    entries: list[bytes], data: st.DataObject
) -> None:
    """Every entry of every log can be shown to be in it."""
    index = data.draw(st.integers(0, len(entries) - 1))

    proof = hashes(proofs.inclusion(index, len(entries)), entries)

    assert proof == naive.path(index, entries)
    check_inclusion(leaf_hash(entries[index]), index, len(entries), proof, naive.root(entries))


def test_an_invalid_hash_in_a_proof_is_reported() -> None:
    """Before anything is worked out of it."""
    leaves = [leaf_hash(entry) for entry in (b"a", b"b")]
    root = tree_hash(leaves)

    with pytest.raises(ProofRefused, match="a hash in a proof has 32 bytes"):
        check_inclusion(leaves[0], 0, 2, [leaves[1][:-1]], root)
    with pytest.raises(ProofRefused, match="a hash in a proof has 32 bytes"):
        check_consistency(1, leaves[0], 2, root, [leaves[1] + b"!"])


@given(entries_of_a_log, st.data())
def test_a_changed_inclusion_proof_is_refused(entries: list[bytes], data: st.DataObject) -> None:
    """Another entry, root or hash, or a proof too long or too short, shows nothing."""
    index = data.draw(st.integers(0, len(entries) - 1))
    leaf, root, proof = (
        leaf_hash(entries[index]),
        naive.root(entries),
        naive.path(index, entries),
    )
    wrong = [
        (leaf_hash(entries[index] + b"!"), index, proof, root),
        (leaf, index, proof, leaf_hash(root)),
        (leaf, index, [*proof, root], root),
        (leaf, index, [*proof, b"short"], root),
        (leaf, len(entries), proof, root),
        (leaf, -1, proof, root),
    ]
    if proof:
        which = data.draw(st.integers(0, len(proof) - 1))
        other = [*proof[:which], leaf_hash(proof[which]), *proof[which + 1 :]]
        wrong += [(leaf, index, proof[:-1], root), (leaf, index, other, root)]

    for bad_leaf, bad_index, bad_proof, bad_root in wrong:
        with pytest.raises(ProofRefused):
            check_inclusion(bad_leaf, bad_index, len(entries), bad_proof, bad_root)


@given(entries_of_a_log, st.data())
def test_a_consistency_proof_is_the_naive_one_and_holds(
    entries: list[bytes], data: st.DataObject
) -> None:
    """Every log can be shown to begin with each of its earlier states."""
    old = data.draw(st.integers(1, len(entries)))

    proof = hashes(proofs.consistency(old, len(entries)), entries)

    assert proof == naive.proof(old, entries)
    old_root, root = naive.root(entries[:old]), naive.root(entries)
    check_consistency(old, old_root, len(entries), root, proof)


@given(entries_of_a_log, st.data())
def test_a_rewritten_log_is_not_consistent(entries: list[bytes], data: st.DataObject) -> None:
    """A log in which one early entry was exchanged does not begin with the earlier log."""
    old = data.draw(st.integers(1, len(entries)))
    changed = data.draw(st.integers(0, old - 1))
    rewritten = [*entries]
    rewritten[changed] += b"!"
    old_root, root = naive.root(entries[:old]), naive.root(rewritten)

    with pytest.raises(ProofRefused):
        check_consistency(old, old_root, len(entries), root, naive.proof(old, rewritten))


@given(entries_of_a_log, st.data())
def test_a_changed_consistency_proof_is_refused(entries: list[bytes], data: st.DataObject) -> None:
    """A proof too long or too short, or with another hash or size, shows nothing."""
    old = data.draw(st.integers(1, len(entries)))
    new, proof = len(entries), naive.proof(old, entries)
    old_root, root = naive.root(entries[:old]), naive.root(entries)
    wrong = [(old, [*proof, root]), (new + 1, proof), (-1, proof)]
    if proof:
        which = data.draw(st.integers(0, len(proof) - 1))
        other = [*proof[:which], leaf_hash(proof[which]), *proof[which + 1 :]]
        wrong += [(old, proof[:-1]), (old, other), (old, [])]

    for bad_old, bad_proof in wrong:
        with pytest.raises(ProofRefused):
            check_consistency(bad_old, old_root, new, root, bad_proof)


def test_every_log_begins_with_the_empty_one() -> None:
    """Nothing needs no proof, and no proof may be brought for it."""
    root = naive.root([b"a"])

    check_consistency(0, naive.root([]), 1, root, [])

    with pytest.raises(ProofRefused):
        check_consistency(0, naive.root([]), 1, root, [root])


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 3), (3, 3)])
def test_an_entry_that_is_not_there_has_no_proof(index: int, size: int) -> None:
    """Asking for the proof of an entry outside the log is a mistake of the caller."""
    with pytest.raises(ValueError, match=f"no entry {index}"):
        proofs.inclusion(index, size)


def test_a_log_was_never_longer_than_it_is() -> None:
    """Asking for consistency with a longer log is a mistake of the caller."""
    with pytest.raises(ValueError, match="never one of 4"):
        proofs.consistency(4, 3)


def test_an_inclusion_proof_that_is_too_short_is_refused() -> None:
    """An inner hash is no entry: without the length it would pass as one of a longer log."""
    leaves = [leaf_hash(entry) for entry in (b"a", b"b", b"c", b"d")]
    left, root = tree_hash(leaves[:2]), tree_hash(leaves)

    for inner, proof in ((root, []), (left, [tree_hash(leaves[2:])])):
        with pytest.raises(ProofRefused, match="too short"):
            check_inclusion(inner, 0, 4, proof, root)
