"""The attack: to plant a record of a cluster that hides, revives or revokes another certificate."""

import base64
import hashlib
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.clusters.policies import cluster_records
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import pem
from tests.api.clusters import (
    CLUSTERS,
    IDENTITY,
    NO_OPINION,
    REVOCATIONS,
    asked,
    cluster,
    revoke,
    revoked,
)
from tests.api.world import ALICE, Answer, Api
from tests.security.certified import (
    Certified,
    cluster_authority,
    issued,
    mirrored,
    other_authority,
    respelled,
)
from tests.security.test_revocations import fingerprint, known, on_record
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.credentials import unusual
from tests.unit.kernel.credentials.samples import P256

RECORDS = f"{IDENTITY}/issuedcertificates"


async def recorded(
    server: Api, data: bytes, name: str = "", token: str | None = None, **spec: Any
) -> Answer:
    """Create the record of a certificate as the controller does."""
    sha256 = hashlib.sha256(data).hexdigest()
    sent = {
        "cluster": "prod",
        "signerName": "kubernetes.io/kube-apiserver-client",
        "certificate": base64.b64encode(data).decode(),
        "request": {"name": "laptop", "uid": "1", "created": "2026-01-01T00:00:00Z"},
        **spec,
    }
    body = {"metadata": {"name": name or f"prod.{sha256}"}, "spec": sent}
    return await server.call("POST", RECORDS, body, **({"token": token} if token else {}))


async def world(server: Api) -> tuple[Authority, Certified]:
    """A cluster with an authority, and a certificate of alice."""
    authority = other_authority()
    await cluster(server, clientAuthorities=authority.certificate_pem.decode())
    return authority, issued(authority, "alice")


async def test_a_record_says_what_the_certificate_says(server: Api) -> None:
    """Fields that were sent and are in the certificate are read from it again."""
    _, alice = await world(server)

    answer = await recorded(server, alice.der, subject="CN=bob", serialNumber="1", sha256="0" * 64)

    assert answer.status == 201, answer.text
    spec = answer.json["spec"]
    assert (spec["subject"], spec["sha256"]) == ("CN=alice", fingerprint(alice))
    assert spec["serialNumber"] != "1"
    assert spec["request"]["created"] == "2026-01-01T00:00:00Z"


async def test_nobody_plants_a_record_of_our_own_signers(server: Api) -> None:
    """Such a record would give power over a certificate, or hide one."""
    jane = issued(cluster_authority(server.server.files.path), "jane")
    await world(server)

    ours = await recorded(server, jane.der, cluster="")
    as_theirs = await recorded(server, jane.der)

    assert ours.status == 403
    assert as_theirs.status == 422  # no authority of the cluster issued it
    assert (await server.call("GET", RECORDS)).json["items"] == []


async def test_what_is_no_certificate_of_the_cluster_is_refused(server: Api) -> None:
    """Other issuers, other encodings, other names, clusters that do not exist."""
    _, alice = await world(server)
    foreign = issued(other_authority(), "alice")

    answers = [
        await recorded(server, b""),
        await recorded(server, b"nonsense"),
        await recorded(server, foreign.der),
        await recorded(server, respelled(alice.der, unused=1)),
        await recorded(server, alice.der + b"\0"),
        await recorded(server, alice.der, cluster="none"),
        await recorded(server, alice.der, name="prod.other"),
        await recorded(server, alice.der, name=f"test.{fingerprint(alice)}"),
    ]

    assert [answer.status for answer in answers] == [422] * len(answers)


async def test_records_need_a_right_and_stay(server: Api) -> None:
    """Others cannot create one; nobody edits one, or deletes one of a valid certificate."""
    _, alice = await world(server)
    refused = await recorded(server, alice.der, token=ALICE)
    made = (await recorded(server, alice.der)).json
    place = f"{RECORDS}/{made['metadata']['name']}"

    changed = await server.call("PUT", place, made)
    kept = await server.call("DELETE", place)
    await server.call("DELETE", f"{CLUSTERS}/prod")
    gone = await server.call("DELETE", place)

    assert refused.status == 403
    assert changed.status == 405
    assert (kept.status, gone.status) == (403, 200)


async def test_the_record_of_a_cluster_has_no_effect_on_ours(server: Api) -> None:
    """Equal signer names and request names do not mix the inventories."""
    serial, peer = await on_record(server, "jane", name="laptop")
    _, alice = await world(server)
    await recorded(server, alice.der, signerName="orch.io/orch-apiserver-client")

    ours = await server.call(
        "POST",
        REVOCATIONS,
        {"metadata": {"name": "ours"}, "spec": {"certificate": {"requestName": "laptop"}}},
    )
    everything = {"authority": {"signerName": "orch.io/orch-apiserver-client"}}
    body = {"metadata": {"name": "all"}, "spec": everything}
    all_of_ours = await server.call("POST", REVOCATIONS, body)

    assert ours.json["spec"]["certificate"]["serialNumber"] == serial
    assert all_of_ours.status == 201
    assert await known(server, peer=peer) == 401
    assert await asked(server, "alice", f"X509SHA256={fingerprint(alice)}") == NO_OPINION


async def test_both_encodings_of_a_recorded_certificate_are_revoked(server: Api) -> None:
    """The holder writes the ECDSA signature (r, s) as (r, n-s) and has another fingerprint."""
    _, alice = await world(server)
    await recorded(server, alice.der)
    other = hashlib.sha256(mirrored(alice.der)).hexdigest()

    made = await revoked(server, "stolen", certificate={"requestName": "laptop"})

    assert made["spec"]["certificate"]["otherSha256"] == [other]
    assert (await asked(server, "alice", f"X509SHA256={other}"))["denied"] is True


@pytest.mark.parametrize(("created", "denied"), [("2100-01-01T00:00:00Z", False), (None, True)])
async def test_a_revoked_user_goes_on_only_with_a_later_request(
    server: Api, clock: MovingClock, created: str | None, denied: bool
) -> None:
    """The time of the request counts, not the time of the record, which a late list would move."""
    _, alice = await world(server)
    await revoked(server, "left", user={"username": "alice"})
    clock.ahead += timedelta(seconds=10)
    request = {"name": "laptop", "uid": "1", **({"created": created} if created else {})}
    await recorded(server, alice.der, request=request)

    status = await asked(server, "alice", f"X509SHA256={fingerprint(alice)}")

    assert status.get("denied", False) is denied


async def test_an_old_certificate_in_a_new_request_stays_revoked(
    server: Api, clock: MovingClock
) -> None:
    """A signer of the cluster that may write certificates into requests revives nothing: the
    certificate itself must begin after the revocation, or not long before."""
    authority, _ = await world(server)
    day = timedelta(days=1)
    old = issued(authority, "alice", lifetime=9 * day, now=clock.now() - day)
    await revoked(server, "left", user={"username": "alice"})
    await recorded(server, old.der, request={"name": "new", "created": "2100-01-01T00:00:00Z"})

    status = await asked(server, "alice", f"X509SHA256={fingerprint(old)}")

    assert status["denied"] is True


@pytest.mark.parametrize("other", ["JTI=3f8a", f"X509SHA256={'ab' * 32}"])
async def test_a_later_certificate_does_not_spare_another_credential(
    server: Api, clock: MovingClock, other: str
) -> None:
    """A review with several credential ids is denied unless each is of a later certificate."""
    _, alice = await world(server)
    await revoked(server, "left", user={"username": "alice"})
    await recorded(server, alice.der, request={"name": "new", "created": "2100-01-01T00:00:00Z"})
    later = f"X509SHA256={fingerprint(alice)}"

    alone, both = await asked(server, "alice", later), await asked(server, "alice", later, other)

    assert alone == NO_OPINION
    assert both["denied"] is True


async def test_a_certificate_of_the_second_of_the_revocation_is_revoked(server: Api) -> None:
    """Times of requests are in seconds: one of the same second may have come before it."""
    _, alice = await world(server)
    made = await revoked(server, "left", user={"username": "alice"})
    moment = made["spec"]["user"]["issuedBefore"]
    await recorded(server, alice.der, request={"name": "same", "created": moment})

    status = await asked(server, "alice", f"X509SHA256={fingerprint(alice)}")

    assert status["denied"] is True


SIGNER = "kubernetes.io/kube-apiserver-client"


async def test_a_request_is_named_within_its_cluster(server: Api) -> None:
    """The request of another cluster with the same name is another request."""
    authority, alice = await world(server)
    bob = issued(authority, "bob")
    await cluster(server, "test", clientAuthorities=authority.certificate_pem.decode())
    await recorded(server, bob.der, name=f"test.{fingerprint(bob)}", cluster="test")
    await recorded(server, alice.der)

    made = await revoked(server, "stolen", certificate={"requestName": "laptop"})

    assert made["spec"]["certificate"]["sha256"] == fingerprint(alice)


async def test_a_name_that_several_certificates_have_revokes_none(server: Api) -> None:
    """A wrong guess would leave the stolen one valid; the answer names all."""
    authority, alice = await world(server)
    both = alice, issued(authority, "alice")
    for one in both:
        await recorded(server, one.der)

    answer = await revoke(server, "stolen", certificate={"requestName": "laptop"})

    assert answer.status == 422
    assert all(fingerprint(one) in answer.text for one in both)


async def test_a_serial_number_is_no_other_word_of_a_record(server: Api) -> None:
    """A request that is named like the number of another certificate does not protect it."""
    authority, alice = await world(server)
    bob = issued(authority, "bob")
    serial = (await recorded(server, bob.der)).json["spec"]["serialNumber"]
    await recorded(server, alice.der, request={"name": serial})

    named = {"serialNumber": serial, "signerName": SIGNER}
    made = await revoked(server, "stolen", certificate=named)

    assert made["spec"]["certificate"]["sha256"] == fingerprint(bob)


@pytest.mark.parametrize(
    "other",
    [
        {"signerName": "example.com/other"},
        {"requestName": "other"},
        {"serialNumber": "1", "signerName": SIGNER},
    ],
)
async def test_parts_of_different_certificates_are_refused(
    server: Api, other: dict[str, str]
) -> None:
    """A fingerprint together with what another certificate has is a mistake."""
    _, alice = await world(server)
    await recorded(server, alice.der)

    answer = await revoke(server, "stolen", certificate={"sha256": fingerprint(alice), **other})

    assert answer.status == 422
    assert "that certificate has" in answer.text


async def test_a_revocation_can_be_deleted_when_its_token_has_ended(
    server: Api, clock: MovingClock
) -> None:
    """Until then it stays; afterwards the cleaner must be able to remove it."""
    await cluster(server)
    end = (clock.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await revoked(server, "stolen", token={"jti": "3f8a", "expires": end})

    before = await server.call("DELETE", f"{REVOCATIONS}/stolen")
    clock.ahead += timedelta(hours=2)
    after = await server.call("DELETE", f"{REVOCATIONS}/stolen")

    assert (before.status, after.status) == (403, 200)


async def test_nothing_is_recorded_after_the_end(server: Api, clock: MovingClock) -> None:
    """Neither an expired certificate, nor one of an authority that has expired."""
    authority = other_authority()
    await cluster(server, clientAuthorities=authority.certificate_pem.decode())
    short, long = (issued(authority, "alice", lifetime=timedelta(hours=n)) for n in (1, 9))
    clock.ahead += timedelta(hours=2)
    expired, valid = await recorded(server, short.der), await recorded(server, long.der)
    clock.ahead += timedelta(days=36500)
    endless = unusual.certificate(unusual.CLIENT, signer=P256)
    ended = unusual.certificate(unusual.AUTHORITY, end=b"20300101000000Z", signer=P256)
    await cluster(server, "old", clientAuthorities=pem.encode(pem.CERTIFICATE, ended).decode())
    name = f"old.{hashlib.sha256(endless).hexdigest()}"
    orphaned = await recorded(server, endless, name=name, cluster="old")

    assert [expired.status, valid.status, orphaned.status] == [422, 201, 422]
    assert "it has expired" in expired.text
    assert "no client authority" in orphaned.text


async def test_records_that_are_gone_make_room(
    server: Api, clock: MovingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is of one cluster, and of what is stored now."""
    monkeypatch.setattr(cluster_records, "MOST_RECORDS", 2)
    authority, alice = await world(server)
    others = [issued(authority, name, lifetime=timedelta(days=9)) for name in ("bob", "carol")]
    first, second, third = [await recorded(server, one.der) for one in (alice, *others)]
    await cluster(server, "test", clientAuthorities=authority.certificate_pem.decode())
    name = f"test.{fingerprint(alice)}"
    elsewhere = await recorded(server, alice.der, name=name, cluster="test")
    clock.ahead += timedelta(days=1)
    gone = await server.call("DELETE", f"{RECORDS}/prod.{fingerprint(alice)}")
    again = await recorded(server, others[1].der)

    assert [one.status for one in (first, second, third)] == [201, 201, 403]
    assert "has 2 records" in third.text
    assert [one.status for one in (elsewhere, gone, again)] == [201, 200, 201]
