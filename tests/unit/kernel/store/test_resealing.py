"""Values are written again with the current key: a few at a time, by one server, without a loss."""

import pytest

from orchid.kernel.store.encryption import AesGcm, EncryptedStore, IdentityProvider
from orchid.kernel.store.interface import ABSENT, Change, Span, StoreUnavailable
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.resealing import PER_TURN, Resealing

ONE, TWO = AesGcm(b"x:one:", b"1" * 32), AesGcm(b"x:two:", b"2" * 32)
SECRETS = "core/secrets/"
MANY = PER_TURN + 20


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


async def filled(number: int) -> MemoryStore:
    """A store with values of the first key."""
    backend = MemoryStore()
    old = EncryptedStore(backend, {SECRETS: [ONE]}, sealed=b"x:")
    for each in range(number):
        await old.commit([Change(f"{SECRETS}ci/{each:04}", f"value {each}".encode(), ABSENT)])
    return backend


async def rotated(backend: MemoryStore) -> EncryptedStore:
    store = EncryptedStore(backend, {SECRETS: [TWO, ONE]}, sealed=b"x:")
    await store.read(Span.all())
    return store


def counted(store: EncryptedStore) -> dict[str, int]:
    return {one.key: one.number for one in store.counts()}


async def test_a_turn_is_bounded_and_the_next_server_continues() -> None:
    """Progress is in the values: a server that starts later counts and rewrites the rest."""
    backend = await filled(MANY)
    first = await rotated(backend)
    await Resealing(first, yes).turn()
    await first.read(Span.all())
    after_a_turn = counted(first)
    second = await rotated(backend)

    await Resealing(second, yes).turn()
    page = await second.read(Span.all())

    assert after_a_turn == {"one": MANY - PER_TURN, "two": PER_TURN}
    assert counted(second) == {"one": 0, "two": MANY} or counted(second) == {"two": MANY}
    assert [one.value for one in page.records] == [f"value {n}".encode() for n in range(MANY)]


async def test_only_the_leader_writes() -> None:
    """Others would only conflict with it."""
    backend = await filled(3)
    store = await rotated(backend)
    before = await backend.revision()

    await Resealing(store, no).turn()

    assert await backend.revision() == before


async def test_a_value_that_was_changed_meanwhile_is_not_overwritten() -> None:
    """The index is older than the store: the value is read again before it is written."""
    backend = await filled(1)
    store = await rotated(backend)
    (record,) = (await backend.read(Span.all())).records
    newest = await backend.commit(
        [Change(record.key, TWO.seal(b"newer", record.key), record.revision)]
    )

    await Resealing(store, yes).turn()

    (now,) = (await store.read(Span.all())).records
    assert (now.value, now.revision) == (b"newer", newest)


async def test_values_that_cannot_be_opened_are_left_alone() -> None:
    """Neither a value of a missing key nor clear text that is not accepted is written again."""
    backend = MemoryStore()
    await backend.commit([Change(f"{SECRETS}a", b"x:aes:v1:lost:?", ABSENT)])
    await backend.commit([Change(f"{SECRETS}b", b"clear", ABSENT)])
    store = await rotated(backend)
    before = await backend.revision()

    await Resealing(store, yes).turn()

    assert await backend.revision() == before


async def test_clear_text_is_sealed() -> None:
    """Where `identity` reads it: an installation that begins to seal."""
    backend = MemoryStore()
    await backend.commit([Change(f"{SECRETS}a", b"clear", ABSENT)])
    store = EncryptedStore(backend, {SECRETS: [ONE, IdentityProvider(b"x:")]}, sealed=b"x:")
    await store.read(Span.all())

    await Resealing(store, yes).turn()

    (record,) = (await backend.read(Span.all())).records
    assert record.value.startswith(ONE.mark)


async def test_a_failing_store_is_tried_again() -> None:
    """One failure does not end the work."""
    store = await rotated(await filled(1))
    turns = 0

    async def leads() -> bool:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise StoreUnavailable("away")
        return True

    async def sleep(seconds: float) -> None:
        if turns == 2:
            raise Done

    with pytest.raises(Done):
        await Resealing(store, leads).run(sleep)

    await store.read(Span.all())
    assert counted(store)["two"] == 1


class Done(Exception):
    """The end of a test."""
