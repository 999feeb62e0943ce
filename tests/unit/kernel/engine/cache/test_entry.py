"""An entry is bytes; what is made of them is kept for those used lately alone."""

from typing import Any

import pytest

from orchid.features.objects.kinds import config_map
from orchid.kernel.engine.cache import entry as entry_module
from orchid.kernel.engine.cache.entry import Entry, LatelyUsed
from orchid.kernel.wire.naming import ORCH

KIND = config_map.declare(ORCH)


@pytest.fixture
def lately_used(monkeypatch: pytest.MonkeyPatch) -> LatelyUsed:
    """Room for the decoded forms of a few entries."""
    made = LatelyUsed(most=1_000)
    monkeypatch.setattr(entry_module, "_lately_used", made)
    return made


def entries(count: int) -> list[Entry[Any]]:
    return [
        Entry.stored(
            KIND,
            KIND.key("ns", f"m{number}"),
            KIND.head + b'"metadata":{"name":"m%d","namespace":"ns","uid":"u"}}' % number,
            number + 1,
        )
        for number in range(count)
    ]


def test_only_the_last_ones_stay_decoded(lately_used: LatelyUsed) -> None:
    """Looking at many objects, one after the other, does not keep them all decoded."""
    many = entries(100)

    names = [entry.object.metadata.name for entry in many]
    decoded = [entry for entry in many if entry._object is not None]

    assert names == [f"m{number}" for number in range(100)]
    assert decoded == many[-len(decoded) :]
    assert 0 < sum(len(entry.tail) for entry in decoded) <= 1_000


def test_what_was_given_up_is_made_again(lately_used: LatelyUsed) -> None:
    """An entry that was shrunk has the same object, metadata and encodings as before."""
    first, *others = entries(50)
    first.shared_forms()["form"] = b"bytes"
    before = first.object

    for other in others:
        _ = other.meta, other.object

    assert (first._object, first._meta, first.forms) == (None, None, None)
    assert first.object == before
    assert first.meta == before.metadata
    assert first.shared_forms() == {}


def test_what_is_not_stored_is_not_kept(lately_used: LatelyUsed) -> None:
    """The answer to a review is gone when it is answered."""
    answered = Entry.unsaved(KIND, entries(1)[0].object)
    kept = lately_used.kept_bytes

    answered.shared_forms()

    assert lately_used.kept_bytes == kept


def test_identity_is_read_from_the_bytes_and_nothing_is_kept() -> None:
    """Thousands of accounts have their uid asked for, and need not stay decoded for it."""
    owner = b'"ownerReferences":[{"uid":"other"}],"annotations":{"deletionTimestamp":"x"}'
    meta = b'"metadata":{%b,"name":"m","namespace":"ns","uid":"u"}}' % owner
    ended = b'"metadata":{"name":"m","uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z"}}'
    there = Entry(KIND, "/m", meta, 1)
    deleted = Entry(KIND, "/m", ended, 1)

    found = [(entry.identity.uid, entry.identity.deletion_timestamp) for entry in (there, deleted)]

    assert found == [("u", None), ("u", deleted.object.metadata.deletion_timestamp)]
    assert found[1][1] is not None
    assert there._meta is None
    assert there._object is None


def test_identity_of_what_is_decoded_is_not_read_again() -> None:
    """The metadata at hand says the same."""
    [entry] = entries(1)

    meta = entry.meta

    assert entry.identity is meta
