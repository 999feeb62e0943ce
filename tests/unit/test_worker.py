"""The program of a worker ends with the right code, whatever ends it."""

import socket

import pytest

from orchid import worker
from orchid.settings import BadSettings


async def test_worker_without_a_parent_ends_at_once() -> None:
    """A parent that is gone before its first word leaves nothing behind."""
    ours, theirs = socket.socketpair()
    ours.close()

    assert await worker.work(theirs) == worker.ORPHANED


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
    """What a person can mend is told apart from what nobody foresaw."""
    found = worker._foreseen(failure)

    assert words == (None if found is None else str(found))


def test_unforeseen_failure_is_raised() -> None:
    """It ends the worker with its story in the log."""
    with pytest.raises(ExceptionGroup):
        worker._foreseen(ExceptionGroup("tasks", [OSError()]))
