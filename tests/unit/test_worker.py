"""The program of a worker ends with the right code, whatever ends it."""

import asyncio
import socket
from typing import NoReturn

import pytest

from orchid import worker
from orchid.kernel.base import telemetry
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.workers.counter import SharedCounter
from orchid.kernel.workers.framing import Reader
from orchid.kernel.workers.messages import Begin, UnfitMessage, from_worker, packed


async def test_worker_without_a_parent_ends_at_once() -> None:
    """A parent that is gone before its first word leaves nothing behind."""
    ours, theirs = socket.socketpair()
    ours.close()

    assert await worker.work(theirs) == worker.ORPHANED


async def test_worker_waits_until_its_last_words_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were it to hang up first, a parent that writes just then would never read them."""

    async def refuse(*_: object) -> NoReturn:
        raise BadSettings("--listen: no")

    monkeypatch.setattr(worker, "serve_as_worker", refuse)
    monkeypatch.setattr(telemetry, "configure", lambda *_: None)
    counter = SharedCounter.create()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    working = asyncio.ensure_future(worker.work(theirs))
    begin = Begin(
        given={},
        listens=False,
        prepares=False,
        controls=False,
        sockets=(),
        counter=counter.descriptor,
        revision=0,
        oldest=0,
    )
    await asyncio.get_running_loop().sock_sendall(ours, packed(begin))

    reader, heard = Reader(), list[object]()
    while not any(isinstance(word, UnfitMessage) for word in heard):
        data = await asyncio.get_running_loop().sock_recv(ours, 1 << 16)
        assert data, "the worker hung up first"
        heard += map(from_worker, reader.feed(data))
    await asyncio.wait([working], timeout=0.2)
    assert not working.done()

    ours.close()
    assert await working == worker.UNFIT
    counter.close()


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (None, None),
        (BadSettings("--listen: no"), "--listen: no"),
        (ExceptionGroup("tasks", [BadSettings("--listen: no")]), "--listen: no"),
        (ExceptionGroup("tasks", [OSError(), BadSettings("--listen: no")]), "--listen: no"),
    ],
)
def test_mistaken_setting_is_found_among_failures(
    failure: Exception | None, words: str | None
) -> None:
    """Errors that an operator can fix have another exit code than unexpected ones."""
    found = worker._foreseen(failure)

    assert words == (None if found is None else str(found))


def test_unforeseen_failure_is_raised() -> None:
    """It ends the worker with its story in the log."""
    with pytest.raises(ExceptionGroup):
        worker._foreseen(ExceptionGroup("tasks", [OSError()]))
