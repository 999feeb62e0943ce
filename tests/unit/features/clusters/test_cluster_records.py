"""Records of a cluster's certificates: their limits, their end, and the cluster that has them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
    Requester,
)
from orchid.features.clusters.kinds import cluster
from orchid.features.clusters.kinds.cluster import CLOCKS_DIFFER, Cluster, ClusterSpec
from orchid.features.clusters.policies.cluster_records import (
    MOST_BYTES,
    MOST_RECORDS,
    ClusterRecords,
)
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import ApiError, Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import EVE
from tests.unit.kernel.access.world import World, world_of
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import DER, HOUR, NOW

KINDS = cluster.declare(ORCH), issued_certificate.declare(ORCH)
KIND: Any = KINDS[1]
SECOND = timedelta(seconds=1)
LEAF = chains.make()
SIZE = len(LEAF.public_bytes(DER))


def asked(now: datetime = NOW) -> Request:
    target = Target(verb="create", is_resource=True, resource="issuedcertificates")
    return Request(target=target, user=EVE, now=now)


def a_cluster(name: str, *authorities: Any, made: datetime = NOW) -> Cluster:
    bundle = "".join(pem(one) for one in authorities)
    meta = ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=made)
    spec = ClusterSpec(issuer="https://k", client_authorities=bundle)
    return Cluster(metadata=meta, spec=spec)


def pem(certificate: Any) -> str:
    return str(certificate.public_bytes(Encoding.PEM).decode())


def a_record(certificate: Any = LEAF, cluster: str = "prod") -> IssuedCertificate:
    data = certificate.public_bytes(DER)
    name = f"{cluster}.{certificate.fingerprint(hashes.SHA256()).hex()}"
    spec = IssuedCertificateSpec(cluster=cluster, certificate=data, signer_name="example.com/s")
    return IssuedCertificate(metadata=ObjectMeta(name=name), spec=spec)


@asynccontextmanager
async def clusters(*found: Cluster) -> AsyncIterator[World]:
    async with world_of(*KINDS) as world:
        for one in found:
            await world.put(one)
        yield world


async def refusal(
    world: World, record: IssuedCertificate, now: datetime = NOW, **used: tuple[int, int]
) -> str:
    policy = ClusterRecords(world.feed, lambda one: used.get(one.name, (0, 0)))
    try:
        await policy.admit(asked(now), KIND, record, None)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("used", "is_refused"),
    [
        ((MOST_RECORDS - 1, 0), False),
        ((MOST_RECORDS, 0), True),
        ((0, MOST_BYTES - SIZE), False),
        ((0, MOST_BYTES - SIZE + 1), True),
    ],
)
async def test_a_cluster_has_so_many_records_and_no_more(
    used: tuple[int, int], is_refused: bool
) -> None:
    """By their number and by their bytes; those of another cluster are not counted."""
    async with clusters(a_cluster("prod", chains.ROOT), a_cluster("test", chains.ROOT)) as world:
        assert bool(await refusal(world, a_record(), prod=used)) == is_refused
        assert await refusal(world, a_record(), test=used) == ""


async def test_only_an_authority_of_that_cluster_counts() -> None:
    """Not one of another cluster, and in a cluster with several not only the first."""
    other = chains.authority("other", key=chains.OTHER_P256)
    async with clusters(
        a_cluster("prod", other, chains.ROOT), a_cluster("test", other), a_cluster("none")
    ) as world:
        assert await refusal(world, a_record()) == ""
        for name in ("test", "none"):
            assert "no client authority" in await refusal(world, a_record(cluster=name))


async def test_a_record_says_what_the_certificate_says() -> None:
    """Only the signer, the request and the requester are taken as they were sent."""
    sent = a_record()
    forged = replace(
        sent.spec,
        serial_number="1",
        subject="CN=root",
        not_after=NOW + 9 * HOUR,
        request=IssuedFor(name="laptop"),
        requester=Requester(username="jane"),
    )
    async with clusters(a_cluster("prod", chains.ROOT)) as world:
        policy = ClusterRecords(world.feed, lambda one: (0, 0))
        made: Any = await policy.admit(asked(), KIND, replace(sent, spec=forged), None)

    assert (made.spec.serial_number, made.spec.subject) == ("7", "CN=alice")
    assert made.spec.not_after == NOW + HOUR
    assert (made.spec.cluster, made.spec.signer_name) == ("prod", "example.com/s")
    assert (made.spec.request.name, made.spec.requester.username) == ("laptop", "jane")


@pytest.mark.parametrize("first", ["leaf", "root"])
async def test_no_record_is_made_after_the_end(first: str) -> None:
    """Of the certificate or of its authority, whichever ends first."""
    end, later = NOW + SECOND, NOW + HOUR
    root = chains.authority(end=end if first == "root" else later)
    leaf = chains.make(end=end if first == "leaf" else later)
    async with clusters(a_cluster("prod", root)) as world:
        assert await refusal(world, a_record(leaf), NOW) == ""
        assert await refusal(world, a_record(leaf), end) != ""


async def test_a_record_is_of_a_cluster_that_exists_under_the_name_of_its_certificate() -> None:
    async with clusters(a_cluster("prod", chains.ROOT)) as world:
        named = replace(a_record(), metadata=ObjectMeta(name="prod.other"))
        empty = replace(a_record(), spec=IssuedCertificateSpec(cluster="prod"))
        policy = ClusterRecords(world.feed, lambda one: (0, 0))

        assert "not found" in (await refusal(world, a_record(cluster="gone"))).lower()
        assert "the record of this certificate is named" in await refusal(world, named)
        assert "required" in (await refusal(world, empty)).lower()
        with pytest.raises(Forbidden, match="only the server records"):
            await policy.admit(asked(), KIND, a_record(cluster=""), None)
        with pytest.raises(Invalid):
            await policy.admit(asked(), KIND, named, None)
        assert await policy.admit(asked(), KIND, named, a_record()) is named


@pytest.mark.parametrize(
    ("leaf_end", "root_end", "until"),
    [(HOUR, 2 * HOUR, HOUR), (2 * HOUR, HOUR, HOUR)],
)
async def test_a_record_stays_until_the_earlier_end(
    leaf_end: timedelta, root_end: timedelta, until: timedelta
) -> None:
    root = chains.authority(end=NOW + root_end)
    old = record_until(NOW + leaf_end)
    async with clusters(a_cluster("prod", root)) as world:
        policy = ClusterRecords(world.feed, lambda one: (0, 0))
        with pytest.raises(Forbidden, match="valid until"):
            await policy.review(asked(NOW + until - SECOND), KIND, None, old)
        await policy.review(asked(NOW + until), KIND, None, old)


def record_until(end: datetime | None, cluster: str = "prod") -> IssuedCertificate:
    meta = ObjectMeta(name="r", creation_timestamp=NOW - HOUR)
    return IssuedCertificate(
        metadata=meta, spec=IssuedCertificateSpec(cluster=cluster, not_after=end)
    )


async def test_a_record_of_a_removed_cluster_can_go() -> None:
    """Also if a cluster of that name was created since, more than the clocks can differ later."""
    old, made = record_until(NOW + HOUR), NOW - HOUR + CLOCKS_DIFFER
    async with clusters() as world:
        policy = ClusterRecords(world.feed, lambda one: (0, 0))
        await policy.review(asked(), KIND, None, old)

        await world.put(a_cluster("prod", made=made))
        with pytest.raises(Forbidden, match="valid until"):
            await policy.review(asked(), KIND, None, old)

        await world.put(a_cluster("prod", made=made + SECOND))
        await policy.review(asked(), KIND, None, old)


async def test_a_record_has_the_uid_of_its_cluster() -> None:
    """One of an earlier cluster of the name is refused, and can go."""
    old = record_until(NOW + HOUR)
    earlier = replace(old, spec=replace(old.spec, cluster_uid="before"))
    async with clusters(a_cluster("prod", chains.ROOT)) as world:
        policy = ClusterRecords(world.feed, lambda one: (0, 0))
        new: Any = await policy.admit(asked(), KIND, a_record(), None)
        assert new.spec.cluster_uid == "uid-prod"
        sent = replace(a_record(), spec=replace(a_record().spec, cluster_uid="before"))
        with pytest.raises(Invalid, match="the uid of that cluster is uid-prod"):
            await policy.admit(asked(), KIND, sent, None)
        with pytest.raises(Forbidden, match="valid until"):
            await policy.review(asked(), KIND, None, old)
        await policy.review(asked(), KIND, None, earlier)


async def test_records_without_an_end_and_other_changes_are_left_alone() -> None:
    """Those of our own signers have rules of their own."""
    valid = record_until(NOW + HOUR)
    async with clusters(a_cluster("prod", made=NOW - HOUR)) as world:
        policy = ClusterRecords(world.feed, lambda one: (0, 0))

        await policy.review(asked(), KIND, None, record_until(None))
        await policy.review(asked(), KIND, None, record_until(NOW + HOUR, cluster=""))
        await policy.review(asked(), KIND, valid, valid)
