"""Sealed values: what is written cannot be read beside the store, and nothing is mistaken."""

from collections.abc import AsyncIterator, Sequence

import pytest

from orchid.kernel.store.encryption import (
    NO_VALUE,
    AesGcm,
    EncryptedStore,
    IdentityProvider,
    Provider,
    key_name,
)
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.secretbox import SecretBox
from tests.unit.kernel.store.suite import StoreSuite

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


# -- rotation ------------------------------------------------------------------------------

SECRETS = "core/secrets/"


async def test_a_server_seals_with_the_first_key_that_all_servers_can_open() -> None:
    """A new key in front waits until the last server has it; then it seals, without a restart."""
    backend, shared = MemoryStore(), {ONE.key_id}
    store = sealed(backend, TWO, ONE)
    store.is_shared = lambda prefix, provider: provider.key_id in shared

    before = await store.commit([Change(KEY, PLAIN, ABSENT)])
    mark_before = (await raw(backend))[:6]
    shared.add(TWO.key_id)
    await store.commit([Change(KEY, PLAIN, before)])

    assert mark_before == ONE.mark
    assert (await raw(backend)).startswith(TWO.mark)


@pytest.mark.parametrize(
    ("providers", "sealed_by"),
    [
        ((TWO, ONE), ONE),
        ((TWO, ONE, IdentityProvider(b"x:")), ONE),
        ((TWO, IdentityProvider(b"x:")), TWO),
    ],
    ids=["as-before", "never-clear-text", "no-value-yet"],
)
async def test_without_reports_of_other_servers_nothing_changes(
    providers: Sequence[Provider], sealed_by: Provider
) -> None:
    """A server of an earlier version reports no keys: the key that has sealed values goes on."""
    backend = MemoryStore()
    await sealed(backend, ONE).commit([Change(f"{KEY}-older", PLAIN, ABSENT)])
    store = sealed(backend, *providers)
    await store.read(Span.all())
    store.is_shared = lambda prefix, provider: provider.key_id == "identity"

    await store.commit([Change(KEY, PLAIN, ABSENT)])

    assert (await raw(backend)).startswith(sealed_by.mark)


async def test_the_same_name_with_another_secret_is_another_key() -> None:
    """Servers compare keys by a fingerprint; it does not contain the key."""
    other = AesGcm(ONE.mark, b"9" * 32)

    assert other.key_id != ONE.key_id
    assert key_name(other.key_id) == key_name(ONE.key_id) == "one"
    assert AesGcm(ONE.mark, b"1" * 32).key_id == ONE.key_id


async def test_values_are_counted_by_their_key() -> None:
    """As they are stored, by any server; a deleted value is not counted."""
    backend = MemoryStore()
    old = sealed(backend, ONE)
    first = await old.commit([Change(KEY, PLAIN, ABSENT), Change(f"{KEY}2", PLAIN, ABSENT)])
    store = sealed(backend, TWO, ONE)
    await store.read(Span.all())
    at_first = counted(store)

    await backend.commit([Change(KEY, None, first), Change(f"{KEY}3", b"x:aes:v1:lost:?", ABSENT)])
    await anext(store.watch(Span.all(), after=first))

    assert at_first == {"one": 2}
    assert counted(store) == {"one": 1, "lost": 1}


async def test_a_value_that_was_deleted_unseen_is_not_counted_after_the_next_load() -> None:
    """A watch may miss deletions if history was compacted; everything is then read again."""
    backend = MemoryStore()
    store = sealed(backend, ONE)
    first = await store.commit([Change(KEY, PLAIN, ABSENT), Change(f"{KEY}2", PLAIN, ABSENT)])
    await store.read(Span.all())
    await backend.commit([Change(KEY, None, first)])

    page = await store.read(Span.all(), limit=1)
    while page.more:
        page = await store.read(Span.all().after(page.records[-1].key), at=page.revision, limit=1)

    assert counted(store) == {"one": 1}


async def test_a_read_of_the_past_counts_nothing() -> None:
    """Only current values depend on a key."""
    backend = MemoryStore()
    first = await sealed(backend, ONE).commit([Change(KEY, PLAIN, ABSENT)])
    store = sealed(backend, TWO, ONE)
    await store.read(Span.all())
    await store.commit([Change(KEY, PLAIN, first)])
    await store.read(Span.key(KEY))

    await store.read(Span.key(KEY), at=first)

    assert counted(store) == {"two": 1}


async def test_a_key_is_needed_while_a_value_is_sealed_with_it() -> None:
    """Also clear text is needed: without `identity` it could not be read."""
    backend = MemoryStore()
    await sealed(backend, ONE).commit([Change(KEY, PLAIN, ABSENT)])
    await backend.commit([Change(f"{KEY}2", PLAIN, ABSENT)])
    store = sealed(backend, TWO, ONE, IdentityProvider(b"x:"))
    await store.read(Span.all())

    needed = list(store.needed_beside({SECRETS: [TWO]}))
    nothing = list(store.needed_beside({SECRETS: [ONE, IdentityProvider(b"x:")]}))

    assert [(one.key, one.number) for one in needed] == [("one", 1), ("identity", 1)]
    assert nothing == []


async def test_the_names_of_missing_keys_are_in_the_values() -> None:
    """A key of the same name with another secret is not missing: the value is damaged, or lost."""
    backend = MemoryStore()
    await backend.commit([Change(KEY, b"x:aes:v1:key7:data", ABSENT)])
    await sealed(backend, ONE).commit([Change(f"{KEY}2", PLAIN, ABSENT)])
    store = sealed(backend, AesGcm(ONE.mark, b"9" * 32))
    await store.read(Span.all())

    assert store.missing_keys(lambda _: True) == {"key7"}
    assert store.missing_keys(lambda _: False) == set()


def counted(store: EncryptedStore) -> dict[str, int]:
    return {one.key: one.number for one in store.counts() if one.number}


async def test_clear_text_needs_no_key_where_nothing_is_sealed() -> None:
    """A prefix that the other file does not name is in clear text there, too."""
    backend = MemoryStore()
    await backend.commit([Change(KEY, PLAIN, ABSENT)])
    store = sealed(backend, TWO, IdentityProvider(b"x:"))
    await store.read(Span.all())

    assert list(store.needed_beside({})) == []
    assert list(store.needed_beside({SECRETS: []})) == []


async def test_a_read_of_the_past_during_a_load_counts_nothing() -> None:
    """Only the pages of the load itself, which are of one revision."""
    backend = MemoryStore()
    old = sealed(backend, ONE)
    first = await old.commit([Change(KEY, PLAIN, ABSENT), Change(f"{KEY}2", PLAIN, ABSENT)])
    store = sealed(backend, TWO, ONE)
    await store.commit([Change(KEY, PLAIN, first), Change(f"{KEY}2", None, first)])
    await store.commit([Change(f"{KEY}3", PLAIN, ABSENT)])

    page = await store.read(Span.all(), limit=1)
    await store.read(Span.all(), at=first)
    while page.more:
        page = await store.read(Span.all().after(page.records[-1].key), at=page.revision, limit=1)

    assert counted(store) == {"two": 2}


async def test_a_key_whose_values_were_all_written_again_is_not_needed() -> None:
    """It may go from the file."""
    backend = MemoryStore()
    first = await sealed(backend, ONE).commit([Change(KEY, PLAIN, ABSENT)])
    store = sealed(backend, TWO, ONE)
    await store.read(Span.all())

    before = list(store.needed_beside({SECRETS: [TWO]}))
    await store.commit([Change(KEY, PLAIN, first)])
    await store.read(Span.key(KEY))

    assert [(one.key, one.number) for one in before] == [("one", 1)]
    assert list(store.needed_beside({SECRETS: [TWO]})) == []
