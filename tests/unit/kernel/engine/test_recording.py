"""Records of a kind go into the ledger with the change itself, and the feed never sees them."""

import base64
import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from orchid.assembly.kinds import stored_kinds
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import object_seal, seal
from orchid.kernel.store.interface import LATEST, Batch, Page, Revision, Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.errors import Conflict
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.engine.world import Engine, engine

CSR: dict[str, Any] = {
    "metadata": {"name": "alice"},
    "spec": {
        "request": base64.b64encode(samples.request()).decode(),
        "signerName": "example.com/custom",
        "usages": ["client auth"],
    },
}


async def decide(world: Engine, type_: str, version: str = "", **options: Any) -> Entry[Any]:
    """Approve or deny the request, as `kubectl certificate` does."""
    condition = {"type": type_, "status": "True", "reason": "Test"}
    body = {**CSR, "status": {"conditions": [condition]}}
    body["metadata"] = {"name": "alice", "resourceVersion": version}
    endpoint = world.requests.endpoint("approval")
    return await world.put("alice", body, world.requests, endpoint, **options)


async def pending(world: Engine) -> list[dict[str, Any]]:
    records = (await world.store.read(store_keys.PENDING)).records
    return [{**json.loads(record.value), "revision": record.revision} for record in records]


@pytest.mark.parametrize(
    ("type_", "recorded"), [("Approved", "request.approved"), ("Denied", "request.denied")]
)
async def test_a_decision_is_recorded_in_its_own_commit(
    world: Engine, type_: str, recorded: str
) -> None:
    """The entry has the revision of the change, and names nobody in clear."""
    created = await world.create(CSR, world.requests)

    decided = await decide(world, type_)

    [entry] = await pending(world)
    uid = created.meta.uid
    assert entry["revision"] == decided.revision
    assert entry["type"] == recorded
    assert entry["signer"] == "example.com/custom"
    assert entry["request"] == hashlib.sha256(base64.b64decode(CSR["spec"]["request"])).hexdigest()
    assert entry["object"] == object_seal(uid)
    names = {"name": "alice", "requester": "alice", "decider": "alice"}
    assert entry["sealed"] == seal(uid, names)


async def test_a_decision_is_recorded_once(world: Engine) -> None:
    """Later changes of a decided request add no entry."""
    await world.create(CSR, world.requests)
    await decide(world, "Approved")
    await world.merge("alice", {"metadata": {"labels": {"a": "b"}}}, world.requests)

    assert len(await pending(world)) == 1


async def test_a_dry_run_records_nothing(world: Engine) -> None:
    """A change that was not made is not in the ledger."""
    await world.create(CSR, world.requests)
    await decide(world, "Approved", dry_run=True)

    assert await pending(world) == []


async def test_a_change_that_is_refused_records_nothing(world: Engine) -> None:
    """An approval of an old version leaves neither a condition nor an entry."""
    created = await world.create(CSR, world.requests)
    await world.merge("alice", {"metadata": {"labels": {"a": "b"}}}, world.requests)

    with pytest.raises(Conflict):
        await decide(world, "Approved", str(created.revision))

    assert await pending(world) == []


class Noting(MemoryStore):
    """A store that notes what is read and watched."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: set[Span] = set()

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        self.spans.add(span)
        return await super().read(span, at=at, limit=limit)

    def watch(self, span: Span, *, after: Revision) -> AsyncGenerator[Batch, None]:
        self.spans.add(span)
        return super().watch(span, after=after)


async def test_the_ledger_is_not_loaded_with_the_objects() -> None:
    """However large the ledger, a server reads and watches objects alone."""
    store = Noting()
    async with engine(store) as world:
        await world.create(CSR, world.requests)
        await decide(world, "Approved")

        assert store.spans == {store_keys.OBJECTS}


def test_every_object_lies_before_the_ledger() -> None:
    """No kind's keys could ever fall among those of the ledger, in either naming."""
    for names in (ORCH, KUBERNETES):
        for kind in stored_kinds(names):
            assert kind.key("namespace", "name") in store_keys.OBJECTS
