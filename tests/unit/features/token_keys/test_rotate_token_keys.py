"""Token keys: which are rotated, lost, due, and found at the URL of verifiers; of two servers."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.objects.kinds.lease import Lease, keys_annotation
from orchid.features.token_keys.controllers.key_groups import KeyGroup
from orchid.features.token_keys.controllers.rotate_token_keys import (
    UNLOADED_SECONDS,
    RotateTokenKeys,
)
from orchid.features.token_keys.key_rotation import KeyRotation
from orchid.features.token_keys.key_selection import KeySelection
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import DAY, NOW

AT = "2026-03-01T12:00:00Z"  # NOW


class Recorder:
    """Notes the reasons of Events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record(self, _component: str, _about: Any, reason: str, _text: str, **_: str) -> None:
        self.reasons.append(reason)


class Rotating:
    """The controller, over a client and a clock."""

    def __init__(
        self,
        *stored: SigningKey,
        is_stored: bool = True,
        period: timedelta = DAY,
        fetch: Any = None,
    ) -> None:
        self.client: Any = SmallClient(*stored)
        self.clock, self.events = FakeClock(NOW), Recorder()
        rotation = KeyRotation(is_stored, period, timedelta(hours=1), DAY, fetch)
        parts: Any = self.client, ORCH, self.clock, self.events
        self.controller = RotateTokenKeys(*parts, rotation)
        for one in stored:
            self.controller.take(change(one, "LISTED"))
            self.controller._secrets.add(one.secret_name)

    async def server(self, name: str, *key_ids: str, version: str = "1") -> None:
        marks = {keys_annotation(ORCH): ",".join(key_ids)} if key_ids else {}
        meta = ObjectMeta(name=name, resource_version=version, annotations=marks)
        async for _ in self.controller._on_lease(change(Lease(metadata=meta))):
            pass


def key(
    name: str = "tokens-1", state: str = "Active", *, file: bool = False, **more: Any
) -> SigningKey:
    times = more.pop("times", {"active": AT} if state == "Active" else {"published": AT})
    status = {"keyID": f"id-{name}", "times": times, "source": "File" if file else "Made", **more}
    meta, spec = {"name": name, "uid": f"u-{name}"}, {"state": state}
    return convert({"metadata": meta, "spec": spec, "status": status}, SigningKey)


def group(*signers: SigningKey) -> KeyGroup:
    return KeyGroup("", list(signers), KeySelection(signers, signers))


@pytest.mark.parametrize(
    ("found", "is_stored", "ours"),
    [
        (key(), True, True),
        (key(), False, False),
        (key(file=True), True, True),
        (key(file=True), False, True),
        (replace(key(), spec=replace(key().spec, authority="web")), True, False),
        (replace(key(file=True), spec=replace(key().spec, authority="web")), False, False),
    ],
)
def test_keys_of_authorities_and_those_beside_files_are_not_rotated_here(
    found: SigningKey, is_stored: bool, ours: bool
) -> None:
    assert Rotating(is_stored=is_stored).controller.concerns(found) is ours


# -- lost keys ------------------------------------------------------------------------------------


async def unloaded(found: SigningKey, **servers: Collection[str]) -> bool:
    """Whether a key counts as lost after these servers do not report it for long enough."""
    made = Rotating(found)
    for name, key_ids in servers.items():
        await made.server(name, *key_ids)
    assert not made.controller.is_lost(found)
    made.clock.advance(UNLOADED_SECONDS)
    for name, key_ids in servers.items():
        await made.server(name, *key_ids, version="2")
    return made.controller.is_lost(found)


HERE, OTHER = ("id-tokens-1",), ("id-other",)


@pytest.mark.parametrize(
    ("servers", "lost"),
    [
        ({"a": HERE, "b": HERE}, False),
        ({"a": HERE, "b": OTHER}, True),
        ({"a": OTHER, "b": HERE}, True),
        ({"a": HERE, "b": ()}, False),
        ({}, False),
    ],
)
async def test_a_key_that_one_of_two_servers_cannot_load_is_lost(servers: Any, lost: bool) -> None:
    """A server of an earlier version reports no keys at all."""
    assert await unloaded(key(), **servers) is lost


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (key(), True),
        (key(state="Published"), True),
        (key(times={"active": AT}, state="Published"), True),
        (key(times={"published": AT}), True),
        (key(times={}), False),
        (key(times={}, state="Published"), False),
        (key(state="Verifying"), False),
        (key(state="Retired"), False),
    ],
)
async def test_a_key_is_lost_that_every_server_had(found: SigningKey, lost: bool) -> None:
    """Not one that no server has loaded yet, or that may not sign any more."""
    assert await unloaded(found, a=OTHER) is lost


async def test_the_time_without_a_key_begins_again_after_a_report() -> None:
    made = Rotating(key())
    await made.server("a", *OTHER)
    assert not made.controller.is_lost(key())
    made.clock.advance(UNLOADED_SECONDS - 1)
    await made.server("a", *HERE, version="2")
    assert not made.controller.is_lost(key())
    made.clock.advance(1)
    await made.server("a", *OTHER, version="3")

    assert not made.controller.is_lost(key())
    made.clock.advance(UNLOADED_SECONDS - 1)
    await made.server("a", *OTHER, version="4")
    assert not made.controller.is_lost(key())
    made.clock.advance(1)
    assert made.controller.is_lost(key())


async def test_a_key_whose_secret_is_gone_is_lost_at_once() -> None:
    made = Rotating(key())
    await made.server("a", *HERE)

    made.controller._secrets.clear()

    assert made.controller.is_lost(key())


# -- when it is due -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signer", "period", "due"),
    [
        (key(times={"active": "2026-02-28T12:00:00Z"}), DAY, True),
        (key(times={"active": "2026-02-28T12:00:01Z"}), DAY, False),
        (key(times={"active": "2020-01-01T00:00:00Z"}), timedelta(), False),
        (key(times={}), DAY, False),
    ],
)
def test_a_successor_signs_after_the_period(signer: Any, period: timedelta, due: bool) -> None:
    """Counted from when the signer became Active; never without a period, which is by hand."""
    made = Rotating(period=period).controller

    assert made.is_due(group(signer), signer) is due


def test_the_end_of_each_period_is_a_moment() -> None:
    keys = group(key(), key("tokens-2", "Published"), key("tokens-3", times={"active": AT}))

    assert list(Rotating().controller.moments(keys)) == [NOW + DAY, NOW + DAY]


@pytest.mark.parametrize(
    ("algorithm", "expected"), [("ES384", "ES384"), ("HS256", "ES256"), ("", "ES256")]
)
def test_a_successor_has_the_algorithm_of_its_signer(algorithm: str, expected: str) -> None:
    """If keys of it are made; and the next free number, also after those of authorities."""
    made = Rotating(key(), key("tokens-7", "Retired")).controller

    successor = made.successor(group(key(algorithm=algorithm)))

    assert successor is not None
    assert (successor.spec.algorithm, successor.state) == (expected, "Published")
    assert successor.name == "tokens-8"


def test_without_a_signer_a_key_is_made_all_the_same() -> None:
    successor = Rotating().controller.successor(group())

    assert successor is not None
    assert successor.spec.algorithm == "ES256"


def test_the_private_key_of_no_token_key_is_kept() -> None:
    assert not Rotating().controller.keeps_private(key())


# -- keys of files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "servers", "goes"),
    [
        (key(file=True), {"a": OTHER}, True),
        (key(file=True), {"a": OTHER, "b": OTHER}, True),
        (key(file=True), {"a": HERE, "b": OTHER}, False),
        (key(file=True), {"a": OTHER, "b": HERE}, False),
        (key(file=True), {}, False),
        (key(), {"a": OTHER}, False),
    ],
)
async def test_the_object_of_a_file_goes_when_no_server_has_the_key(
    found: SigningKey, servers: Any, goes: bool
) -> None:
    """One of several servers is enough, and without any nothing is known."""
    made = Rotating(found)
    for name, key_ids in servers.items():
        await made.server(name, *key_ids)

    assert await made.controller.first_step("") is goes
    assert [one.name for one in made.client.written("delete")] == (["tokens-1"] if goes else [])


async def test_of_two_keys_of_files_the_one_without_a_server_goes() -> None:
    made = Rotating(key("tokens-2", file=True), key(file=True))
    await made.server("a", "id-tokens-2")

    assert await made.controller.first_step("")

    assert [one.name for one in made.client.written("delete")] == ["tokens-1"]


# -- the URL of verifiers -------------------------------------------------------------------------


def published(name: str, **more: Any) -> SigningKey:
    return key(name, "Published", **more)


def fetching(*key_ids: str) -> Any:
    async def fetch() -> Collection[str]:
        return key_ids

    return fetch


async def test_each_key_is_recorded_when_it_is_found() -> None:
    """Whole seconds, as of every time of a key; one that is missing does not hold the others."""
    one, two = published("tokens-2"), published("tokens-3")
    made = Rotating(key(), one, two, fetch=fetching("id-tokens-3"))
    made.clock.advance(0.5)

    assert await made.controller.last_step(group(key(), one, two))

    (found,) = made.client.written("status")
    assert (found.name, found.status.found) == ("tokens-3", NOW)


@pytest.mark.parametrize(
    ("fetch", "waiting"),
    [
        (None, published("tokens-2")),
        (fetching("id-tokens-2"), published("tokens-2", found=AT)),
        (fetching("id-tokens-2"), key("tokens-2")),
        (fetching(), published("tokens-2")),
        (fetching("id-tokens-1"), published("tokens-2")),
    ],
)
async def test_nothing_is_recorded_without_need(fetch: Any, waiting: SigningKey) -> None:
    """Without a URL, a second time, of a key that signs, or of one that is not there."""
    made = Rotating(key(), waiting, fetch=fetch)

    assert not await made.controller.last_step(group(key(), waiting))
    assert made.client.writes == []


async def test_the_url_is_not_asked_without_need() -> None:
    async def fetch() -> Collection[str]:
        raise AssertionError

    made = Rotating(key(), fetch=fetch)

    assert not await made.controller.last_step(group(key()))


async def test_a_url_that_does_not_answer_is_reported() -> None:
    async def fetch() -> Collection[str]:
        raise CallFailed("it does not answer")

    made = Rotating(key(), published("tokens-2"), fetch=fetch)

    assert not await made.controller.last_step(group(key(), published("tokens-2")))
    assert made.events.reasons == ["NotActivated"]
    assert made.client.writes == []
