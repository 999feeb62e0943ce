"""The comparison of revocations, inventory and lists: it finds each difference, and no other."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.faults.agreement import (
    GOOD,
    HELD,
    HOLD,
    REVOKED,
    UNSURE,
    Certificate,
    RevocationList,
    Revocations,
    certificates,
    disagreements,
)
from tests.faults.issuing import Issued, read_issued
from tests.security.certified import issued, other_authority

SIGNER = "example.com/a"
ISSUED = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
LATER, BEFORE = ISSUED + timedelta(minutes=1), ISSUED - timedelta(minutes=1)


def one(mark: str | None, latest: datetime = ISSUED) -> Certificate:
    return Certificate("1f", "ab" * 32, SIGNER, ISSUED, latest, mark)


def by_name(reason: str) -> dict[str, Any]:
    named = {"sha256": "ab" * 32, "serialNumber": "1f"}
    return {
        "metadata": {"name": f"one-{reason}"},
        "spec": {"certificate": named, "reason": reason},
    }


def by_signer(until: datetime) -> dict[str, Any]:
    spec = {"authority": {"signerName": SIGNER, "issuedBefore": until.isoformat()}}
    return {"metadata": {"name": "all"}, "spec": spec}


@pytest.mark.parametrize(
    ("objects", "status"),
    [
        ([], GOOD),
        ([by_name(HOLD)], HELD),
        ([by_name("superseded")], REVOKED),
        ([by_name("superseded"), by_name(HOLD)], REVOKED),
        ([by_signer(LATER)], REVOKED),
        ([by_signer(LATER), by_name(HOLD)], REVOKED),
        ([by_signer(BEFORE)], GOOD),
        ([by_signer(BEFORE), by_name(HOLD)], HELD),
        ([by_signer(ISSUED)], UNSURE),
    ],
)
def test_status_follows_from_the_revocations(objects: list[Any], status: str) -> None:
    """A final revocation counts before a hold, and one of a signer by the time of issue."""
    assert Revocations(objects).status(one(GOOD)) == status


def test_clocks_that_jumped_leave_the_status_open() -> None:
    """Between the time of the certificate and the time of its record, nobody can say."""
    between = Revocations([by_signer(ISSUED + timedelta(minutes=5))])

    assert between.status(one(GOOD, latest=ISSUED + timedelta(hours=1))) == UNSURE


@pytest.mark.parametrize("status", [GOOD, HELD, REVOKED])
@pytest.mark.parametrize("mark", [GOOD, HELD, REVOKED])
@pytest.mark.parametrize("listed", [GOOD, HELD, REVOKED])
def test_each_difference_is_found(status: str, mark: str, listed: str) -> None:
    """Of the inventory, and of the list: whether one is revoked, and whether for good."""
    objects = {GOOD: [], HELD: [by_name(HOLD)], REVOKED: [by_name("")]}[status]
    lists = {SIGNER: RevocationList(1, {"1f": listed} if listed != GOOD else {})}

    found = list(disagreements([one(mark)], Revocations(objects), lists))

    about = f"certificate 1f of {SIGNER}, issued at 12:00:00, is {status}, and"
    assert found == [
        *([f"{about} {mark} in the inventory"] if mark != status else []),
        *([f"{about} {listed} in the list"] if listed != status else []),
    ]


def test_certificate_without_a_record_must_be_in_the_list_if_it_is_named() -> None:
    """A revocation of its signer, or of a fingerprint, does not know its number."""
    empty = {SIGNER: RevocationList(1, {})}
    unseen = by_name("")
    del unseen["spec"]["certificate"]["serialNumber"]

    assert list(disagreements([one(None)], Revocations([by_signer(LATER)]), empty)) == []
    assert list(disagreements([one(None)], Revocations([unseen]), empty)) == []
    assert list(disagreements([one(None)], Revocations([by_name("")]), empty)) != []


def test_unknown_number_in_a_list_is_found() -> None:
    """A list has certificates of its authority alone."""
    lists = {SIGNER: RevocationList(1, {"2": REVOKED})}

    assert list(disagreements([one(GOOD)], Revocations([]), lists)) == [
        f"the list of {SIGNER} has 2, which nobody knows"
    ]


def test_received_certificate_and_its_record_are_one() -> None:
    """The record says how it is marked; without a record there is no mark."""
    made = issued(other_authority(), "jane")
    received = Issued("jane", SIGNER, made.chain, read_issued(made.chain))
    facts = received.facts
    spec = {
        "sha256": facts.sha256,
        "serialNumber": facts.serial,
        "signerName": SIGNER,
        "notBefore": facts.not_before.isoformat(),
    }
    meta = {"creationTimestamp": LATER.isoformat()}
    record = {"metadata": meta, "spec": spec, "status": {"revoked": {"reason": HOLD}}}

    [alone] = certificates([received], [])
    [both] = certificates([received], [record])

    assert (alone.mark, both.mark) == (None, HELD)
    assert alone[:3] == both[:3] == (facts.serial, facts.sha256, SIGNER)
