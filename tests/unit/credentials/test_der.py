"""Elements of DER that stand side by side, read one at a time and at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.credentials import der

ELEMENTS = st.builds(der.encode, st.integers(0, 0x1E), st.binary(max_size=300))


@given(st.lists(ELEMENTS), st.binary(max_size=3))
def test_reading_at_once_finds_what_reading_one_by_one_finds(
    elements: list[bytes], before: bytes
) -> None:
    """Short and long elements, behind anything else."""
    data = before + b"".join(elements)

    found = der.spans(data, len(before), len(data))

    one_by_one = der.children(data, len(before), len(data))
    assert found == [(child.begin, child.start, child.stop) for child in one_by_one]
    assert [data[begin:stop] for begin, _, stop in found] == elements


@given(st.binary(max_size=40))
def test_reading_at_once_refuses_what_reading_one_by_one_refuses(data: bytes) -> None:
    """Truncated, of indefinite length, with a long tag: with the same words."""
    try:
        expected = [(c.begin, c.start, c.stop) for c in der.children(data, 0, len(data))]
    except der.NotDer as problem:
        with pytest.raises(der.NotDer, match=str(problem).partition("(")[0]):
            der.spans(data, 0, len(data))
    else:
        assert der.spans(data, 0, len(data)) == expected
