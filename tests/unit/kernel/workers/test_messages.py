"""Messages between processes arrive as they were sent, errors included."""

import pytest

from orchid.kernel.store.interface import (
    AlreadyInUse,
    Change,
    Compacted,
    FutureRevision,
    Record,
    RevisionConflict,
    StoreEvent,
    StoreFull,
    StoreUnavailable,
    ValueTooLarge,
)
from orchid.kernel.workers.framing import Astray, Reader
from orchid.kernel.workers.messages import (
    Alive,
    Begin,
    Commits,
    FoundMessage,
    Happened,
    Outcomes,
    WorkerMessage,
    error_in,
    from_parent,
    from_worker,
    packed,
    refusal,
)


def unframed(data: bytes) -> bytes:
    [message] = Reader().feed(data)
    return bytes(message)


@pytest.mark.parametrize(
    "message",
    [
        FoundMessage(1, [Record("a", b"\x00", 2)], 3, more=True, oldest=1),
        Happened((StoreEvent("a", None, 5, b"", 4), StoreEvent("b", b"v", 5, None, 0)), 5),
        Begin(
            {"workers": 3, "api-audiences": ["x", "y"]},
            listens=True, prepares=False, controls=False,
            sockets=(7, 8), counter=9, revision=2**53, oldest=1,
        ),
        Outcomes(4, [7, refusal(4, RevisionConflict("k", Record("k", b"v", 6))), 8]),
        Alive(),
    ],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_parents_words_arrive(message: WorkerMessage) -> None:
    """Each message is decoded to its equal."""
    assert from_parent(unframed(packed(message))) == message


def test_workers_words_arrive() -> None:
    """Commits keep their order, their deletions and their empty values."""
    commits = Commits(7, [(Change("b", b"", 0), Change("a", None, 3)), (Change("c", b"v", 1),)])

    assert from_worker(unframed(packed(commits))) == commits


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91\x63", b"\x92\x01\x01", b"\x90"])
def test_nonsense_is_refused(data: bytes) -> None:
    """An invalid message raises one error, whatever is wrong with it."""
    with pytest.raises(Astray):
        from_worker(data)


@pytest.mark.parametrize(
    "error",
    [
        RevisionConflict("k", Record("k", b"v", 4)),
        RevisionConflict("k", None),
        Compacted(3, 5),
        FutureRevision(9, 5),
        ValueTooLarge("too much"),
        StoreUnavailable("gone"),
        StoreFull("no room"),
        ValueError("not a key"),
    ],
    ids=repr,
)
def test_errors_arrive_with_all_they_carry(error: Exception) -> None:
    """A worker raises what the store raised, of the same type and with the same words."""
    arrived = error_in(refusal(1, error))

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize("error", [KeyError("secret"), AlreadyInUse("in use")])
def test_other_errors_arrive_as_unavailable(error: Exception) -> None:
    """Whatever nobody foresaw means that there is no answer."""
    assert isinstance(error_in(refusal(1, error)), StoreUnavailable)


def test_unforeseen_error_keeps_its_words_to_itself() -> None:
    """They may quote what a client has sent."""
    assert "secret" not in str(error_in(refusal(1, KeyError("secret"))))
