"""The stored progress of notices: read once, written when it changed, and its limits."""

from typing import Any

import pytest

from orchid.features.notices.notice import NoticeKey
from orchid.features.notices.progress import (
    ENTRY,
    MOST_PENDING,
    NAME,
    RESERVED,
    REVISIONS_SECONDS,
    NoticeProgress,
)
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.small_client import SmallClient
from tests.unit.kernel.credentials.samples import NOW

KEY = NoticeKey("event", "a", "u")


def stored(text: str) -> ConfigMap:
    meta = ObjectMeta(name=NAME, namespace=ORCH.system_namespace, resource_version="7")
    return ConfigMap(metadata=meta, data={ENTRY: text})


async def progress(*found: ConfigMap) -> tuple[NoticeProgress, SmallClient]:
    client: Any = SmallClient(*found)
    made = NoticeProgress(client, ORCH)
    await made.load()
    return made, client


@pytest.mark.parametrize(
    ("pending", "for_limited", "for_others"),
    [
        (MOST_PENDING - 1, False, False),
        (MOST_PENDING, True, False),
        (MOST_PENDING + RESERVED - 1, True, False),
        (MOST_PENDING + RESERVED, True, True),
    ],
)
async def test_what_requesters_cause_leaves_room(
    pending: int, for_limited: bool, for_others: bool
) -> None:
    made, _ = await progress()
    made.pending = {NoticeKey("e", str(number), "u"): NOW for number in range(pending)}

    assert made.is_full_for(is_limited=True) is for_limited
    assert made.is_full_for(is_limited=False) is for_others


async def test_progress_is_read_by_the_next_leader() -> None:
    made, client = await progress()
    made.pending[KEY] = NOW
    made.state.revisions["event"] = 7
    made.state.searched = NOW
    await made.save(0.0)

    again, _ = await progress(client.written("update")[-1])

    assert again.pending == {KEY: NOW}
    assert again.state.revisions == {"event": 7}
    assert again.state.searched == NOW


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pending": 5}', '{"searched": "x"}'])
async def test_a_broken_progress_begins_again(text: str) -> None:
    made, _ = await progress(stored(text))

    assert (made.state.revisions, made.pending) == ({}, {})


async def test_what_waits_here_is_not_replaced_by_what_is_stored() -> None:
    """A second read is for the version alone, which the next write replaces."""
    made, client = await progress(stored('{"revisions": {"a": 1}}'))
    made.pending[KEY] = NOW
    (where,) = client.stored
    client.stored[where] = stored("").with_meta(resource_version="9")

    await made.load()
    await made.save()

    assert made.pending == {KEY: NOW}
    assert client.written("update")[0].metadata.resource_version == "9"


async def test_nothing_is_written_before_it_was_read() -> None:
    """It would replace the progress of the leader before."""
    client: Any = SmallClient()
    made = NoticeProgress(client, ORCH)
    made.pending[KEY] = NOW

    await made.save()

    assert client.writes == []


async def test_only_changes_are_written() -> None:
    made, client = await progress(stored(""))
    made.pending[KEY] = NOW

    await made.save(0.0)
    await made.save(1.0)
    assert len(client.written("update")) == 1
    del made.pending[KEY]
    await made.save(2.0)
    assert len(client.written("update")) == 2


async def test_revisions_alone_are_written_from_time_to_time() -> None:
    """With an older one, some objects are checked again; at the end they are written."""
    made, client = await progress(stored(""))
    await made.save(0.0)
    made.state.revisions["a"] = 1
    await made.save(REVISIONS_SECONDS - 1)
    assert len(client.written("update")) == 1

    await made.save(REVISIONS_SECONDS)
    assert len(client.written("update")) == 2
    await made.save(2 * REVISIONS_SECONDS)
    assert len(client.written("update")) == 2
    made.state.revisions["a"] = 2
    await made.save()
    assert len(client.written("update")) == 3
