"""The steps of a rotation, one method at a time, with a client that only records calls."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchid.features.authorities.controllers.rotate_authority_keys import RotateAuthorityKeys
from orchid.features.objects.kinds.lease import Lease, keys_annotation
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.controllers.key_groups import KeyGroup
from orchid.features.token_keys.controllers.rotate_keys import ALLOWANCE, RotationTimes
from orchid.features.token_keys.controllers.rotate_token_keys import RotateTokenKeys
from orchid.features.token_keys.key_rotation import KeyRotation
from orchid.features.token_keys.key_selection import select
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    IMPORTED,
    MADE,
    PUBLISHED,
    RETIRED,
    VERIFYING,
    SigningKey,
)
from orchid.kernel.client.client import DELETED, MODIFIED, WatchedChange
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.revoked_credentials import RevokedKey
from orchid.kernel.wire.signing_key_status import SigningKeyStatus, SigningKeyTimes
from orchid.kernel.wire.struct import replace

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
HOME = ORCH.system_namespace
USERS = SecretReference(namespace=HOME, name="of-a-user")


class Recorded:
    """A client, events and a clock in one: what was written, and the time of the test."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def record(self, *words: object, **more: object) -> None:
        pass

    async def create(self, new: SigningKey) -> SigningKey:
        self.written.append(("create", new.name))
        return new

    async def update(self, new: SigningKey, *, dry_run: bool = False) -> None:
        self.written.append(("update", (new.name, new.state)))

    async def update_status(self, new: SigningKey) -> None:
        self.written.append(("status", new.name))

    async def delete(self, type_: type[Object], name: str, namespace: str = "") -> None:
        self.written.append(("delete", f"{namespace}/{name}"))

    async def delete_gone(self, type_: type[Object], old: Object) -> None:
        self.written.append(("delete", old.name))


@pytest.fixture
def world() -> Recorded:
    return Recorded()


@pytest.fixture
def tokens(world: Recorded) -> RotateTokenKeys:
    rotation = KeyRotation(True, 90 * DAY, DAY, 30 * DAY)
    return RotateTokenKeys(world, ORCH, world, world, rotation)  # type: ignore[arg-type]  # small


@pytest.fixture
def authorities(world: Recorded) -> RotateAuthorityKeys:
    times = RotationTimes(DAY, 30 * DAY)
    return RotateAuthorityKeys(world, ORCH, world, world, times)  # type: ignore[arg-type]  # small


def key(number: int = 1, state: str = ACTIVE, **changes: Any) -> SigningKey:
    """A token key that was created now; `changes` of spec, status, times and metadata."""
    times = {
        name: changes.pop(name)
        for name in ("published", "active", "verifying", "retired")
        if name in changes
    }
    status = {name: changes.pop(name) for name in ("source",) if name in changes}
    born = changes.pop("born", NOW)
    name = f"{changes.get('authority') or 'tokens'}-{number}"
    return SigningKey(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=born),
        spec=SigningKeySpec(**{"algorithm": "ES256", "state": state, **changes}),
        status=SigningKeyStatus(
            key_id=f"kid-{name}", times=SigningKeyTimes(**times), **{"source": MADE, **status}
        ),
    )


def event(one: Object, type_: str = MODIFIED) -> WatchedChange[Any]:
    return WatchedChange(type_, b"", None, _object=one)


def group(*keys: SigningKey, revoked: tuple[str, ...] = ()) -> KeyGroup:
    return KeyGroup(keys[0].spec.authority, list(keys), select(keys, revoked))


async def heard(following: Any) -> list[Any]:
    return [one async for one in following]


def lease(name: str, *keys: str) -> Lease:
    notes = {keys_annotation(ORCH): ",".join(keys)}
    return Lease(metadata=ObjectMeta(name=name, resource_version="1", annotations=notes))


def revocation(of: SigningKey, moment: datetime | None = NOW) -> CredentialRevocation:
    return CredentialRevocation(
        metadata=ObjectMeta(name=f"lost-{of.name}", creation_timestamp=moment),
        spec=CredentialRevocationSpec(key=RevokedKey(name=of.name, key_id=of.key_id)),
    )


def secret(of: SigningKey) -> Secret:
    return Secret(metadata=ObjectMeta(name=of.secret_name, namespace=HOME))


# --- what is followed -------------------------------------------------------------------------


async def test_a_server_whose_lease_is_deleted_is_not_waited_for(
    world: Recorded, tokens: RotateTokenKeys
) -> None:
    """It ended, and took its Lease along; the groups are processed again."""
    waiting = key(2, PUBLISHED)
    tokens.take(event(waiting))
    await heard(tokens._on_secret(event(secret(waiting))))
    await heard(tokens._on_lease(event(lease("one", waiting.key_id))))
    await heard(tokens._on_lease(event(lease("two"))))
    first = await tokens._publish(group(key(), waiting))

    woken = await heard(tokens._on_lease(event(lease("two"), DELETED)))
    then = await tokens._publish(group(key(), waiting))

    assert (first, then, woken) == (False, True, [("", "tokens")])
    assert world.written == [("status", "tokens-2")]


@pytest.mark.parametrize("without", ["no server", "one of two"])
async def test_a_key_is_published_when_every_live_server_has_it(
    world: Recorded, tokens: RotateTokenKeys, without: str
) -> None:
    """Not when one of them has it, and not before any has reported."""
    waiting = key(2, PUBLISHED)
    await heard(tokens._on_secret(event(secret(waiting))))
    for name, keys in (("one", (waiting.key_id,)), ("two", ())) if without != "no server" else ():
        await heard(tokens._on_lease(event(lease(name, *keys))))

    assert not await tokens._publish(group(key(), waiting))
    assert world.written == []


async def test_the_revocation_of_a_key_counts_while_it_is_there(tokens: RotateTokenKeys) -> None:
    """And wakes the group of its key; a revocation of something else concerns no key."""
    tokens.take(event(key()))
    other = replace(revocation(key()), spec=CredentialRevocationSpec())
    ignored = await heard(tokens._on_revocation(event(other)))
    woken = await heard(tokens._on_revocation(event(revocation(key()))))
    there = tokens._revocations.identities()
    again = await heard(tokens._on_revocation(event(revocation(key()), DELETED)))

    assert (ignored, woken, again) == ([], [("", "tokens")], [("", "tokens")])
    assert (there, tokens._revocations.identities()) == ({"kid-tokens-1"}, set())


# --- after a revocation -----------------------------------------------------------------------


@pytest.mark.parametrize(("born", "goes"), [(-SECOND, True), (timedelta(), True), (SECOND, False)])
async def test_a_key_from_before_a_revocation_is_replaced(
    tokens: RotateTokenKeys, born: timedelta, *, goes: bool
) -> None:
    """Verifiers may have cached it with the revoked one; a later key makes them fetch."""
    lost, signer = key(1, RETIRED), key(2, born=NOW + born)
    for one in (lost, signer):
        tokens.take(event(one))
        await heard(tokens._on_secret(event(secret(one))))
    await heard(tokens._on_revocation(event(revocation(lost))))

    assert tokens.must_go(signer) is goes


@pytest.mark.parametrize("revoked", ["of another group", "without a time", "of nothing"])
async def test_other_revocations_replace_no_key(tokens: RotateTokenKeys, revoked: str) -> None:
    """Those of another authority, and one whose time is not known."""
    signer = key(born=None if revoked == "of nothing" else NOW - DAY)
    tokens.take(event(signer))
    await heard(tokens._on_secret(event(secret(signer))))
    of = key(7, authority="web") if revoked == "of another group" else signer
    moment = None if revoked == "without a time" else NOW
    await heard(tokens._on_revocation(event(revocation(of, moment))))

    assert not tokens.must_go(signer)


@pytest.mark.parametrize(
    ("ago", "waits"),
    [
        (timedelta(), True),
        (-ALLOWANCE, True),  # the clock of the server that stored it is ahead
        (-ALLOWANCE - SECOND, False),
        (SECOND, False),
    ],
)
async def test_no_successor_is_created_in_the_second_of_a_revocation(
    world: Recorded, tokens: RotateTokenKeys, ago: timedelta, *, waits: bool
) -> None:
    """It would count as older, and be replaced by a third one."""
    lost, signer = key(1, RETIRED), key(2)
    for one in (lost, signer):
        tokens.take(event(one))
    await heard(tokens._on_revocation(event(revocation(lost, NOW - ago))))
    world.time = NOW + timedelta(milliseconds=900)

    if waits:
        with pytest.raises(TryAgain):
            await tokens._publish(group(lost, signer, revoked=(lost.key_id,)))
    else:
        assert await tokens._publish(group(lost, signer, revoked=(lost.key_id,)))
    assert world.written == ([] if waits else [("create", "tokens-3")])


# --- private keys -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "source", "is_deleted"),
    [
        ({}, MADE, True),
        ({"algorithm": "", "secret_ref": USERS}, IMPORTED, False),
        ({"algorithm": "", "secret_ref": USERS}, MADE, True),
        (
            {"algorithm": "", "secret_ref": SecretReference(namespace="pki", name="ca")},
            MADE,
            False,
        ),
    ],
    ids=["created", "of a user", "of an earlier version", "elsewhere"],
)
async def test_the_secret_of_a_user_stays_when_its_key_retires(
    world: Recorded,
    authorities: RotateAuthorityKeys,
    spec: dict[str, Any],
    source: str,
    *,
    is_deleted: bool,
) -> None:
    """The server deletes those private keys that it stored, in the system namespace."""
    retired = key(1, RETIRED, authority="web", source=source, retired=NOW, **spec)
    location = authorities._secret_of(retired)
    await heard(authorities._on_secret(event(Secret(metadata=ObjectMeta(name=location.name)))))

    assert await authorities._clean_up([retired]) is is_deleted
    assert world.written == ([("delete", f"{HOME}/{location.name}")] if is_deleted else [])


@pytest.mark.parametrize(
    ("age", "is_there", "is_unusable"),
    [
        (ALLOWANCE, False, False),
        (ALLOWANCE + SECOND, False, True),
        (ALLOWANCE + SECOND, True, False),
        (None, False, True),
    ],
)
async def test_a_successor_without_its_secret_is_unusable_after_a_while(
    tokens: RotateTokenKeys, age: timedelta | None, *, is_there: bool, is_unusable: bool
) -> None:
    """A new one may be seen before its Secret."""
    waiting = key(2, PUBLISHED, born=None if age is None else NOW - age)
    if is_there:
        await heard(tokens._on_secret(event(secret(waiting))))

    assert tokens.is_unusable(waiting) is is_unusable


@pytest.mark.parametrize(("left", "is_deleted"), [(SECOND, False), (timedelta(), True)])
@pytest.mark.parametrize("authority", ["", "web"])
async def test_a_retired_key_is_deleted_after_its_retention(
    world: Recorded,
    tokens: RotateTokenKeys,
    authorities: RotateAuthorityKeys,
    authority: str,
    left: timedelta,
    *,
    is_deleted: bool,
) -> None:
    """Not when it retires: its number and its list are still looked up."""
    controller = authorities if authority else tokens
    retired = key(1, RETIRED, authority=authority, retired=NOW - 30 * DAY + left)

    assert await controller._clean_up([retired]) is is_deleted
    assert world.written == ([("delete", retired.name)] if is_deleted else [])


async def test_a_verifying_key_stays(world: Recorded, tokens: RotateTokenKeys) -> None:
    """Until its last status says that nothing depends on it."""
    verifying = key(1, VERIFYING, verifying=NOW)

    assert not await tokens._clean_up([verifying])
    assert world.written == []
