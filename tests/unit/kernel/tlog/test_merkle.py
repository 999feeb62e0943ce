"""The tree's hashes are those of RFC 6962, by public vectors and by a naive tree."""

from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.tlog.merkle import EMPTY_ROOT, Subtree, TreeNode, leaf_hash, tree_hash
from tests.unit.kernel.tlog import naive

# The leaves and roots that the implementations of Certificate Transparency test with.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def test_roots_are_those_of_the_public_vectors() -> None:
    """Eight well-known leaves have eight well-known roots."""
    hashes = [leaf_hash(leaf) for leaf in LEAVES]

    roots = [tree_hash(hashes[: count + 1]).hex() for count in range(len(hashes))]

    assert roots == ROOTS


def test_an_empty_log_has_the_hash_of_nothing_as_its_root() -> None:
    """RFC 6962 gives the empty tree the hash of the empty string."""
    assert tree_hash([]) == EMPTY_ROOT == Subtree(0, 0).hash(_fail) == naive.root([])


def _fail(node: TreeNode) -> bytes:
    raise AssertionError(f"nothing has no node {node}")


@given(st.lists(st.binary(max_size=4), max_size=80), st.data())
def test_a_subtree_has_the_naive_hash(entries: list[bytes], data: st.DataObject) -> None:
    """Whole logs and both halves of them have the hash that the definition gives."""
    subtree = Subtree(0, len(entries))
    while subtree.end - subtree.start > 1 and data.draw(st.booleans()):
        subtree = data.draw(st.sampled_from(subtree.halves()))

    found = subtree.hash(
        lambda node: tree_hash(
            [
                leaf_hash(entry)
                for entry in entries[
                    node.position << node.height : (node.position + 1) << node.height
                ]
            ]
        )
    )

    assert found == naive.root(entries[subtree.start : subtree.end])
