"""The check of the ledger after faults: it finds what it is there to find."""

import json
from pathlib import Path

import pytest

from orchid.kernel.credentials.keys import encode_private
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.memory import MemoryStore
from tests.faults.decisions import RECORDED, STORED_REQUESTS, Recorded, ledger_violations
from tests.unit.features.ledger.logs import KEY, NOW, grow, sequencer

FACT = Fact("request.approved", {"signer": "s"})


def approved(name: str) -> Change:
    body = {"metadata": {"uid": f"uid-{name}"}, "status": {"conditions": [{"type": "Approved"}]}}
    return Change(STORED_REQUESTS.start + name, json.dumps(body).encode(), ABSENT)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "ledger.key").write_text(encode_private(KEY))
    return tmp_path


@pytest.mark.parametrize("logged", [True, False])
async def test_an_approval_with_its_entry_is_right(data: Path, logged: bool) -> None:
    """Whether the entry has its place yet makes no difference."""
    store = MemoryStore()
    await grow(store, 0, 1)
    await store.commit([approved("a"), *store_keys.pending([FACT], "uid-a", NOW)])
    if logged:
        await sequencer(store).drain()

    assert await ledger_violations(store, data, {"approval": {"uid-a"}}) == []


async def test_each_way_to_be_wrong_is_found(data: Path) -> None:
    """An approval without an entry, an entry without one, one logged twice, one lost."""
    store = MemoryStore()
    await grow(store, 0, 1)
    await store.commit([approved("silent")])
    await store.commit(store_keys.pending([FACT], "uid-imagined", NOW))
    await store.commit([approved("twice"), *store_keys.pending([FACT, FACT], "uid-twice", NOW)])
    await sequencer(store).drain()

    assert sorted(await ledger_violations(store, data, {"approval": {"uid-gone"}})) == [
        "2 entries for one approval",
        "a stored approval has no entry",
        "an acknowledged approval is lost",
        "an entry for an unknown approval",
    ]


@pytest.mark.parametrize("sort", RECORDED, ids=[sort.what for sort in RECORDED])
async def test_each_kind_of_entry_is_checked(data: Path, sort: Recorded) -> None:
    """An object of any kind that is stored without its ledger entry is found."""
    store = MemoryStore()
    await grow(store, 0, 1)
    body = {"metadata": {"uid": "x"}, "status": {"conditions": [{"type": "Approved"}]}}
    await store.commit([Change(f"{sort.stored.start}x", json.dumps(body).encode(), ABSENT)])
    before = await ledger_violations(store, data, {sort.what: {"x", "y"}})

    await store.commit(store_keys.pending([Fact(next(iter(sort.types)))], "x", NOW))

    lost = f"an acknowledged {sort.what} is lost"
    assert before == [f"a stored {sort.what} has no entry", lost]
    assert await ledger_violations(store, data, {sort.what: {"x", "y"}}) == [lost]


async def test_a_log_that_does_not_hold_is_found(data: Path) -> None:
    """A changed tile is reported before all other checks."""
    store = MemoryStore()
    await grow(store, 0, 2)
    [tile] = (await store.read(store_keys.Span.prefix(f"{store_keys.PREFIX}tile/"))).records
    await store.commit([Change(tile.key, bytes(64), tile.revision)])

    [said] = await ledger_violations(store, data, {})
    assert said.startswith("the ledger does not hold: entry 0")
