"""Ends that are announced: of which objects, when, and what has a successor."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateStatus,
    Revoked,
)
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.notices.endings import (
    EndingAuthority,
    EndingCertificate,
    EndingCredential,
    EndingKey,
    due_endings,
    due_of,
    identity_of,
)
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient
from tests.unit.kernel.credentials import chains, samples
from tests.unit.kernel.credentials.samples import DAY, NOW

BEFORE = 30 * DAY
CERTIFICATES = EndingCertificate(ORCH, BEFORE)


def record(name: str = "a", begin: int = -90, end: int = 9, **spec: Any) -> IssuedCertificate:
    """A certificate whose times are days from now."""
    given = {"signerName": "example.com/web", "subject": "CN=web", "names": ["a", "b"], **spec}
    made = convert({"metadata": {"name": name, "uid": name}, "spec": given}, IssuedCertificate)
    times = {"not_before": NOW + begin * DAY, "not_after": NOW + end * DAY}
    return replace(made, spec=replace(made.spec, **times))


def revoked(found: IssuedCertificate) -> IssuedCertificate:
    return replace(found, status=IssuedCertificateStatus(revoked=Revoked(time=NOW)))


async def announced(*found: IssuedCertificate, since: datetime | None = None) -> list[str]:
    client: Any = SmallClient(*found)
    return [one.key.name for one in await due_endings(client, [CERTIFICATES], since, NOW)]


# -- when -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end", "due"),
    [(0, 365, 335), (0, 90, 60), (0, 60, 40), (0, 3, 2)],
)
def test_an_end_is_due_within_the_set_time_and_the_last_third(
    begin: int, end: int, due: int
) -> None:
    assert due_of((NOW + begin * DAY, NOW + end * DAY), BEFORE) == NOW + due * DAY


async def test_ends_are_announced_from_when_they_are_due_until_they_have_come() -> None:
    """The earliest first."""
    found = [
        record("ended", -90, 0, subject="1"),
        record("ends", -90, 1, subject="2"),
        record("due", -60, 30, subject="3"),
        record("later", -59, 31, subject="4"),
    ]

    assert await announced(*reversed(found)) == ["ends", "due"]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (None, ["a"]),
        (NOW - DAY, ["a"]),
        (NOW, ["a"]),
        (NOW + timedelta(seconds=1), []),
    ],
)
async def test_what_was_due_before_the_last_search_is_not_announced_again(
    since: datetime | None, expected: list[str]
) -> None:
    """`a` is due now."""
    assert await announced(record("a", -60, 30), since=since) == expected


# -- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        (record(), True),
        (revoked(record()), False),
        (record(begin=-22, end=9), True),
        (record(begin=-21, end=9), False),
        (replace(record(), spec=replace(record().spec, not_before=None)), False),
        (replace(record(), spec=replace(record().spec, not_after=None)), False),
    ],
)
def test_certificates_for_longer_than_the_set_time_end(found: Any, ends: bool) -> None:
    """Shorter ones are renewed by their holders; revoked ones have ended."""
    assert (CERTIFICATES.validity(found) is not None) is ends
    assert (CERTIFICATES.notice(found) is not None) is ends


async def test_a_renewed_certificate_is_not_announced() -> None:
    assert await announced(record("old"), record("new", -1, 364)) == []
    assert await announced(record("new", -1, 364), record("old")) == []


@pytest.mark.parametrize(
    "other",
    [
        record("new", -1, 364, signerName="example.com/other"),
        record("new", -1, 364, subject="CN=other"),
        record("new", -1, 364, names=["a"]),
        record("new", -1, 364, names=["a", "b", "c"]),
        record("new", -1, 364, cluster="prod"),
        record("new", -1, 364, requester={"username": "bob"}),
        revoked(record("new", -1, 364)),
        record("new", -100, 364),
        record("new", -9, 0),
        record("new", -9, -1),
    ],
)
async def test_another_certificate_is_no_successor(other: IssuedCertificate) -> None:
    """Of another signer, requester, name or cluster; one that is revoked, older, or has ended."""
    assert "a" in await announced(record("a"), other)


async def test_a_successor_has_the_names_in_any_order() -> None:
    """However often it was renewed."""
    newer = [record("b", -50, 300, names=["b", "a"]), record("c", -60, 300)]

    assert await announced(record("a"), *newer) == []
    assert identity_of(newer[0]) == identity_of(record())


async def test_of_two_certificates_with_successors_each_counts_by_itself() -> None:
    one, two = record("one", subject="CN=one"), record("two", subject="CN=two")

    assert await announced(one, two, record("new", -1, 364, subject="CN=two")) == ["one"]


async def test_a_certificate_without_a_start_succeeds_none() -> None:
    other = record("new", -1, 364)

    found = await announced(record("a"), replace(other, spec=replace(other.spec, not_before=None)))

    assert found == ["a"]


# -- authorities, keys, clusters ------------------------------------------------------------------


def pem(*found: Any) -> str:
    return b"".join(one.public_bytes(Encoding.PEM) for one in found).decode()


def chain(own: int, above: int) -> str:
    """The certificate of an authority and the one above, with their ends in days from now."""
    start, key = NOW - DAY, samples.OTHER_P256
    return pem(
        chains.authority("own", issuer="above", signer=key, start=start, end=NOW + own * DAY),
        chains.authority("above", key=key, start=start - DAY, end=NOW + above * DAY),
    )


def key(certificate: str, state: str = "Verifying") -> SigningKey:
    found = {"metadata": {"name": "web-2", "uid": "u"}, "spec": {"state": state}}
    return convert({**found, "status": {"certificate": certificate}}, SigningKey)


@pytest.mark.parametrize(("own", "above", "end"), [(5, 9, 5), (9, 5, 5)])
def test_a_key_ends_with_the_first_certificate_of_its_chain(own: int, above: int, end: int) -> None:
    source = EndingKey(ORCH, BEFORE)

    assert source.validity(key(chain(own, above))) == (NOW - DAY, NOW + end * DAY)


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        (key(chain(5, 9), "Published"), True),
        (key(chain(5, 9), "Verifying"), True),
        (key(chain(5, 9), "Active"), False),
        (key(chain(5, 9), "Retired"), False),
        (key(""), False),
        (key("nonsense"), False),
    ],
)
def test_only_keys_in_use_that_do_not_sign_are_announced(found: SigningKey, ends: bool) -> None:
    """The certificate of the Active key is that of its authority."""
    assert (EndingKey(ORCH, BEFORE).notice(found) is not None) is ends


def authority(certificate: str, end: datetime | None = NOW + DAY, name: str = "web") -> Any:
    found = {"metadata": {"name": name, "uid": "u"}, "status": {"certificate": certificate}}
    made = convert(found, CertificateAuthority)
    return replace(made, status=replace(made.status, not_after=end))


@pytest.mark.parametrize(
    ("found", "validity"),
    [
        (authority(chain(5, 9)), (NOW - DAY, NOW + DAY)),
        (authority(chain(5, 9), None), None),
        (authority(""), None),
        (authority("nonsense"), None),
    ],
)
def test_an_authority_ends_as_its_status_says(found: Any, validity: Any) -> None:
    """That is the first end of its chain."""
    assert EndingAuthority(ORCH, BEFORE).validity(found) == validity


ONE, TWO = (Authority.create(name, now=NOW) for name in ("one", "two"))


async def test_authorities_of_files_are_announced_unless_an_object_shows_them() -> None:
    signers: Any = {
        name: SimpleNamespace(list_name=name, authority=lambda one=one: one)
        for name, one in (("one", ONE), ("two", TWO))
    }
    shown = authority(pem(*ONE.chain), name="cluster")
    client: Any = SmallClient(shown)
    source = EndingAuthority(ORCH, BEFORE, signers)

    assert [one.name async for one in source.all(client)] == ["cluster", "platform/two"]
    found = await source.find(client, "platform/two")
    assert found is not None
    assert source.validity(found) == (
        TWO.certificate.not_valid_before_utc,
        TWO.certificate.not_valid_after_utc,
    )
    assert await source.find(client, "cluster") == shown
    assert await source.find(client, "platform/three") is None


async def test_a_renewed_authority_of_a_file_is_another_notice() -> None:
    now = [ONE]
    signers: Any = {"one": SimpleNamespace(list_name="one", authority=lambda: now[0])}
    client: Any = SmallClient()
    source = EndingAuthority(ORCH, BEFORE, signers)
    before = await source.find(client, "platform/one")

    now[0] = TWO
    after = await source.find(client, "platform/one")

    assert before is not None
    assert after is not None
    assert source.key(before) != source.key(after)


@pytest.mark.parametrize(
    ("credential", "ends"),
    [({"expires": "2026-03-02T12:00:00Z"}, True), ({}, False), (None, False)],
)
def test_the_token_of_a_cluster_ends_if_it_has_an_end(credential: Any, ends: bool) -> None:
    given = {"credential": credential} if credential is not None else {}
    found = convert({"metadata": {"name": "prod", "uid": "u"}, "spec": given}, Cluster)
    source = EndingCredential(ORCH, BEFORE)

    validity, notice = source.validity(found), source.notice(found)

    assert (validity is not None, notice is not None) == (ends, ends)
    if validity is not None:
        assert validity[1] == NOW + DAY
        assert due_of(validity, BEFORE) == NOW + DAY - BEFORE


def test_an_end_that_moves_is_another_notice() -> None:
    """The same object, with a later end."""
    first, second = (CERTIFICATES.key(record(end=end)) for end in (9, 10))

    assert first != second
    assert first.jti != second.jti


def test_a_notice_names_what_ends_by_its_subject_a_name_or_its_number() -> None:
    texts = []
    for spec in ({}, {"subject": ""}, {"subject": "", "names": [], "serialNumber": "0a"}):
        notice = CERTIFICATES.notice(record(**spec))
        assert notice is not None
        texts.append(notice.text.partition(" by ")[0])

    assert texts == [f"The certificate of {name}" for name in ("CN=web", "a", "0a")]
