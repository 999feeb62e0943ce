"""Rows of long tokens: stored before a token is returned, counted by holder, then removed."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest

from orchid.features.accounts.kinds import service_account
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds import node, secret
from orchid.features.objects.kinds.pod import pod
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.token_keys import long_tokens
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds import signing_key
from orchid.features.token_keys.kinds.signing_key import RETIRED, SigningKey
from orchid.features.token_keys.long_tokens import DAY, PREFIX, LongTokens, holder_of
from orchid.kernel.credentials.token_claims import AccountClaims, Reference
from orchid.kernel.store.interface import Span
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.signing_key_status import SigningKeyStatus
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.access.world import World, world_of

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
TODAY = int(NOW.timestamp()) // DAY
KEY = SigningKey(
    metadata=ObjectMeta(name="tokens-1", uid="key"),
    spec=SigningKeySpec(algorithm="ES256", state="Active"),
    status=SigningKeyStatus(key_id="kid-1"),
)
ACCOUNT = AccountClaims(namespace="ci", serviceaccount=Reference("builder", "account-uid"))
POD = replace(ACCOUNT, pod=Reference("web-1", "pod-uid"), node=Reference("n1", "node-uid"))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    kinds = [one.declare(ORCH) for one in (node, secret, service_account, signing_key, pod)]
    async with world_of(*kinds) as made:
        await made.put(KEY)
        meta = ObjectMeta(name="builder", namespace="ci", uid="account-uid")
        await made.put(ServiceAccount(metadata=meta))
        await made.put(Pod(metadata=ObjectMeta(name="web-1", namespace="ci", uid="pod-uid")))
        yield made


async def rows(world: World) -> dict[str, dict[str, int]]:
    found = (await world.store.read(Span.prefix(PREFIX), limit=100)).records
    return {record.key: msgspec.json.decode(record.value) for record in found}


def in_days(days: int) -> int:
    return (TODAY + days) * DAY + 60


def test_the_holder_is_the_object_whose_deletion_ends_the_token() -> None:
    """A Pod before its Node, the account if a token is bound to nothing."""
    assert str(holder_of(POD)) == "Pod ci/web-1"
    assert str(holder_of(ACCOUNT)) == "ServiceAccount ci/builder"
    assert str(holder_of(replace(ACCOUNT, node=Reference("n1", "u")))) == "Node n1"
    assert str(holder_of(replace(ACCOUNT, secret=Reference("s", "u")))) == "Secret ci/s"


async def test_the_first_token_of_a_day_is_stored_before_it_is_returned(world: World) -> None:
    """Later ones are added with the next write; a crash loses counts and never a row."""
    tokens = LongTokens(world.store, world.feed)
    for _ in range(3):
        await tokens.record("kid-1", POD, in_days(10))
    before = await rows(world)
    await tokens.write()

    place = f"{PREFIX}kid-1/Pod/ci/web-1/pod-uid"
    assert before == {place: {str(TODAY + 10): 1}}
    assert await rows(world) == {place: {str(TODAY + 10): 3}}


async def test_two_servers_add_to_the_same_row(world: World) -> None:
    """Neither loses what the other counted."""
    one, two = LongTokens(world.store, world.feed), LongTokens(world.store, world.feed)
    for tokens in (one, two, one, two):
        await tokens.record("kid-1", ACCOUNT, in_days(5))
    await one.write()
    await two.write()

    assert (await one.dependents(KEY, NOW)).live == 4


async def test_dependents_are_those_that_can_still_be_used(world: World) -> None:
    """A holder that was deleted or replaced, and a day that is over, do not count."""
    tokens = LongTokens(world.store, world.feed)
    await tokens.record("kid-1", POD, in_days(10))
    await tokens.record("kid-1", ACCOUNT, in_days(20))
    await tokens.record("kid-1", ACCOUNT, in_days(-1))
    await tokens.record("kid-2", ACCOUNT, in_days(30))
    stranger = replace(ACCOUNT, serviceaccount=Reference("builder", "an earlier account"))
    await tokens.record("kid-1", stranger, in_days(40))
    found = await tokens.dependents(KEY, NOW)
    gone = ObjectMeta(name="web-1", namespace="ci", uid="pod-uid")
    await world.delete(Pod(metadata=gone))
    after = await tokens.dependents(KEY, NOW)

    assert (found.live, found.holders) == (2, 2)
    assert [one.holder for one in found.longest] == ["ServiceAccount ci/builder", "Pod ci/web-1"]
    assert found.end == datetime.fromtimestamp((TODAY + 20) * DAY + DAY - 1, UTC)
    assert (after.live, after.holders) == (1, 1)


async def test_useless_rows_are_removed(world: World) -> None:
    """Of keys that are Retired or gone, and of days that are over; the next token is stored."""
    tokens = LongTokens(world.store, world.feed)
    await tokens.record("kid-1", ACCOUNT, in_days(-1))
    await tokens.record("kid-1", POD, in_days(10))
    await tokens.record("kid-9", POD, in_days(10))
    await tokens.sweep(TODAY)
    kept = list(await rows(world))
    await world.put(replace(KEY, spec=replace(KEY.spec, state=RETIRED)))
    await tokens.sweep(TODAY)
    none = await rows(world)
    await tokens.record("kid-1", POD, in_days(10))

    assert kept == [f"{PREFIX}kid-1/Pod/ci/web-1/pod-uid"]
    assert none == {}
    assert len(await rows(world)) == 1


async def test_rows_known_to_be_stored_take_little_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older ones are forgotten, and counted in the store again; no token is lost."""
    monkeypatch.setattr(long_tokens, "GENERATION", 4)
    tokens = LongTokens(world.store, world.feed)
    holders = [replace(ACCOUNT, pod=Reference(f"web-{n}", f"uid-{n}")) for n in range(20)]
    known = []

    for _ in range(2):
        for holder in holders:
            await tokens.record("kid-1", holder, in_days(3))
            known.append(len(tokens._stored) + len(tokens._stored_before))
    await tokens.record("kid-1", holders[-1], in_days(3))
    before = sum(sum(days.values()) for days in (await rows(world)).values())
    await tokens.write()

    assert max(known) <= 2 * 4
    assert before == 40  # the last one is only counted in memory
    assert {tuple(days.values()) for days in (await rows(world)).values()} == {(2,), (3,)}
