"""What a server that is not ours may answer with."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from orchid.kernel.client.reading import (
    FOREIGN,
    LARGE,
    LONGEST_POSITION,
    OWN,
    AnswerLimits,
    Lines,
    WatchedChange,
    batches,
    error_of,
    read_page,
)
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerOverLimit, AnswerRefused
from orchid.kernel.wire.errors import ApiError, Expired, Forbidden
from orchid.kernel.wire.meta import Object

SMALL = AnswerLimits(page=2, line=40, listed=10, values=20)


def page(items: int, **meta: str) -> bytes:
    return json.dumps({"metadata": meta, "items": [{}] * items}).encode()


@pytest.mark.parametrize("padding", [0, LARGE])
async def test_a_page_has_as_many_objects_as_were_asked_for(padding: int) -> None:
    """Also a large one, which is decoded in a thread."""
    assert len((await read_page(page(2) + b" " * padding, 2, SMALL)).items) == 2
    with pytest.raises(AnswerOverLimit, match="has 3 objects, not at most 2"):
        await read_page(page(3) + b" " * padding, 2, SMALL)


async def test_the_values_of_a_page_are_counted() -> None:
    """Before they are decoded."""
    with pytest.raises(AnswerOverLimit, match="more than 20 values"):
        await read_page(page(19), 100, SMALL)


@pytest.mark.parametrize("name", ["resourceVersion", "continue"])
async def test_positions_are_short(name: str) -> None:
    """They are sent back."""
    await read_page(page(0, **{name: "x" * LONGEST_POSITION}), 1, SMALL)
    with pytest.raises(AnswerRefused, match="too long"):
        await read_page(page(0, **{name: "x" * (LONGEST_POSITION + 1)}), 1, SMALL)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"\xff", b'{"items": []}', b'{"items":' + b"[" * 9999]
)
async def test_nonsense_is_one_refusal(body: bytes) -> None:
    """Whatever the parser says of it."""
    limits = msgspec.structs.replace(SMALL, values=100_000)
    with pytest.raises(AnswerRefused):
        await read_page(body, 1, limits)


async def test_our_own_server_is_not_counted() -> None:
    """Its pages have thousands of objects."""
    assert len((await read_page(page(200_000), 1, OWN)).items) == 200_000


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [[b"a", b"b"]]),
        ([b"a", b"b\nc", b"\n"], [[], [b"ab"], [b"c"]]),
        ([b"a", b"", b"b", b"\n\n"], [[], [], [], [b"ab", b""]]),
        ([b"x" * 40 + b"\n" + b"y" * 40, b"\n"], [[b"x" * 40], [b"y" * 40]]),
    ],
)
def test_lines_come_in_any_pieces(pieces: list[bytes], lines: list[list[bytes]]) -> None:
    """A line ends with its line feed."""
    found = Lines(40)

    assert [found.feed(piece) for piece in pieces] == lines


@pytest.mark.parametrize(
    "pieces",
    [[b"x" * 41], [b"x" * 41 + b"\n"], [b"x" * 40, b"x"], [b"x" * 40, b"x\n"], [b"\n" + b"x" * 41]],
)
def test_a_line_has_a_limit(pieces: list[bytes]) -> None:
    """Whether or not it ends."""
    lines = Lines(40)
    for piece in pieces[:-1]:
        lines.feed(piece)

    with pytest.raises(AnswerOverLimit, match="more than 40 bytes"):
        lines.feed(pieces[-1])


async def changes(*lines: Any, limits: AnswerLimits = FOREIGN) -> list[WatchedChange[Object]]:
    async def pieces() -> AsyncIterator[bytes]:
        for line in lines:
            yield (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"

    decoder = msgspec.json.Decoder(Object)
    return [each async for batch in batches(pieces(), decoder, limits) for each in batch]


async def test_events_are_read_within_limits() -> None:
    """One by one."""
    (change,) = await changes({"type": "ADDED", "object": {"metadata": {"name": "a"}}})
    assert (change.type, change.object.name) == ("ADDED", "a")

    limits = msgspec.structs.replace(FOREIGN, values=20)
    with pytest.raises(AnswerOverLimit, match="more than 20 values"):
        await changes({"type": "ADDED", "object": [{}] * 20}, limits=limits)
    for nonsense in (b"{", b"[]", b"\xff", b'{"type":"A","object":' + b"[" * 9999):
        with pytest.raises(AnswerRefused):
            await changes(nonsense)


async def test_an_event_may_be_an_error() -> None:
    """The error of the server; nonsense in its place is refused."""
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}
    with pytest.raises(Expired, match="old"):
        await changes({"type": "ERROR", "object": gone})
    with pytest.raises(AnswerRefused):
        await changes({"type": "ERROR", "object": []})


def test_an_error_is_read_within_limits() -> None:
    """A body that is no Status, or has too many parts, leaves the status code."""
    status = {"code": 403, "reason": "Forbidden", "message": "no"}
    causes = {**status, "details": {"causes": [{}] * 30}}
    assert isinstance(error_of(Answer(403, json.dumps(status).encode()), SMALL), Forbidden)
    for body in (b"", b"[]", b"\xff", json.dumps(causes).encode()):
        error = error_of(Answer(403, body), SMALL)
        assert isinstance(error, ApiError)
        assert (error.code, str(error)) == (403, "the response is not a Status")
