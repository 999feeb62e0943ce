"""Notes of the server are stored with an object, stay with it, and are sent to nobody."""

import json

import pytest

from orchid.kernel.engine.cache.entry import Entry, UnreadableBytes
from orchid.kernel.engine.verbs.delete import DeleteOptions
from orchid.kernel.engine.verbs.request_body import decode_object
from orchid.kernel.store.interface import Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.naming import KUBERNETES
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.engine.test_recording import CSR, decide
from tests.unit.kernel.engine.world import Engine, engine

CARRIED = {
    "approver": "alice",
    "approvedAt": "2026-01-02T03:04:05Z",
    "approvedBy": '{"username":"alice"}',
}


async def stored(world: Engine) -> bytes:
    [record] = (await world.store.read(Span.key(world.requests.key("", "alice")))).records
    return record.value


async def test_an_approval_is_noted_in_its_own_commit_and_not_sent(world: Engine) -> None:
    """The stored value is the object and the note; the bytes that are sent are the object."""
    await world.create(CSR, world.requests)

    approved = await decide(world, "Approved")

    value = json.loads(await stored(world))
    assert value.pop("note") == approved.notes() == CARRIED
    sent = json.loads(approved.data)
    del sent["metadata"]["resourceVersion"]
    assert sent == value


@pytest.mark.parametrize("options", [{}, {"dry_run": True}], ids=["denied", "dry run"])
async def test_nothing_is_noted_where_nobody_approved(
    world: Engine, options: dict[str, bool]
) -> None:
    """A denial and a dry run leave no note."""
    await world.create(CSR, world.requests)
    await decide(world, "Approved" if options else "Denied", **options)

    assert b'"note"' not in await stored(world)


async def test_the_impersonator_of_a_creator_is_noted_and_stays(world: Engine) -> None:
    """An approval adds its words to those of the creation."""
    request = world.ask("create", world.requests)
    request.real_user = UserInfo(username="mallory")
    new = decode_object(world.catalog, world.requests, json.dumps(CSR).encode(), request)
    await world.verbs.creating.create(world.requests, new, request)

    approved = await decide(world, "Approved")

    assert approved.notes() == {"createdBy": "mallory", **CARRIED}
    assert b"mallory" not in approved.data


async def test_later_changes_keep_the_note(world: Engine) -> None:
    """Also a change of the very condition: the request was approved before."""
    await world.create(CSR, world.requests)
    approved = await decide(world, "Approved")
    again = json.loads(approved.data)
    again["status"]["conditions"][0]["message"] = "seen by somebody else"
    await world.put("alice", again, world.requests, world.requests.endpoint("approval"))
    changed = await world.merge("alice", {"metadata": {"labels": {"a": "b"}}}, world.requests)

    assert changed.notes() == CARRIED
    assert changed.object.status.conditions[0].message == "seen by somebody else"


async def test_another_server_knows_the_note() -> None:
    """A server that starts later reads the note from the store with the object."""
    store = MemoryStore()
    async with engine(store) as first:
        await first.create(CSR, first.requests)
        await decide(first, "Approved")
        async with engine(store) as second:
            request = second.ask("get", second.requests, "alice")

            entry = await second.verbs.reading.get(second.requests, request)

    assert entry.notes() == CARRIED
    assert b"note" not in entry.data


async def test_a_note_outlives_a_change_of_names(world: Engine) -> None:
    """Objects that were stored under the other naming begin with other bytes."""
    await world.create(CSR, world.requests)
    await decide(world, "Approved")
    theirs = (await stored(world)).replace(
        b"certificates.orch.io/v1", KUBERNETES.certificates.encode() + b"/v1", 1
    )

    entry = Entry.read(world.requests, "key", theirs, 9)

    assert entry.notes() == CARRIED
    assert entry.data.startswith(world.requests.stored_head)


async def test_a_client_cannot_send_a_note(world: Engine) -> None:
    """It is no field of any object: what is sent under that name is dropped."""
    forged = {"note": {"approver": "mallory"}}
    await world.create(CSR | forged, world.requests, field_validation="Ignore")
    await world.merge("alice", forged, world.requests, field_validation="Ignore")

    approved = await decide(world, "Approved")

    assert approved.notes() == CARRIED
    assert b"mallory" not in await stored(world)


async def test_a_note_is_gone_with_its_object(world: Engine) -> None:
    """No key of it is left in the store."""
    await world.create(CSR, world.requests)
    await decide(world, "Approved")
    request = world.ask("delete", world.requests, "alice")

    await world.verbs.deleting.delete(world.requests, "alice", DeleteOptions(), request)

    left = (await world.store.read(Span.all())).records
    assert not [record for record in left if b'"approver"' in record.value]


async def test_a_damaged_note_makes_the_object_unreadable(world: Engine) -> None:
    """It is found when the object is loaded, not when somebody needs it."""
    await world.create(CSR, world.requests)
    await decide(world, "Approved")
    damaged = (await stored(world)).replace(b'"approver":', b'"approver"', 1)

    with pytest.raises(UnreadableBytes):
        Entry.read(world.requests, "key", damaged, 9)
