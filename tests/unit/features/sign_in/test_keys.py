"""The keys of an issuer: what is fetched when, and which documents are refused."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.sign_in.oidc import keys
from orchid.features.sign_in.oidc.keys import LEAST_INTERVAL, KeySource
from orchid.kernel.credentials.keys import VerificationKey, generate
from orchid.kernel.outbound.failures import AnswerRefused
from tests.unit.kernel.access.presenting import FakeClock

ISSUER = "https://a.example"
CONFIGURATION = f"{ISSUER}/.well-known/openid-configuration"
KEY, NEXT = generate(), generate()


@dataclass(frozen=True)
class Location:
    url: str = ISSUER
    configuration_url: str = CONFIGURATION
    authorities: str = ""
    algorithms: tuple[str, ...] = ("ES256", "RS256")


class Web:
    """The two documents; a missing one is refused."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {
            CONFIGURATION: {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
        }
        self.publish(KEY)
        self.fetched: list[str] = []

    def publish(self, *published: Any) -> None:
        self.pages[f"{ISSUER}/keys"] = {"keys": [key.public.jwk() for key in published]}

    async def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        if url not in self.pages:
            raise AnswerRefused("gone")
        page = self.pages[url]
        return page if isinstance(page, bytes) else json.dumps(page).encode()


class Seen:
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def __call__(self, url: str, found: tuple[VerificationKey, ...]) -> None:
        self.calls.append((url, [key.kid for key in found]))


def source(
    web: Web, changed: Any = None, clock: FakeClock | None = None, **location: Any
) -> KeySource:
    return KeySource(Location(**location), web.fetch, clock or FakeClock(), changed)


async def test_keys_are_fetched_and_reported_when_they_change() -> None:
    web, seen, later = Web(), Seen(), Seen()
    keys_of = source(web, seen)
    assert not keys_of.ready
    assert not keys_of.is_current

    await keys_of.refresh()
    await keys_of.refresh()
    keys_of.follow(later)
    web.publish(KEY, NEXT)
    await keys_of.refresh()
    keys_of.unfollow(seen)
    web.publish(NEXT)
    await keys_of.refresh()

    both = [KEY.kid, NEXT.kid]
    assert seen.calls == [(ISSUER, [KEY.kid]), (ISSUER, both)]
    assert later.calls == [(ISSUER, [KEY.kid]), (ISSUER, both), (ISSUER, [NEXT.kid])]
    assert keys_of.is_current
    assert web.fetched[:2] == [CONFIGURATION, f"{ISSUER}/keys"]


async def test_a_follower_of_no_keys_waits_for_them() -> None:
    web, seen = Web(), Seen()
    keys_of = source(web)

    keys_of.follow(seen)
    assert seen.calls == []
    await keys_of.refresh()
    assert len(seen.calls) == 1


@pytest.mark.parametrize(
    ("page", "document", "problem"),
    [
        (CONFIGURATION, None, "gone"),
        (CONFIGURATION, {"issuer": "https://b.example", "jwks_uri": "x"}, "names another issuer"),
        (CONFIGURATION, {"issuer": ISSUER}, "has no jwks_uri"),
        (CONFIGURATION, {"issuer": ISSUER, "jwks_uri": 7}, "has no jwks_uri"),
        (CONFIGURATION, b"[]", "cannot be used"),
        (f"{ISSUER}/keys", None, "gone"),
        (f"{ISSUER}/keys", {"keys": []}, "no key that we can use"),
        (f"{ISSUER}/keys", b"nonsense", "cannot be used"),
    ],
)
async def test_old_keys_stay_while_the_new_ones_are_unusable(
    page: str, document: Any, problem: str
) -> None:
    web, seen = Web(), Seen()
    keys_of = source(web, seen)
    await keys_of.refresh()
    web.pages.pop(page)
    if document is not None:
        web.pages[page] = document

    await keys_of.refresh()

    assert problem in keys_of.problem
    assert [key.kid for key in keys_of.keys] == [KEY.kid]
    assert keys_of.ready
    assert not keys_of.is_current
    assert len(seen.calls) == 1


async def test_keys_of_other_algorithms_are_named() -> None:
    keys_of = source(Web(), algorithms=("RS256",))

    await keys_of.refresh()

    assert "the published keys are for ES256, and only RS256" in keys_of.problem
    assert not keys_of.ready


@contextlib.contextmanager
def running(keys_of: KeySource) -> Iterator[None]:
    task = asyncio.create_task(keys_of.run())
    try:
        yield
    finally:
        task.cancel()


async def test_a_token_with_an_unknown_key_causes_few_fetches() -> None:
    """One in half a minute; a clock that went back delays none."""
    web, clock = Web(), FakeClock()
    keys_of = source(web, clock=clock)
    with running(keys_of):
        assert await keys_of.newer()
        count = len(web.fetched)
        assert not await keys_of.newer()
        clock.advance((LEAST_INTERVAL - timedelta(seconds=1)).total_seconds())
        assert not await keys_of.newer()
        assert len(web.fetched) == count
        clock.advance(1)
        assert await keys_of.newer()
        assert len(web.fetched) == count + 2
        clock.advance(-3600)
        assert await keys_of.newer()


async def test_two_tokens_wait_for_the_same_fetch() -> None:
    web, clock = Web(), FakeClock()
    keys_of = source(web, clock=clock)
    with running(keys_of):
        await keys_of.newer()
        clock.advance(60)
        count = len(web.fetched)
        assert await asyncio.gather(keys_of.newer(), keys_of.newer()) == [True, True]
        assert len(web.fetched) == count + 2


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "LONGEST_WAIT", 0.01)

    assert not await source(Web()).newer()


async def test_keys_are_fetched_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon after a failure, later after a success."""
    monkeypatch.setattr(keys, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(keys, "REFRESH_SECONDS", 3600.0)
    web, seen = Web(), Seen()
    page = web.pages.pop(CONFIGURATION)
    keys_of = source(web, seen)
    with running(keys_of):
        async with asyncio.timeout(20):
            while web.fetched.count(CONFIGURATION) < 3:  # noqa: ASYNC110 -- counts attempts
                await asyncio.sleep(0)
            web.pages[CONFIGURATION] = page
            while not keys_of.ready:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0)
        count = len(web.fetched)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(web.fetched) == count


@pytest.mark.parametrize(
    ("other", "is_for"),
    [
        ({}, True),
        ({"algorithms": ("ES256",)}, True),
        ({"algorithms": ("ES256", "PS256")}, False),
        ({"url": "https://b.example"}, False),
        ({"configuration_url": "https://b.example"}, False),
        ({"authorities": "PEM"}, False),
    ],
)
def test_keys_are_shared_by_the_same_configuration(other: Any, is_for: bool) -> None:
    assert source(Web()).is_for(Location(**other)) is is_for
