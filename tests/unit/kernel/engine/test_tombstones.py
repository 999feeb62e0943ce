"""What the store remembers for good of objects that are deleted."""

import pytest

from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
    revoked_keys,
)
from orchid.features.token_keys.kinds.signing_key import RETIRED, STATES, past_keys
from orchid.kernel.engine.ledger.store_keys import OBJECTS
from orchid.kernel.engine.tombstones import (
    LONGEST_TEXT,
    PREFIX,
    Tombstone,
    read_tombstone,
    tombstone_changes,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.revoked_credentials import RevokedKey, RevokedToken
from orchid.kernel.wire.struct import replace
from tests.unit.features.token_keys.test_signing_key import PUBLIC, stored


async def test_a_tombstone_is_written_once_and_found_by_name() -> None:
    """The first text stays; the feed, which follows objects, does not see it."""
    store = MemoryStore()
    await store.commit(await tombstone_changes(store, [Tombstone("keys/a", "web-1")]))
    again = await tombstone_changes(store, [Tombstone("keys/a", "x"), Tombstone("keys/b", "y")])

    assert [change.key for change in again] == [f"{PREFIX}keys/b"]
    assert await read_tombstone(store, "keys/a") == "web-1"
    assert await read_tombstone(store, "keys/") is None
    assert f"{PREFIX}keys/a" not in OBJECTS


async def test_a_tombstone_is_short() -> None:
    """Whatever the name of an object."""
    (change,) = await tombstone_changes(MemoryStore(), [Tombstone("keys/a", "x" * 1000)])

    assert change.value is not None
    assert len(change.value) == LONGEST_TEXT


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_retired_key_is_remembered(state: str, is_deleted: bool) -> None:
    """At the step, and at the deletion, for keys that an earlier version retired."""
    unnamed = stored(1, state)
    key = replace(unnamed, status=replace(unnamed.status, public_key=PUBLIC))
    found = list(past_keys(None if is_deleted else key, key))

    expected = [Tombstone(f"keys/{key.public_key_sha256}", key.name)]
    assert found == (expected if state == RETIRED else [])
    assert list(past_keys(unnamed, None)) == []  # of an earlier version, without a public key


def test_a_revoked_key_is_remembered() -> None:
    """By the public key that the server filled in; other revocations leave nothing."""
    for spec, expected in (
        (RevokedKey(name="web-1", sha256="ab"), [Tombstone("keys/ab", "web-1")]),
        (RevokedKey(name="web-1"), []),
    ):
        one = CredentialRevocation(spec=CredentialRevocationSpec(key=spec))
        assert list(revoked_keys(one, None)) == list(revoked_keys(None, one)) == expected
    token = CredentialRevocationSpec(token=RevokedToken(jti="x"))
    assert list(revoked_keys(CredentialRevocation(spec=token), None)) == []
