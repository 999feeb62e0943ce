"""Elements of DER that stand side by side."""

from hypothesis import given
from hypothesis import strategies as st

from orchid.credentials import der

ELEMENTS = st.builds(der.encode, st.integers(0, 0x1E), st.binary(max_size=300))


@given(st.lists(ELEMENTS), st.binary(max_size=3))
def test_every_element_of_a_range_is_found(elements: list[bytes], before: bytes) -> None:
    """Short and long ones, behind anything else."""
    data = before + b"".join(elements)

    found = der.children(data, len(before), len(data))

    assert [data[child.begin : child.stop] for child in found] == elements
