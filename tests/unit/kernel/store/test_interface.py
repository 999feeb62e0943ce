"""Spans hold what they say, and errors can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.store.interface import Record, RevisionConflict, Span

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@given(prefix=TEXT, key=TEXT)
def test_prefix_span_holds_exactly_the_keys_with_that_prefix(prefix: str, key: str) -> None:
    """For any text, also at the edges of Unicode."""
    assert (key in Span.prefix(prefix)) == key.startswith(prefix)
    assert prefix + key in Span.prefix(prefix)


@pytest.mark.parametrize("prefix", ["a\ud7ff", "\U0010ffff", "a\U0010ffff", ""])
def test_prefix_span_ends_in_valid_text(prefix: str) -> None:
    """The end must have a UTF-8 form, or no backend could take it."""
    span = Span.prefix(prefix)

    span.end.encode()
    assert prefix + "\U0010ffff" in span
    assert not span.end or span.end not in span


@given(key=TEXT, other=TEXT)
def test_span_after_a_key_begins_right_behind_it(key: str, other: str) -> None:
    """The rest of a span leaves nothing out and repeats nothing."""
    assert (other in Span.all().after(key)) == (other > key)
    assert (other in Span.key(key)) == (other == key)


def test_conflict_does_not_print_the_value() -> None:
    """Values may be secrets; errors end up in logs."""
    assert "hunter2" not in str(RevisionConflict("a", Record("a", b"hunter2", 3)))
    assert "revision 3" in str(RevisionConflict("a", Record("a", b"hunter2", 3)))
    assert "absent" in str(RevisionConflict("a", None))
