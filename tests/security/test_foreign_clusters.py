"""The attack: the API server of one cluster answers what stops the inventory of all clusters."""

import hashlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from orchid.features.certificates.controllers.clean_issued import CleanIssued
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.clusters.policies import cluster_records
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.errors import Forbidden
from tests.security.foreign_cluster import (
    HOME,
    ForeignServer,
    authority,
    foreign_server,
    inventoried,
    issued,
    page,
    registered,
    request,
    token,
)
from tests.unit.features.beside import Beside, beside
from tests.unit.kernel.credentials import unusual

DAY = 86400


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


@pytest.fixture
async def bad() -> AsyncIterator[ForeignServer]:
    async with foreign_server() as server:
        yield server


@pytest.fixture
async def good() -> AsyncIterator[ForeignServer]:
    async with foreign_server() as server:
        yield server


async def recorded(world: Beside, cluster: str, certificate: bytes) -> IssuedCertificate:
    name = f"{cluster}.{hashlib.sha256(certificate).hexdigest()}"
    return await world.until_like(IssuedCertificate, name)


async def others_go_on(world: Beside, good: ForeignServer) -> None:
    """Another cluster is recorded, now and with all that comes."""
    certificate = issued("bob")
    good.pages = lambda _: page(request(certificate))
    await registered(world, "good", good.kubeconfig())
    await recorded(world, "good", certificate)


def now(world: Beside) -> int:
    return int(world.clock.now().timestamp())


@pytest.mark.parametrize(
    ("iat", "exp"),
    [
        ("1e400", "1e400"),
        ("1", "1e400"),
        ("NaN", "2"),
        ("1.5", "4e9"),
        (str(-(2**70)), str(2**70)),
        ("true", "4000000000"),
        ('"1"', "4000000000"),
        ("4000000000", "1"),
        ("[" * 5000, "1"),
    ],
)
async def test_a_renewed_token_with_impossible_times_is_not_stored(
    world: Beside, bad: ForeignServer, good: ForeignServer, iat: str, exp: str
) -> None:
    """Stored, it would stop the controller again after each restart."""
    old = bad.kubeconfig(token(now(world) - 2 * DAY, now(world) + DAY))
    bad.issued = token(iat, exp)
    await registered(world, "bad", old)

    async with world.running("cluster-inventory"):
        assert (await inventoried(world, "bad")).status == "True"
        await others_go_on(world, good)

    assert bad.asked_tokens == 1
    assert (await world.admin.get(Secret, "cluster-bad", HOME)).data["kubeconfig"] == old


async def test_a_stored_token_with_impossible_times_stops_nothing(
    world: Beside, bad: ForeignServer, good: ForeignServer
) -> None:
    """An earlier version may have stored one."""
    await registered(world, "bad", bad.kubeconfig(token("1e400", "1e400")))

    async with world.running("cluster-inventory"):
        assert (await inventoried(world, "bad")).status == "True"
        await others_go_on(world, good)


async def test_certificates_that_cannot_be_read_stop_nothing(
    world: Beside, bad: ForeignServer, good: ForeignServer
) -> None:
    """Neither the other clusters, nor the other certificates of this one."""
    readable = issued("carol")
    certificates = [*unusual.UNREADABLE.values(), readable]
    requests = [request(each, f"r{number}") for number, each in enumerate(certificates)]
    bad.pages = lambda _: page(*requests)
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        await recorded(world, "bad", readable)
        await others_go_on(world, good)
        assert (await inventoried(world, "bad")).status == "True"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"metadata": {}, "items": [' + b"{}," * 500_000 + b"{}]}", "more than 100000 values"),
        (page(*[{}] * 51), "51 objects, not at most"),
        (b" " * (3 << 20) + b"{}", "larger than"),
        (page(after="x" * 20_000), "too long"),
        (b'{"metadata": {}, "items": ' + b"[" * 50_000, "not valid JSON"),
        (b"\xff", "not valid JSON"),
    ],
    ids=["values", "objects", "bytes", "position", "depth", "nonsense"],
)
async def test_a_list_that_is_too_large_is_refused_before_it_is_decoded(
    world: Beside, bad: ForeignServer, good: ForeignServer, body: bytes, text: str
) -> None:
    """1.5 million empty objects in 4.5 MB held the event loop for 19 s and took 1.1 GB."""
    bad.pages = lambda _: body
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        condition = await inventoried(world, "bad")
        await others_go_on(world, good)

    assert condition.status == "False"
    assert text in condition.message
    assert max(bad.limits) == 50


async def test_objects_that_are_too_large_together_are_listed_one_by_one(
    world: Beside, bad: ForeignServer
) -> None:
    """Or a user of the cluster would hide certificates behind large requests."""
    certificates = [issued(f"user{number}") for number in range(4)]
    requests = [request(each, f"r{number}") for number, each in enumerate(certificates)]
    for each in requests:
        each["spec"]["request"] = "A" * (1 << 20)

    def pages(query: dict[str, list[str]]) -> bytes:
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        after = start + limit
        shown = requests[start:after]
        return page(*shown, after=str(after) if after < len(requests) else "")

    bad.pages = pages
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        for each in certificates:
            await recorded(world, "bad", each)
        assert (await inventoried(world, "bad")).status == "True"


async def test_an_event_without_an_end_is_refused(
    world: Beside, bad: ForeignServer, good: ForeignServer
) -> None:
    """It was collected up to 64 MB, and copied with every piece."""
    bad.watch = b'{"type": "' + b"A" * (4 << 20)
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        assert "an event has more than" in (await inventoried(world, "bad", "False")).message
        await others_go_on(world, good)


async def test_a_long_message_of_an_error_does_not_fill_the_condition(
    world: Beside, bad: ForeignServer, good: ForeignServer
) -> None:
    """A condition that cannot be written would end the controller."""
    bad.status = "403 Forbidden"
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no\n" * 100_000}
    bad.pages = lambda _: json.dumps(body).encode()
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        condition = await inventoried(world, "bad")
        await others_go_on(world, good)

    assert condition.status == "False"
    assert len(condition.message) <= 1024
    assert condition.message.isprintable()


async def test_the_records_of_a_cluster_have_a_limit(
    world: Beside, bad: ForeignServer, good: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 certificates took 47 s to make, and up to 450 MB of memory for good."""
    monkeypatch.setattr(cluster_records, "MOST_RECORDS", 3)
    certificates = [issued(f"user{number}") for number in range(5)]
    bad.pages = lambda _: page(*map(request, certificates))
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        condition = await inventoried(world, "bad")
        await others_go_on(world, good)

    assert condition.status == "False"
    assert "has 3 records" in condition.message
    assert await names_of(world, "bad") == 3


async def test_the_records_of_a_cluster_have_a_limit_in_bytes(
    world: Beside, bad: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate may have 128 kB, and its record more."""
    monkeypatch.setattr(cluster_records, "MOST_BYTES", 100_000)
    large = unusual.extension("1.2.3.4", b"x" * 30_000)
    certificates = [issued(f"user{number}", large) for number in range(5)]
    bad.pages = lambda _: page(*map(request, certificates))
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        condition = await inventoried(world, "bad")

    assert condition.status == "False"
    assert "and may have at most" in condition.message
    assert await names_of(world, "bad") < 5


async def names_of(world: Beside, cluster: str) -> int:
    selection = ListSelection(IssuedCertificate, fields=f"spec.cluster={cluster}")
    return len((await world.admin.page(selection)).items)


async def test_no_record_stays_after_the_authorities_of_its_cluster(
    world: Beside, bad: ForeignServer, good: ForeignServer
) -> None:
    """A cluster may issue certificates that end in the year 9999, and none ever again."""
    end = (world.clock.now() + timedelta(hours=1)).strftime("%Y%m%d%H%M%SZ").encode()
    endless = issued("mallory", end=unusual.LAST)
    bad.pages = lambda _: page(request(endless))
    await registered(world, "bad", bad.kubeconfig(), authority(end=end))
    async with world.running("cluster-inventory"):
        record = await recorded(world, "bad", endless)
    with pytest.raises(Forbidden, match="valid until"):
        await world.admin.delete(IssuedCertificate, record.name)
    world.clock.ahead = timedelta(days=400)
    world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's time too

    async with world.running("cluster-inventory"):
        await others_go_on(world, good)
        (cleaner,) = world.made("issued-cleaner")
        assert isinstance(cleaner, CleanIssued)
        await cleaner.sweep()

    assert await names_of(world, "bad") == 0


async def test_expired_certificates_are_not_recorded(
    world: Beside, bad: ForeignServer, good: ForeignServer
) -> None:
    """They would be deleted and recorded again in turns."""
    ended, valid = issued("alice", end=b"20210101000000Z"), issued("bob")
    bad.pages = lambda _: page(request(ended), request(valid))
    await registered(world, "bad", bad.kubeconfig())

    async with world.running("cluster-inventory"):
        await recorded(world, "bad", valid)

    assert await names_of(world, "bad") == 1
