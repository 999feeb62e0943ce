"""Sealed values: what is written cannot be read beside the store, and nothing is mistaken."""

from collections.abc import AsyncIterator, Sequence

import pytest

from orchid.store.encryption import NO_VALUE, AesGcm, EncryptedStore, IdentityProvider, Provider
from orchid.store.interface import ABSENT, Change, Span
from orchid.store.memory import MemoryStore
from orchid.store.secretbox import SecretBox
from tests.unit.store.suite import StoreSuite

ONE, TWO = AesGcm(b"x:one:", b"1" * 32), AesGcm(b"x:two:", b"2" * 16)
BOX = SecretBox(b"x:box:", b"3" * 32)
PLAIN = b'{"data":{"password":"canary"}}'
KEY, OPEN_KEY = "core/secrets/ci/a", "core/configmaps/ci/a"


def sealed(backend: MemoryStore, *providers: Provider) -> EncryptedStore:
    return EncryptedStore(backend, {"core/secrets/": providers}, sealed=b"x:")


async def raw(backend: MemoryStore, key: str = KEY) -> bytes:
    return (await backend.read(Span.key(key))).records[0].value


@pytest.fixture
async def store() -> AsyncIterator[EncryptedStore]:
    made = EncryptedStore(MemoryStore(), {"": (ONE, IdentityProvider(b"x:"))})
    yield made
    await made.close()


class TestEncryptedStore(StoreSuite):
    """Around a store it is a store: everything is in the suite, with every key sealed."""


@pytest.mark.parametrize("provider", [ONE, TWO, BOX], ids=["aes-256", "aes-128", "secretbox"])
async def test_what_is_written_cannot_be_read_beside_it(provider: Provider) -> None:
    """The backend holds the mark and no word of the value; other prefixes are left alone."""
    backend = MemoryStore()
    store = sealed(backend, provider)

    await store.commit([Change(KEY, PLAIN, ABSENT), Change(OPEN_KEY, PLAIN, ABSENT)])

    assert (await raw(backend)).startswith(provider.mark)
    assert b"canary" not in await raw(backend)
    assert await raw(backend, OPEN_KEY) == PLAIN
    assert (await store.read(Span.key(KEY))).records[0].value == PLAIN


@pytest.mark.parametrize("provider", [ONE, BOX], ids=["aes", "secretbox"])
async def test_the_same_value_never_looks_the_same(provider: Provider) -> None:
    """Two encrypted values do not show that they are equal."""
    assert provider.seal(PLAIN, KEY) != provider.seal(PLAIN, KEY)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((IdentityProvider(b"x:"),), (ONE, IdentityProvider(b"x:"))),
        ((ONE,), (TWO, ONE)),
        ((ONE,), (IdentityProvider(b"x:"), ONE)),
    ],
    ids=["first-key", "next-key", "back-to-plain"],
)
async def test_values_of_an_older_key_stay_readable_and_are_stale(
    before: Sequence[Provider], after: Sequence[Provider]
) -> None:
    """The first provider writes, all read; a value that another sealed is stale until rewritten."""
    backend = MemoryStore()
    await sealed(backend, *before).commit([Change(KEY, PLAIN, ABSENT)])
    store = sealed(backend, *after)

    record = (await store.read(Span.key(KEY))).records[0]
    was_stale = store.is_stale(KEY)
    await store.commit([Change(KEY, PLAIN, record.revision)])
    await store.read(Span.key(KEY))

    assert record.value == PLAIN
    assert was_stale
    assert not store.is_stale(KEY)


async def test_a_watch_opens_what_is_there_and_what_was() -> None:
    """Both sides of an event are as they were written, also across a change of keys."""
    backend = MemoryStore()
    old = sealed(backend, ONE)
    first = await old.commit([Change(KEY, PLAIN, ABSENT)])
    store = sealed(backend, TWO, ONE)
    second = await store.commit([Change(KEY, b"other", first)])
    await store.commit([Change(KEY, None, second)])

    events = []
    async for batch in store.watch(Span.all(), after=first):
        events += batch.events
        if len(events) == 2:
            break

    assert [(event.previous, event.value) for event in events] == [
        (PLAIN, b"other"),
        (b"other", None),
    ]


@pytest.mark.parametrize("change", ["another key", "another place", "one bit"])
async def test_what_does_not_open_is_handed_on_sealed(change: str) -> None:
    """Nobody gets a wrong value: what cannot be opened stays what it is, and is counted."""
    backend = MemoryStore()
    await sealed(backend, ONE).commit([Change(KEY, PLAIN, ABSENT)])
    value, key, reader = await raw(backend), KEY, ONE
    if change == "another key":
        reader = AesGcm(b"x:one:", b"9" * 32)
    elif change == "another place":
        key = "core/secrets/ci/b"
    else:
        value = value[:-1] + bytes((value[-1] ^ 1,))
    moved = MemoryStore()
    await moved.commit([Change(key, value, ABSENT)])
    store = sealed(moved, reader, IdentityProvider(b"x:"))

    found = (await store.read(Span.key(key))).records[0].value

    assert found == value
    assert store.lacks_key(lambda _: True)


async def test_without_a_way_to_read_plain_values_they_are_not_taken() -> None:
    """Write access to the database is not enough to insert a value without the key."""
    backend = MemoryStore()
    await backend.commit([Change(KEY, PLAIN, ABSENT)])
    store = sealed(backend, ONE)

    found = (await store.read(Span.key(KEY))).records[0].value

    assert found == NO_VALUE
    assert not store.lacks_key(lambda _: True)


async def test_a_key_that_opens_other_values_is_not_missing() -> None:
    """One value that does not open is damaged, and no reason to stop serving."""
    backend, damaged = MemoryStore(), ONE.seal(PLAIN, KEY)[:-1]
    await sealed(backend, ONE).commit([Change(f"{KEY}b", PLAIN, ABSENT)])
    await backend.commit([Change(KEY, damaged, ABSENT)])
    store = sealed(backend, ONE)

    await store.read(Span.all())

    assert not store.lacks_key(lambda _: True)


@pytest.mark.parametrize("end", ["deleted", "overwritten", "readable"])
async def test_a_key_is_missing_as_long_as_a_value_needs_it(end: str) -> None:
    """Whether a value is unreadable now is asked of the cache; changes are noticed here."""
    backend = MemoryStore()
    first = await sealed(backend, TWO).commit([Change(KEY, PLAIN, ABSENT)])
    store = sealed(backend, ONE)
    await store.read(Span.all())
    assert store.lacks_key(lambda key: key == KEY)

    if end != "readable":
        value = ONE.seal(PLAIN, KEY) if end == "overwritten" else None
        await backend.commit([Change(KEY, value, first)])
        await anext(store.watch(Span.all(), after=first))

    assert not store.lacks_key(lambda key: key == KEY and end != "readable")
