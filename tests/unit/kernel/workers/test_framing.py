"""Messages come out of a stream as they went in, whatever the pieces it arrives in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.workers.framing import Astray, Reader, framed


@given(st.lists(st.binary(max_size=60)), st.lists(st.integers(1, 9), min_size=1))
def test_messages_survive_any_cut(messages: list[bytes], sizes: list[int]) -> None:
    """Where the stream is cut makes no difference."""
    stream = b"".join(framed(message) for message in messages)
    reader, found, turn = Reader(), [], 0

    while stream:
        size = sizes[turn % len(sizes)]
        piece, stream, turn = stream[:size], stream[size:], turn + 1
        found += reader.feed(piece)

    assert found == messages


def test_length_beyond_reason_is_refused() -> None:
    """A stream that has gone astray is not waited for, and takes no memory."""
    reader = Reader(largest=10)
    assert list(reader.feed(framed(b"0123456789"))) == [b"0123456789"]

    with pytest.raises(Astray, match="11 bytes"):
        list(reader.feed(framed(b"0123456789a")[:4]))
