"""Inclusion and consistency proofs.

Creating one: `inclusion` and `consistency` list the subtrees whose hashes are needed, in the order
of RFC 6962; the caller reads them from the tiles. Verifying one: `check_inclusion` and
`check_consistency` need only the proof and the roots, follow RFC 9162 (2.1.3.2, 2.1.4.2), and raise
`ProofRefused`: an invalid proof cannot be overlooked.
"""

from collections.abc import Sequence

from orchid.kernel.tlog.merkle import HASH_SIZE, Subtree, node_hash


class ProofRefused(Exception):
    """The proof is invalid."""


def inclusion(index: int, size: int) -> list[Subtree]:
    """The subtrees beside the path from entry `index` to the root, the lowest first."""
    if not 0 <= index < size:
        raise ValueError(f"a log of {size} entries has no entry {index}")
    beside = []
    at = Subtree(0, size)
    while at.end - at.start > 1:
        left, right = at.halves()
        at, other = (left, right) if index < left.end else (right, left)
        beside.append(other)
    return beside[::-1]


def consistency(old: int, new: int) -> list[Subtree]:
    """The subtrees that prove that a log of `new` entries begins with its first `old`."""
    if not 0 <= old <= new:
        raise ValueError(f"a log of {new} entries was never one of {old}")
    if old in (0, new):
        return []
    beside = []
    at = Subtree(0, new)
    while at.end != old:
        left, right = at.halves()
        at, other = (left, right) if old <= left.end else (right, left)
        beside.append(other)
    # The verifier has the old root; any other last subtree is part of the proof.
    return ([at] if at.start else []) + beside[::-1]


def check_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> None:
    """Raise unless the entry with this leaf hash is at `index` in the log with this root."""
    _check_hashes(proof)
    if not 0 <= index < size:
        raise ProofRefused(f"a log of {size} entries has no entry {index}")
    position, last, computed = index, size - 1, leaf
    for beside in proof:
        if last == 0:
            raise ProofRefused("the inclusion proof is too long")
        if position & 1 or position == last:
            computed = node_hash(beside, computed)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            computed = node_hash(computed, beside)
        position, last = position >> 1, last >> 1
    if last:
        raise ProofRefused("the inclusion proof is too short")
    if computed != root:
        raise ProofRefused(f"entry {index} is not in the log of {size} entries with this root")


def check_consistency(
    old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Raise unless the log of `new` entries begins with the log of `old` entries."""
    _check_hashes(proof)
    if not 0 <= old <= new:
        raise ProofRefused(f"a log of {new} entries does not begin with one of {old}")
    if old in (0, new):
        if proof:
            raise ProofRefused("the consistency proof is too long")
        if old == new and old_root != new_root:
            raise ProofRefused(f"two different logs of {new} entries")
        return
    _check_between(old, old_root, new, new_root, list(proof))


def _check_between(
    old: int, old_root: bytes, new: int, new_root: bytes, proof: list[bytes]
) -> None:
    if old & (old - 1) == 0:
        proof.insert(0, old_root)  # a complete subtree of the new log, which the verifier has
    if not proof:
        raise ProofRefused("the consistency proof is too short")
    position, last = old - 1, new - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    found_old = found_new = proof[0]
    for beside in proof[1:]:
        if last == 0:
            raise ProofRefused("the consistency proof is too long")
        if position & 1 or position == last:
            found_old, found_new = node_hash(beside, found_old), node_hash(beside, found_new)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            found_new = node_hash(found_new, beside)
        position, last = position >> 1, last >> 1
    if last:
        raise ProofRefused("the consistency proof is too short")
    if found_old != old_root or found_new != new_root:
        raise ProofRefused(f"the log of {new} entries does not begin with that of {old} entries")


def _check_hashes(proof: Sequence[bytes]) -> None:
    if any(len(each) != HASH_SIZE for each in proof):
        raise ProofRefused(f"a hash in a proof has {HASH_SIZE} bytes")
