"""Marks of revoked certificates: which records are compared, and what is written."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateStatus,
    Revoked,
    cluster_record_name,
)
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.revoking.controllers.mark_revoked import (
    CERTIFICATE,
    CLUSTER,
    MARKED,
    SIGNER,
    MarkRevoked,
)
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import ErrorSubject, Expired, NotFound
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import NOW

HOUR = timedelta(hours=1)
WEB = "example.com/web"
REVOKED = Revoked(time=NOW, reason="keyCompromise")


def record(name: str = "0a", mark: Revoked | None = None, **spec: Any) -> IssuedCertificate:
    given = {"sha256": f"sha-{name}", "signerName": WEB, "username": "alice", **spec}
    made = convert({"metadata": {"name": name}, "spec": given}, IssuedCertificate)
    made = made.with_meta(creation_timestamp=NOW - HOUR)
    return replace(made, status=IssuedCertificateStatus(revoked=mark))


def revocation(name: str = "r", **spec: Any) -> CredentialRevocation:
    given = {"certificate": {"sha256": "sha-0a", "serialNumber": "0a"}, "reason": "keyCompromise"}
    given = {**(spec or given), "reason": "keyCompromise"}
    made = convert({"metadata": {"name": name}, "spec": given}, CredentialRevocation)
    return made.with_meta(creation_timestamp=NOW)


def marker(*stored: IssuedCertificate, now: Any = NOW) -> tuple[MarkRevoked, SmallClient]:
    client: Any = SmallClient(*stored)
    return MarkRevoked(client, FakeClock(now)), client


async def listed(made: MarkRevoked, client: SmallClient, *found: CredentialRevocation) -> None:

    client.batches = [[change(one, "LISTED") for one in found], []]
    await made._follow_revocations(asyncio.Event())


def queued(made: MarkRevoked) -> list[tuple[str, str]]:
    return list(made.queue._waiting)


async def test_a_revoked_certificate_is_marked_once() -> None:
    made, client = marker(record(), record("0b"))
    await listed(made, client, revocation())

    for name in ("0a", "0b", "0a", "0c"):
        await made.attend((CERTIFICATE, name), None)

    (marked,) = client.written("status")
    assert (marked.name, marked.status.revoked) == ("0a", REVOKED)


async def test_a_mark_without_a_revocation_is_removed() -> None:
    made, client = marker(record(mark=REVOKED))

    await made.attend((CERTIFICATE, "0a"), None)

    assert client.written("status")[0].status.revoked is None


@pytest.mark.parametrize(
    "mark", [replace(REVOKED, reason="superseded"), replace(REVOKED, time=NOW - HOUR)]
)
async def test_a_mark_that_differs_is_corrected(mark: Revoked) -> None:
    made, client = marker(record(mark=mark))
    await listed(made, client, revocation())

    await made.attend((CERTIFICATE, "0a"), None)

    assert client.written("status")[0].status.revoked == REVOKED


@pytest.mark.parametrize(
    ("end", "stays"),
    [(NOW - HOUR, True), (NOW, True), (NOW + timedelta(seconds=1), False), (None, False)],
)
async def test_the_mark_of_a_certificate_that_has_ended_stays(end: Any, stays: bool) -> None:
    """Its revocation is deleted then."""
    ended = record(mark=REVOKED)
    made, client = marker(replace(ended, spec=replace(ended.spec, not_after=end)))

    await made.attend((CERTIFICATE, "0a"), None)

    assert (client.writes == []) is stays


async def test_a_missing_mark_is_added_although_the_certificate_has_ended() -> None:
    ended = record()
    made, client = marker(replace(ended, spec=replace(ended.spec, not_after=NOW - HOUR)))
    await listed(made, client, revocation())

    await made.attend((CERTIFICATE, "0a"), None)

    assert client.written("status")


async def test_a_record_that_is_deleted_meanwhile_is_no_failure() -> None:
    made, client = marker(record(mark=REVOKED))
    client.refuses["status"] = NotFound(ErrorSubject("", "issuedcertificates", "0a"))

    await made.attend((CERTIFICATE, "0a"), None)

    assert client.writes == []


@pytest.mark.parametrize(
    ("key", "fields"), [((SIGNER, WEB), f"spec.signerName={WEB}"), ((CLUSTER, ""), "spec.cluster=")]
)
async def test_a_revocation_of_many_compares_each_of_them(key: Any, fields: str) -> None:
    """Those that are right already are not written."""
    until = {"signerName": WEB, "issuedBefore": "2026-03-01T12:00:00Z"}
    made, client = marker(record("0a"), record("0b"), record("0c", REVOKED))
    await listed(made, client, revocation(authority=until))

    await made.attend(key, None)

    assert [one.fields for one in client.selections] == [fields]
    assert queued(made) == [(CERTIFICATE, "0a"), (CERTIFICATE, "0b")]


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({}, (CERTIFICATE, "0a")),
        (
            {"certificate": {"sha256": "ab"}, "cluster": "prod"},
            (CERTIFICATE, cluster_record_name("prod", "ab")),
        ),
        ({"authority": {"signerName": WEB}}, (SIGNER, WEB)),
        ({"user": {"username": "alice"}}, (CLUSTER, "")),
        ({"user": {"username": "alice"}, "cluster": "prod"}, (CLUSTER, "prod")),
        ({"account": {"namespace": "a", "name": "b"}}, (CLUSTER, "")),
        ({"token": {"jti": "x"}}, None),
    ],
)
@pytest.mark.parametrize("type_", ["ADDED", "DELETED"])
async def test_a_revocation_that_comes_or_goes_compares_what_it_names(
    spec: Any, key: Any, type_: str
) -> None:
    made, _ = marker()

    made._take(change(revocation(**spec), type_), made._index)

    assert queued(made) == ([key] if key else [])


async def test_while_revocations_are_listed_again_the_former_ones_count() -> None:
    """Half of them would remove the marks of the others."""
    made, client = marker(record(mark=REVOKED))
    await listed(made, client, revocation())
    client.batches = [[change(revocation("other", token={"jti": "x"}), "LISTED")]]

    await made._follow_revocations(asyncio.Event())
    await made.attend((CERTIFICATE, "0a"), None)

    assert client.writes == []


async def test_a_deleted_revocation_no_longer_counts() -> None:
    made, client = marker(record(mark=REVOKED))
    await listed(made, client, revocation())

    made._take(change(revocation(), "DELETED"), made._index)
    await made.attend((CERTIFICATE, "0a"), None)

    assert client.written("status")[0].status.revoked is None


# -- marks that others write ----------------------------------------------------------------------


async def marks(made: MarkRevoked, client: SmallClient, *batches: Any) -> None:
    client.batches = list(batches)
    await made._follow_marks()


async def test_marks_that_are_missing_are_added_after_all_are_listed() -> None:
    """Those of a certificate, a signer and a cluster; none before the last page."""
    made, client = marker()
    await listed(
        made, client, revocation(),
        revocation("b", certificate={"sha256": "sha-0b", "serialNumber": "0b"}),
        revocation("c", certificate={"sha256": "sha-0c", "serialNumber": "0c"}),
        revocation("s", authority={"signerName": WEB, "issuedBefore": "2026-03-01T12:00:00Z"}),
        revocation("t", authority={"signerName": "b/c", "issuedBefore": "2026-03-01T12:00:00Z"}),
        revocation("u", user={"username": "bob"}, cluster="prod"),
        revocation("v", user={"username": "bob"}),
    )  # fmt: skip

    await marks(made, client, [change(record(mark=REVOKED), "LISTED")])
    assert queued(made) == []
    await marks(made, client, [change(record(mark=REVOKED), "LISTED")], [])

    certificates = {(CERTIFICATE, "0b"), (CERTIFICATE, "0c")}
    assert set(queued(made)) == {
        *certificates, (SIGNER, WEB), (SIGNER, "b/c"), (CLUSTER, "prod"), (CLUSTER, ""),
    }  # fmt: skip


async def test_a_wrong_mark_is_compared() -> None:
    made, client = marker()

    await marks(made, client, [change(record(mark=REVOKED), "LISTED")], [])

    assert queued(made) == [(CERTIFICATE, "0a")]


async def test_a_mark_that_is_taken_away_is_compared() -> None:
    """Without the record, or without the mark alone: the watch does not say which."""
    made, client = marker()

    await marks(made, client, [], [change(record("0b"), "DELETED")])

    assert queued(made) == [(CERTIFICATE, "0b")]


async def test_all_marks_are_compared_again_from_time_to_time() -> None:
    """Each time with the revocations first."""
    client: Any = SmallClient()
    client.batches = [[]]
    made = MarkRevoked(client, FakeClock(NOW), compared_every=timedelta())
    tasks: list[asyncio.Task[None]] = []

    with pytest.raises(Expired):
        await made.follow(lambda task: tasks.append(asyncio.create_task(task)))
    await asyncio.gather(*tasks)

    assert [one.of for one in client.followed] == [CredentialRevocation, IssuedCertificate]


def test_marks_are_followed_by_the_field_that_shows_them() -> None:
    assert (MARKED.of, MARKED.fields) == (IssuedCertificate, "status.revoked=true")
