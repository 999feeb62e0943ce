"""The key of the ledger is replaced: a verifier with either key accepts it for 30 days."""

from datetime import datetime, timedelta

import pytest

from orchid.features.ledger.reading import StoredLog
from orchid.features.ledger.sequencing import LedgerBroken, Sequencer
from orchid.features.ledger.signing_keys import TOGETHER, LedgerKeys, announce, keys_named
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.tlog.audit import audit, entries
from orchid.kernel.tlog.notes import NoteVerifier
from tests.unit.features.ledger.logs import (
    KEY,
    NOW,
    ORIGIN,
    OTHER_KEY,
    VERIFIER,
    grow,
    leave_pending,
)

NEW_VERIFIER = NoteVerifier(ORIGIN, OTHER_KEY.public_key())


async def sign(store: MemoryStore, at: datetime) -> None:
    """What a server with both keys does at a start, with a few more entries."""
    made = await announce(store, [KEY, OTHER_KEY], at)
    await leave_pending(store, int(at.timestamp()), 3, at)
    await Sequencer(store, LedgerKeys([KEY, OTHER_KEY], lambda: at, made), ORIGIN).drain()


async def texts(store: MemoryStore, verifier: NoteVerifier) -> list[str]:
    head = await audit(StoredLog(store), verifier)
    return [one.decode() async for one in entries(StoredLog(store), head.size)]


async def test_both_keys_sign_and_the_old_one_announces_the_new_one() -> None:
    """Whichever key a verifier has, the log is good; the entry holds the line of the new key."""
    store = MemoryStore()
    await grow(store, 0, 2)

    await sign(store, NOW)

    found = await texts(store, VERIFIER)
    assert await texts(store, NEW_VERIFIER) == found
    announced = [one for one in found if '"ledger-key.made"' in one]
    assert len(announced) == 1
    named = keys_named(announced[0].encode())
    assert [one.vkey for one in named] == [NEW_VERIFIER.vkey, VERIFIER.vkey]


@pytest.mark.parametrize(
    "entry",
    [
        f'{{"type":"token-key.made","key":"{VERIFIER.vkey}"}}',
        '{"type":"ledger-key.made","key":"no key"}',
        '{"type":"ledger-key.made","key":7}',
        '{"type":"ledger-key.made"}',
        "no entry",
    ],
)
def test_other_entries_name_no_key_of_the_ledger(entry: str) -> None:
    """A key counts only in the entry that announces it, and only in its form."""
    assert keys_named(entry.encode()) == []


def test_an_entry_of_an_earlier_version_names_the_new_key_only() -> None:
    """It did not say which key it replaces."""
    entry = f'{{"type":"ledger-key.made","key":"{NEW_VERIFIER.vkey}","algorithm":"Ed25519"}}'

    assert [one.vkey for one in keys_named(entry.encode())] == [NEW_VERIFIER.vkey]


async def test_a_key_is_announced_once() -> None:
    """Not again at the next start, nor by another server that starts with both keys."""
    store = MemoryStore()
    await grow(store, 0, 2)

    await sign(store, NOW)
    await sign(store, NOW + timedelta(days=1))

    assert str(await texts(store, VERIFIER)).count("ledger-key.made") == 1


async def test_after_30_days_only_the_new_key_signs() -> None:
    """The time counts from the announcement, also for a server that started later."""
    store = MemoryStore()
    await grow(store, 0, 2)
    await sign(store, NOW)
    await sign(store, NOW + TOGETHER - timedelta(seconds=1))
    before = VERIFIER.has_signed(await StoredLog(store).checkpoint() or b"")

    await sign(store, NOW + TOGETHER)

    note = await StoredLog(store).checkpoint() or b""
    assert before
    assert not VERIFIER.has_signed(note)
    assert NEW_VERIFIER.has_signed(note)


async def test_servers_can_be_given_the_new_key_one_by_one() -> None:
    """One with the old key alone and one with both continue the same log; the last has the new."""
    store = MemoryStore()
    await grow(store, 0, 2)
    await sign(store, NOW)

    await grow(store, 10, 2)  # a server with the old key
    await sign(store, NOW + timedelta(minutes=1))
    await leave_pending(store, 20, 2)
    await Sequencer(store, LedgerKeys([OTHER_KEY]), ORIGIN).drain()

    assert len(await texts(store, NEW_VERIFIER)) == 2 + 1 + 3 + 2 + 3 + 2


async def test_two_keys_from_the_start_need_no_announcement() -> None:
    """A new log is signed by both, and has no entry about them."""
    store = MemoryStore()

    await sign(store, NOW)

    assert len(await texts(store, VERIFIER)) == len(await texts(store, NEW_VERIFIER)) == 3


async def test_a_log_of_other_keys_is_left_alone() -> None:
    """A server with the wrong keys announces nothing and signs nothing."""
    store = MemoryStore()
    await grow(store, 0, 2)
    before = await store.revision()

    made = await announce(store, [OTHER_KEY], NOW)
    await leave_pending(store, 5, 1)

    assert made == {}
    assert await store.revision() == before + 1
    with pytest.raises(LedgerBroken):
        await Sequencer(store, LedgerKeys([OTHER_KEY]), ORIGIN).drain()
