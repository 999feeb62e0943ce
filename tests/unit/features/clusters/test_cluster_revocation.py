"""Revocations in a cluster: whose right they need, what they name, and when they can go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
)
from orchid.features.clusters.kinds import cluster
from orchid.features.clusters.kinds.cluster import CLOCKS_DIFFER
from orchid.features.clusters.policies.cluster_revocation import ClusterRevocation
from orchid.features.clusters.revoked import ClusterRevocations
from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.kinds.credential_revocation import (
    HOLD,
    CredentialRevocation,
    CredentialRevocationSpec,
    CredentialRevocationStatus,
)
from orchid.kernel.credentials.x509.trust.verified_chain import other_fingerprints
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import AlreadyExists, Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import (
    RevokedAccount,
    RevokedCertificate,
    RevokedToken,
    RevokedUser,
)
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import EVE, Rights
from tests.unit.features.clusters.test_cluster_records import LEAF, a_cluster, a_record
from tests.unit.kernel.access.world import World, world_of
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import ED25519, HOUR, NOW

KINDS = cluster.declare(ORCH), credential_revocation.declare(ORCH), issued_certificate.declare(ORCH)
KIND: Any = KINDS[1]
SECOND = timedelta(seconds=1)
MAY_REVOKE = Rights(("revoke", "clusters", "prod"), ("revoke", "clusters", "test"))
ID, OTHER_ID = "a" * 64, "b" * 64
TOKEN = RevokedToken(jti="7")


def asked(now: datetime = NOW) -> Request:
    target = Target(verb="create", is_resource=True, resource="credentialrevocations", name="one")
    return Request(target=target, user=EVE, now=now)


def revocation(cluster: str = "prod", *, reason: str = "", **named: Any) -> CredentialRevocation:
    spec = CredentialRevocationSpec(cluster=cluster, reason=reason, **named)
    return CredentialRevocation(metadata=ObjectMeta(name="one", creation_timestamp=NOW), spec=spec)


def recorded(
    sha256: str, *, cluster: str = "prod", serial: str = "7", request: str = "laptop"
) -> IssuedCertificate:
    name = f"{cluster}.{sha256}"
    spec = IssuedCertificateSpec(
        cluster=cluster,
        sha256=sha256,
        serial_number=serial,
        signer_name="example.com/s",
        request=IssuedFor(name=request),
        not_after=NOW + HOUR,
    )
    return IssuedCertificate(metadata=ObjectMeta(name=name, uid=f"uid-{name}"), spec=spec)


@asynccontextmanager
async def clusters(*found: Any) -> AsyncIterator[World]:
    """The clusters `prod` and `test`, and what else there is."""
    async with world_of(*KINDS) as world:
        for one in (a_cluster("prod", chains.ROOT), a_cluster("test", chains.ROOT), *found):
            await world.put(one)
        yield world


def policy(world: World, rights: Rights = MAY_REVOKE, *others: str) -> ClusterRevocation:
    return ClusterRevocation(ORCH, world.feed, rights, lambda spec: list(others))


async def admitted(world: World, new: CredentialRevocation) -> tuple[Any, list[str]]:
    request = asked()
    return await policy(world).admit(request, KIND, new, None), request.warnings


async def test_the_right_is_the_one_on_that_cluster() -> None:
    """Asked before the cluster is looked up, so that nobody learns which exist."""
    async with clusters() as world:
        for name in ("test", "gone"):
            rights = Rights(("revoke", "clusters", "prod"), ("create", "clusters", name))
            with pytest.raises(Forbidden, match=f'credentials of clusters "{name}"'):
                await policy(world, rights).admit(
                    asked(), KIND, revocation(name, token=TOKEN), None
                )
            assert [one.group for one in rights.asked] == [ORCH.identity]


async def test_other_revocations_and_updates_are_left_alone() -> None:
    async with clusters() as world:
        rights = Rights()
        two = revocation(token=TOKEN, user=RevokedUser(username="jane"))
        for new, old in (
            (revocation("", token=TOKEN), None),
            (two, None),
            (revocation(token=TOKEN), revocation(token=TOKEN)),
        ):
            assert await policy(world, rights).admit(asked(), KIND, new, old) is new
        assert rights.asked == []


async def test_a_cluster_that_does_not_exist_is_refused() -> None:
    async with clusters() as world:
        rights = Rights(("revoke", "clusters", "gone"))
        with pytest.raises(Invalid, match="cluster"):
            await policy(world, rights).admit(asked(), KIND, revocation("gone", token=TOKEN), None)


async def test_the_issuer_of_a_token_is_that_of_the_cluster() -> None:
    async with clusters() as world:
        sent = replace(TOKEN, expires=NOW + HOUR)
        new, _ = await admitted(world, revocation(token=replace(sent, issuer="https://k")))
        assert new.status.expires == NOW + HOUR
        with pytest.raises(Invalid, match="the issuer of that cluster is https://k"):
            await admitted(world, revocation(token=replace(sent, issuer="https://other")))


async def test_a_user_is_revoked_up_to_now_and_an_account_for_good() -> None:
    """Its tokens have no time of issue there."""
    async with clusters() as world:
        user, _ = await admitted(world, revocation(user=RevokedUser(username="jane")))
        account, _ = await admitted(
            world, revocation(account=RevokedAccount(namespace="ci", name="robot"))
        )

    assert user.spec.user.issued_before == NOW
    assert account.spec.account.issued_before is None
    assert account.status.expires is None


async def test_a_second_revocation_of_the_same_is_refused() -> None:
    other = replace(revocation(token=TOKEN), metadata=ObjectMeta(name="first", uid="u"))
    other = of_uid(other, "uid-prod")
    async with clusters(other) as world:
        for already, refused in (((KIND.key("", "first"),), True), ((), False)):
            judge = policy(world, MAY_REVOKE, *already)
            if refused:
                with pytest.raises(AlreadyExists, match='"first" already revokes this'):
                    await judge.admit(asked(), KIND, revocation(token=TOKEN), None)
            else:
                await judge.admit(asked(), KIND, revocation(token=TOKEN), None)


# -- certificates -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named",
    [
        RevokedCertificate(sha256=ID),
        RevokedCertificate(serial_number="7"),
        RevokedCertificate(request_name="laptop"),
        RevokedCertificate(sha256=ID, serial_number="7", request_name="laptop"),
    ],
)
async def test_a_certificate_is_found_by_each_of_its_names(named: RevokedCertificate) -> None:
    """In the inventory of that cluster alone; another one has the same number and request."""
    async with clusters(
        recorded(ID),
        recorded(OTHER_ID, serial="8", request="desk"),
        recorded("c" * 64, cluster="test"),
    ) as world:
        new, warnings = await admitted(world, revocation(certificate=named))

    found = new.spec.certificate
    assert (found.sha256, found.serial_number, found.request_name) == (ID, "7", "laptop")
    assert found.signer_name == "example.com/s"
    assert new.status.expires == NOW + HOUR
    assert warnings == []


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("serialNumber", RevokedCertificate(sha256=ID, serial_number="8")),
        ("requestName", RevokedCertificate(sha256=ID, request_name="desk")),
        ("signerName", RevokedCertificate(sha256=ID, signer_name="example.com/other")),
        ("requestName", RevokedCertificate(serial_number="7", request_name="desk")),
    ],
)
async def test_names_of_different_certificates_are_refused(
    field: str, named: RevokedCertificate
) -> None:
    async with clusters(recorded(ID), recorded(OTHER_ID, serial="8", request="desk")) as world:
        with pytest.raises(Invalid, match=f"certificate.{field}.*that certificate has"):
            await admitted(world, revocation(certificate=named))


@pytest.mark.parametrize("named", [{"serial_number": "7"}, {"request_name": "laptop"}])
async def test_a_name_that_none_or_several_certificates_have_revokes_none(
    named: dict[str, str],
) -> None:
    wanted = revocation(certificate=RevokedCertificate(**named))
    async with clusters(recorded(ID, cluster="test")) as world:
        with pytest.raises(Invalid, match="Not found"):
            await admitted(world, wanted)
        await world.put(recorded(ID))
        await world.put(recorded(OTHER_ID))
        with pytest.raises(Invalid, match=f"several such certificates.*{ID}.*{OTHER_ID}"):
            await admitted(world, wanted)


async def test_a_name_that_is_another_word_of_a_record_finds_none() -> None:
    """The search of bytes is only the first half of it."""
    async with clusters(recorded(ID, serial="7", request="8")) as world:
        for named in ({"serial_number": "8"}, {"request_name": "7"}):
            with pytest.raises(Invalid, match="Not found"):
                await admitted(world, revocation(certificate=RevokedCertificate(**named)))


async def test_a_fingerprint_alone_is_revoked_until_the_last_authority_ends() -> None:
    """Nothing else that was sent counts; where ECDSA signs, there is a second fingerprint."""
    later = chains.authority("later", key=ED25519, end=NOW + 2 * HOUR)
    edwards = a_cluster("test", later)
    named = RevokedCertificate(sha256=ID, signer_name="a.com/b", authority_key="0a")
    both = RevokedCertificate(sha256=ID, other_sha256=(OTHER_ID,))
    async with clusters(a_cluster("prod", chains.ROOT, later), edwards) as world:
        new, warnings = await admitted(world, revocation(certificate=named))
        assert new.spec.certificate == RevokedCertificate(sha256=ID)
        assert new.status.expires == NOW + 2 * HOUR
        assert ["has no such certificate" in warnings[0], "ECDSA" in warnings[1]] == [True, True]

        new, warnings = await admitted(world, revocation(certificate=both))
        assert new.spec.certificate == both
        assert len(warnings) == 1
        _, warnings = await admitted(world, revocation("test", certificate=named))
        assert len(warnings) == 1


async def test_the_other_encoding_of_a_recorded_certificate_is_revoked_too() -> None:
    record = a_record()
    sha256 = record.name.removeprefix("prod.")
    others = other_fingerprints(LEAF, [chains.ROOT])
    full = replace(record, metadata=replace(record.metadata, uid="r"))
    full = replace(full, spec=replace(full.spec, sha256=sha256))
    async with clusters(full) as world:
        new, _ = await admitted(world, revocation(certificate=RevokedCertificate(sha256=sha256)))

    assert len(others) == 1
    assert new.spec.certificate.other_sha256 == others


# -- the end ----------------------------------------------------------------------------------


def until(end: datetime | None, cluster: str = "prod", **named: Any) -> CredentialRevocation:
    status = CredentialRevocationStatus(expires=end)
    return replace(revocation(cluster, **(named or {"token": TOKEN})), status=status)


async def refused(world: World, old: Any, now: datetime = NOW, rights: Any = MAY_REVOKE) -> str:
    try:
        await policy(world, rights).review(asked(now), KIND, None, old)
    except Forbidden as refusal:
        return str(refusal)
    return ""


async def test_a_revocation_stays_until_its_token_has_ended() -> None:
    end = NOW + HOUR
    async with clusters() as world:
        assert "it stays until" in await refused(world, until(end), end - SECOND)
        assert await refused(world, until(end), end) == ""
        assert "it stays until" in await refused(world, until(None), end)
        assert await refused(world, until(None, cluster=""), NOW) == ""
        await policy(world).review(asked(), KIND, until(end), until(end))


async def test_a_fingerprint_stays_for_an_authority_that_came_later() -> None:
    """A certificate of the inventory has its own end."""
    later = chains.authority("later", key=chains.OTHER_P256, end=NOW + 2 * HOUR)
    alone, found = RevokedCertificate(sha256=ID), RevokedCertificate(sha256=ID, serial_number="7")
    async with clusters(a_cluster("prod", chains.ROOT, later)) as world:
        old = until(NOW + HOUR, certificate=alone)
        assert await refused(world, old, NOW + 2 * HOUR - SECOND) != ""
        assert await refused(world, old, NOW + 2 * HOUR) == ""
        assert await refused(world, until(NOW + HOUR, certificate=found), NOW + HOUR) == ""
        await world.put(a_cluster("prod"))
        assert await refused(world, old, NOW + HOUR) == ""


@pytest.mark.parametrize(
    "old",
    [
        revocation(user=RevokedUser(username="jane")),
        revocation(account=RevokedAccount(namespace="ci", name="robot")),
        revocation(token=TOKEN, reason=HOLD),
    ],
)
async def test_what_can_be_lifted_is_lifted_by_those_who_may_revoke(
    old: CredentialRevocation,
) -> None:
    async with clusters() as world:
        assert await refused(world, old) == ""
        other = Rights(("revoke", "clusters", "test"))
        assert "not permitted to revoke" in await refused(world, old, rights=other)


async def test_without_an_end_it_goes_after_the_cluster_with_the_right_to_revoke() -> None:
    """Also if a cluster of that name was created since; with an end it stays until then."""
    end, may = NOW + HOUR, Rights(("revoke", "clusters", "gone"))
    async with clusters() as world:
        assert await refused(world, until(None, "gone"), rights=may) == ""
        assert "not permitted" in await refused(world, until(None, "gone"), rights=Rights())
        assert "it stays" in await refused(world, until(end, "gone"), end - SECOND, may)
        assert await refused(world, until(end, "gone"), end, may) == ""

        earlier = of_uid(until(None), "before")
        assert await refused(world, earlier) == ""
        assert "not permitted" in await refused(world, earlier, rights=Rights())
        assert await refused(world, of_uid(until(None), "uid-prod")) != ""


async def test_without_a_uid_the_times_decide() -> None:
    """Of revocations that an earlier version stored; clocks of servers differ by up to an hour."""
    async with clusters() as world:
        await world.put(a_cluster("prod", made=NOW + CLOCKS_DIFFER))
        assert await refused(world, until(None)) != ""
        await world.put(a_cluster("prod", made=NOW + CLOCKS_DIFFER + SECOND))
        assert await refused(world, until(None)) == ""


async def test_a_revocation_has_the_uid_of_its_cluster() -> None:
    """Another uid is refused, such as that of an earlier cluster."""
    async with clusters() as world:
        for sent in ("", "uid-prod"):
            new, _ = await admitted(world, of_uid(revocation(token=TOKEN), sent))
            assert new.spec.cluster_uid == "uid-prod"
        with pytest.raises(Invalid, match="the uid of that cluster is uid-prod"):
            await admitted(world, of_uid(revocation(token=TOKEN), "before"))


async def test_a_record_of_an_earlier_cluster_names_no_certificate() -> None:
    """Neither by the number nor by the fingerprint."""
    record = recorded(ID)
    earlier = replace(record, spec=replace(record.spec, cluster_uid="before"))
    async with clusters(earlier) as world:
        with pytest.raises(Invalid, match="serialNumber"):
            await admitted(world, revocation(certificate=RevokedCertificate(serial_number="7")))
        new, warnings = await admitted(world, revocation(certificate=RevokedCertificate(sha256=ID)))

    assert new.spec.certificate.serial_number == ""
    assert "has no such certificate" in warnings[0]


async def test_the_index_has_the_revocations_of_one_cluster() -> None:
    """By uid. An earlier version stored none: then name and time of creation decide."""
    stored = until(None).with_meta(uid="u")
    async with clusters() as world:
        index = ClusterRevocations(world.feed)
        current = a_cluster("prod").metadata
        next_one = replace(current, uid="next", creation_timestamp=NOW + CLOCKS_DIFFER + SECOND)

        await world.put(of_uid(stored, "uid-prod"))
        assert index.find(current, "jane", ["JTI=7"]) == "one"
        assert index.find(next_one, "jane", ["JTI=7"]) is None
        assert index.names(of_uid(stored, "uid-prod").spec) == [KIND.key("", "one")]
        assert index.names(of_uid(stored, "next").spec) == []
        await world.put(stored)
        assert index.find(current, "jane", ["JTI=7"]) == "one"
        assert index.find(next_one, "jane", ["JTI=7"]) is None
        assert index.find(a_cluster("test").metadata, "jane", ["JTI=7"]) is None


def of_uid(old: CredentialRevocation, uid: str) -> CredentialRevocation:
    return replace(old, spec=replace(old.spec, cluster_uid=uid))
