"""Editions in memory, and who has them: without a server."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.objects.kinds import config_map
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles import editions as module
from orchid.features.trust_bundles import stored_edition
from orchid.features.trust_bundles.consumers import LONGEST_NAME, Consumers
from orchid.features.trust_bundles.editions import PKCS12, SPIFFE, PublishedEditions, ServedEdition
from orchid.features.trust_bundles.kinds import published_bundle
from orchid.features.trust_bundles.kinds.published_bundle import (
    PublishedBundle,
    PublishedBundleStatus,
)
from orchid.features.trust_bundles.pages import LONGEST_WAIT, MARGIN, TrustPages
from orchid.features.trust_bundles.stored_edition import MOST_CONSUMERS, ConsumerList, SeenConsumer
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import ANONYMOUS
from tests.unit.features.beside import MovingClock

NOW = datetime(2030, 1, 1, 10, 30, tzinfo=UTC)


def bundle(name: str) -> PublishedBundle:
    return PublishedBundle(metadata=ObjectMeta(name=name), status=PublishedBundleStatus(sequence=7))


def event(one: PublishedBundle) -> Any:
    return SimpleNamespace(object=one, type="LISTED", key=("", one.name), data=b"")


async def test_a_bundle_that_was_deleted_meanwhile_is_not_served() -> None:
    """The watch was down: the next list does not have it. What waits for it is answered."""
    nobody: Any = None
    editions = PublishedEditions(nobody, ORCH)
    for name in ("gone", "stays"):
        editions.bundles[name] = bundle(name)
        editions._editions[name] = ServedEdition(bundle(name), b"pem")
    waiting = asyncio.create_task(editions.wait_for_change("gone", 60))
    await asyncio.sleep(0)
    assert editions.waiting == 1

    editions.starting()
    editions.take(event(bundle("stays")))
    await editions.all_listed()
    await asyncio.wait_for(waiting, 10)

    assert list(editions.bundles) == ["stays"]
    assert editions.current("gone") is None
    assert editions.current("stays") is not None


async def test_a_bookmark_removes_no_bundle() -> None:
    """It ends no list."""
    nobody: Any = None
    editions = PublishedEditions(nobody, ORCH)
    editions.bundles["one"] = bundle("one")

    await editions.all_listed()

    assert list(editions.bundles) == ["one"]


async def test_each_form_is_made_once_and_the_spiffe_form_for_each_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the SPIFFE form contains the hint; that of an earlier hint is forgotten."""
    made: list[tuple[str, int]] = []

    def spiffe(_text: bytes, *, sequence: int, refresh_seconds: int) -> bytes:
        made.append((SPIFFE, refresh_seconds))
        return b"spiffe %d %d" % (sequence, refresh_seconds)

    def java(_text: bytes, *, password: bool) -> bytes:
        made.append((PKCS12, password))
        return b"java"

    forms = SimpleNamespace(spiffe_bundle=spiffe, java_trust_store=java)
    monkeypatch.setattr(module, "forms", forms)
    edition = ServedEdition(bundle("pay"), b"pem")

    for hint in (300, 300, 120):
        assert await edition.form(SPIFFE, hint) == b"spiffe 7 %d" % hint
        assert await edition.form(PKCS12, hint) == b"java"

    assert made == [(SPIFFE, 300), (PKCS12, True), (SPIFFE, 120)]
    assert set(edition._forms) == {(PKCS12, 0), (SPIFFE, 120)}


def consumers() -> Consumers:
    nobody: Any = None
    return Consumers(nobody, nobody, ORCH, MovingClock())


def test_a_client_with_a_name_is_listed_and_another_is_counted() -> None:
    """At the full hour; without a name, or with one too long, only what was sent counts."""
    found = consumers()
    for user in ("alice", ANONYMOUS, "x" * (LONGEST_NAME + 1)):
        for sent in (True, False):
            found.seen("pay", user, 7, NOW, sent=sent)

    hour = int(NOW.replace(minute=0).timestamp())
    assert found._notes["pay"] == ConsumerList({"alice": SeenConsumer(7, hour)}, {7: 2})


def test_beyond_the_limit_only_known_names_are_listed() -> None:
    """Others are counted, if they received the edition."""
    found = consumers()
    for number in range(MOST_CONSUMERS):
        found.seen("pay", f"c{number}", 7, NOW, sent=True)

    found.seen("pay", "c0", 8, NOW, sent=True)
    found.seen("pay", "new", 8, NOW, sent=True)
    found.seen("pay", "new", 8, NOW, sent=False)

    notes = found._notes["pay"]
    assert len(notes.named) == MOST_CONSUMERS
    assert notes.named["c0"].sequence == 8
    assert notes.others == {8: 1}


def waited(given: str | None, timeout: float = 60.0, spent: float = 0.0) -> float:
    parts: Any = None, None, SimpleNamespace(now=lambda: NOW)
    pages = TrustPages(*parts)
    exchange: Any = SimpleNamespace(
        query={"wait": [given]} if given is not None else {},
        now=datetime.fromtimestamp(NOW.timestamp() - spent, UTC),
        http=SimpleNamespace(timeout=timeout),
    )
    return pages._wait(exchange)


def test_a_request_waits_for_the_shortest_of_three_times() -> None:
    """What it asks for, the longest wait, and what is left of its deadline."""
    assert waited(None) == waited("") == 0.0
    assert waited("10s") == 10.0
    assert waited("10h", timeout=1e6) == LONGEST_WAIT
    assert waited("50s", timeout=20.0) == 20.0 - MARGIN
    assert waited("50s", timeout=20.0, spent=4.0) == 16.0 - MARGIN
    assert waited("50s", timeout=20.0, spent=-4.0) == 20.0 - MARGIN, "a clock that went back"
    with pytest.raises(BadRequest, match="wait"):
        waited("soon")


class Stored:
    """A client: the list of consumers that is there, and what is written in its place."""

    def __init__(self, owner: PublishedBundle) -> None:
        self.catalog = Catalog([config_map.declare(ORCH), published_bundle.declare(ORCH)])
        earlier = ConsumerList({"earlier": SeenConsumer(7, int(NOW.timestamp()))})
        data = {stored_edition.CONSUMERS: stored_edition.write_consumers(earlier)}
        name = stored_edition.consumers_name("pay")
        self.there = stored_edition.owned_map(owner, "v1", ORCH, name, data=data)
        self.updated: list[ConfigMap] = []

    async def find(self, _type: object, _name: str, _namespace: str) -> ConfigMap:
        return self.there

    async def update(self, new: ConfigMap) -> None:
        self.updated.append(new)


@pytest.mark.parametrize("own", [True, False])
async def test_clients_are_not_added_to_the_list_of_an_earlier_bundle(*, own: bool) -> None:
    """They are written when the publisher has deleted it."""
    made = bundle("pay").with_meta(uid="b1")
    client: Any = Stored(made if own else made.with_meta(uid="b0"))
    editions: Any = SimpleNamespace(bundles={"pay": made})
    clock: Any = SimpleNamespace(now=lambda: NOW)
    found = Consumers(client, editions, ORCH, clock)
    found.seen("pay", "alice", 7, NOW, sent=True)

    await found.write()

    named = [stored_edition.read_consumers(one).named.keys() for one in client.updated]
    assert named == ([{"earlier", "alice"}] if own else [])
    assert ("pay" in found._notes) is not own
