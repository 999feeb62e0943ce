"""The ledger over HTTP: what changes is not cached, and a lost store is no missing tile."""

import pytest

from orchid.features.ledger.pages.ledger import LedgerPages
from orchid.kernel.store.interface import StoreError
from orchid.kernel.tlog.tiles import Tile
from orchid.kernel.wire.errors import MethodNotAllowed, NoSuchRoute, Unavailable
from tests.unit.kernel.server.request_states import state_of


class Log:
    """A log with one tile of hashes and one of entries."""

    def __init__(self, *, signed: bool = True, lost: bool = False) -> None:
        self._signed, self._lost = signed, lost

    async def checkpoint(self) -> bytes | None:
        if self._lost:
            raise StoreError("etcd is away")
        return b"note" if self._signed else None

    async def tile(self, tile: Tile) -> bytes | None:
        if self._lost:
            raise StoreError("etcd is away")
        present = {"tile/0/000": b"hashes", "tile/entries/000.p/5": b"entries"}
        return next((data for name, data in present.items() if Tile.at(name) == tile), None)


def pages(log: Log, key: str | None = "orchid+0a+AQ") -> LedgerPages:
    async def vkey() -> str | None:
        return key

    return LedgerPages(log, vkey)


@pytest.mark.parametrize(
    ("name", "body", "cache"),
    [
        ("checkpoint", b"note", b"no-cache"),
        ("key", b"orchid+0a+AQ\n", b"no-cache"),
        ("tile/0/000", b"hashes", b"immutable"),
        ("tile/entries/000.p/5", b"entries", b"immutable"),
    ],
)
async def test_each_page_is_served(name: str, body: bytes, cache: bytes) -> None:
    """Nothing is for shared caches: reading needs a right."""
    found = await pages(Log())(state_of("GET", f"/ledger/{name}"))

    assert (found.status, found.body) == (200, body)
    assert cache in found.headers
    assert b"private" in found.headers


@pytest.mark.parametrize(
    "name",
    ["", "tile/0/001", "tile/0/0", "tile/0/000.p/0", "tile/0/000.p/256", "../checkpoint", "keys"],
)
async def test_what_is_not_there_is_not_found(name: str) -> None:
    with pytest.raises(NoSuchRoute):
        await pages(Log())(state_of("GET", f"/ledger/{name}"))


async def test_a_log_without_a_key_or_a_checkpoint_has_no_such_page() -> None:
    with pytest.raises(NoSuchRoute):
        await pages(Log(signed=False))(state_of("GET", "/ledger/checkpoint"))
    with pytest.raises(NoSuchRoute):
        await pages(Log(), None)(state_of("GET", "/ledger/key"))


@pytest.mark.parametrize("name", ["checkpoint", "tile/0/000"])
async def test_a_store_that_does_not_answer_is_not_an_empty_log(name: str) -> None:
    with pytest.raises(Unavailable):
        await pages(Log(lost=True))(state_of("GET", f"/ledger/{name}"))
    with pytest.raises(MethodNotAllowed):
        await pages(Log())(state_of("POST", f"/ledger/{name}"))
