"""Which clusters count as silent, and what is written about them."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from orchid.features.clusters.controllers.check_clusters import SILENT_AFTER, CheckClusters
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import MODIFIED, Conflict, ErrorSubject, NotFound
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import NOW

ABOUT = ErrorSubject("", "clusters", "prod")
SECOND = timedelta(seconds=1)


def cluster(name: str = "prod", made: datetime | None = NOW, called: Any = None) -> Cluster:
    found = convert({"metadata": {"name": name}}, Cluster).with_meta(creation_timestamp=made)
    return replace(found, status=replace(found.status, last_call=called))


def checker(*stored: Cluster) -> tuple[CheckClusters, SmallClient]:
    client: Any = SmallClient(*stored)
    return CheckClusters(client, FakeClock(NOW)), client


LONG_AGO, JUST_NOW = NOW - SILENT_AFTER, NOW - SILENT_AFTER + SECOND


@pytest.mark.parametrize(
    ("made", "called", "silent"),
    [
        (LONG_AGO, None, True),
        (JUST_NOW, None, False),
        (LONG_AGO, JUST_NOW, False),
        (JUST_NOW, LONG_AGO, True),
        (None, None, False),
    ],
)
async def test_a_cluster_is_silent_ten_minutes_after_its_last_call(
    made: datetime | None, called: datetime | None, silent: bool
) -> None:
    """Without a call, ten minutes after it was created."""
    check, client = checker(cluster(made=made, called=called))

    await check.sweep()

    assert bool(client.written("status")) is silent


async def test_the_report_says_since_when() -> None:
    check, client = checker(cluster("a", LONG_AGO), cluster("b", LONG_AGO, LONG_AGO))

    await check.sweep()

    first, second = (one.status.conditions[0] for one in client.written("status"))
    assert (first.type, first.status, first.last_transition_time) == ("Connected", "False", NOW)
    assert first.message.startswith("There was never a call.")
    assert second.message.startswith("No call since 2026-03-01T11:50:00Z.")


async def test_a_report_is_written_once() -> None:
    check, client = checker(cluster("a", LONG_AGO))

    await check.sweep()
    await check.sweep()

    assert len(client.writes) == 1


@pytest.mark.parametrize("refusal", [Conflict(ABOUT, MODIFIED), NotFound(ABOUT)])
async def test_a_cluster_that_calls_meanwhile_does_not_keep_the_others(refusal: Any) -> None:
    check, client = checker(cluster("a", LONG_AGO), cluster("b", LONG_AGO))
    client.refuses["status"] = refusal
    tried: list[str] = []
    write = client.update_status

    async def update_status(new: Any) -> None:
        tried.append(new.name)
        await write(new)

    client.update_status = update_status

    await check.sweep()

    assert tried == ["a", "b"]
