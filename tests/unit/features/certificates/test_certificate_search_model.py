"""A search of the index finds the same certificates as a scan of all records."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.features.certificates import certificate_rows
from orchid.features.certificates.certificate_search import CertificateIndex
from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.certificate_search import (
    EXPIRED,
    LIVE,
    REVOKED,
    SORTS,
    STATES,
    CertificateSearchSpec,
)
from orchid.features.certificates.kinds.issued_certificate import (
    Approver,
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedCertificateStatus,
    IssuedFor,
    Requester,
    Revoked,
)
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.certificates.test_certificate_search import ALICE, Readers
from tests.unit.kernel.access.world import World, world_of

HOUR = timedelta(hours=1)
WORDS = ("web", "WEB.example.com", "10.0.0.1", "straße", "STRASSE", "b", "eb")
USERS = ("", "carol", "dave", "Web")
SIGNERS = ("x/web", "x/db")
KEYS = ("", "ab12", "cd34")

words = st.sampled_from(WORDS)
users = st.sampled_from(USERS)
specs = st.builds(
    IssuedCertificateSpec,
    signer_name=st.sampled_from(SIGNERS),
    serial_number=st.sampled_from(("0a", "0b")),
    subject=words.map("CN={}".format) | st.just(""),
    names=st.lists(words, max_size=2).map(tuple),
    requester=st.builds(Requester, username=users),
    request=st.builds(IssuedFor, name=words | st.just("")),
    approver=st.builds(Approver, username=users, policy=st.sampled_from(("", "hosts"))),
    cluster=st.sampled_from(("", "prod")),
    authority_key=st.sampled_from(KEYS),
)
conditions_of_a_search = {
    "text": st.lists(words, min_size=1, max_size=2).map(" ".join),
    "signer_names": st.tuples(st.sampled_from(SIGNERS)),
    "requesters": st.tuples(users, users),
    "approvers": st.sampled_from((("dave",), ("hosts",), ("hosts", "carol"))),
    "clusters": st.tuples(st.sampled_from(("", "prod"))),
    "authority_keys": st.tuples(st.sampled_from(KEYS)),
    "ends_within": st.sampled_from(("2h", "1000h")),
    "state": st.sampled_from(STATES),
    "omit_replaced": st.just(True),
}


@st.composite
def searches(draw: st.DrawFn) -> CertificateSearchSpec:
    """A search with at most two conditions: with more, most find nothing."""
    fields = draw(st.lists(st.sampled_from(sorted(conditions_of_a_search)), max_size=2))
    wanted = {name: draw(conditions_of_a_search[name]) for name in fields}
    return CertificateSearchSpec(
        **{"state": "All", **wanted},
        sort=draw(st.sampled_from(SORTS)),
        limit=draw(st.integers(1, 4)),
    )


names = st.sampled_from([f"r{number}" for number in range(9)])
hours = st.integers(-1, 2) | st.none()  # many with the same end
issues = st.tuples(st.just("issue"), names, specs, hours)
steps = st.one_of(
    *[issues] * 4,  # enough records for several blocks and pages
    st.tuples(st.just("revoke"), names),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("wait"), st.integers(1, 3)),
    st.tuples(st.just("search"), searches()),
)


class Inventory:
    """The records, and an index over the same store."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.records: dict[str, IssuedCertificate] = {}
        self.index = CertificateIndex(here.feed, Readers(), here.clock)

    async def issue(self, name: str, spec: IssuedCertificateSpec, hours: int | None) -> None:
        now = self.here.clock.now()
        meta = ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=now)
        end = None if hours is None else now + hours * HOUR
        await self._put(IssuedCertificate(metadata=meta, spec=replace(spec, not_after=end)))

    async def revoke(self, name: str) -> None:
        if name in self.records:
            status = IssuedCertificateStatus(revoked=Revoked(time=self.here.clock.now()))
            await self._put(replace(self.records[name], status=status))

    async def delete(self, name: str) -> None:
        if name in self.records:
            await self.here.delete(self.records.pop(name))

    async def wait(self, hours: int) -> None:
        self.here.clock.advance(hours * 3600)

    async def search(self, spec: CertificateSearchSpec) -> None:
        """Compare all pages with the records that match."""
        now = self.here.clock.now()
        matching = [one for one in self.records.values() if self._matches(one, spec, now)]
        expected = sorted(matching, key=lambda one: (sort_value(one, spec.sort), one.name))
        found: list[str] = []
        after = ""
        while True:
            page = await self.index.find(replace(spec, after=after), ALICE)
            assert page.matches == len(expected)
            assert len(page.items) <= spec.limit
            found += [item.name for item in page.items]
            after = page.next
            if not after:
                break
        assert found == [one.name for one in expected]

    async def _put(self, record: IssuedCertificate) -> None:
        self.records[record.name] = await self.here.put(record)

    def _matches(self, one: IssuedCertificate, spec: CertificateSearchSpec, now: datetime) -> bool:
        return all(conditions(one, spec, now)) and not (
            spec.omit_replaced and any(is_replaced(one, by, now) for by in self.records.values())
        )


def conditions(
    one: IssuedCertificate, spec: CertificateSearchSpec, now: datetime
) -> Iterator[bool]:
    """The conditions of a search, as the fields of CertificateSearchSpec describe them."""
    has, is_revoked = one.spec, one.status.revoked is not None
    if spec.state == LIVE:
        yield is_live(one, now)
    if spec.state == REVOKED:
        yield is_revoked
    if spec.state == EXPIRED:
        yield end_of(one) <= now.timestamp()
    if spec.ends_within:
        seconds = int(spec.ends_within.removesuffix("h")) * 3600
        yield now.timestamp() < end_of(one) <= now.timestamp() + seconds
    texts = (has.subject, *has.names, has.requester.username, has.request.name, has.serial_number)
    for word in spec.text.split():
        yield any(word.casefold() in text.casefold() for text in texts)
    for values, value in (
        (spec.signer_names, has.signer_name),
        (spec.requesters, has.requester.username),
        (spec.clusters, has.cluster),
        (spec.authority_keys, has.authority_key),
    ):
        yield not values or value in values
    yield not spec.approvers or bool(
        {has.approver.username, has.approver.policy}.intersection(spec.approvers)
    )


def end_of(one: IssuedCertificate) -> float:
    return one.spec.not_after.timestamp() if one.spec.not_after else float("inf")


def is_live(one: IssuedCertificate, now: datetime) -> bool:
    return end_of(one) > now.timestamp() and one.status.revoked is None


def is_replaced(one: IssuedCertificate, by: IssuedCertificate, now: datetime) -> bool:
    def likeness(record: IssuedCertificate) -> tuple[Any, ...]:
        return record.spec.signer_name, record.spec.subject, sorted(record.spec.names)

    return is_live(by, now) and likeness(one) == likeness(by) and end_of(by) > end_of(one)


def sort_value(one: IssuedCertificate, sort: str) -> float | str:
    created = one.metadata.creation_timestamp
    return {
        "end": end_of(one),
        "issued": created.timestamp() if created else 0.0,
        "signer": one.spec.signer_name,
        "subject": one.spec.subject.casefold(),
        "requester": one.spec.requester.username,
    }[sort]


async def compared(taken: list[tuple[Any, ...]], always: CertificateSearchSpec) -> None:
    """Take the steps, and search after each of them."""
    async with world_of(issued_certificate.declare(ORCH)) as here:
        inventory = Inventory(here)
        for verb, *values in taken:
            await getattr(inventory, verb)(*values)
            await inventory.search(always)


@settings(max_examples=80)
@given(st.lists(steps, min_size=5, max_size=30), searches())
def test_a_search_equals_a_scan(
    taken: list[tuple[Any, ...]], always: CertificateSearchSpec
) -> None:
    """After any changes: the same records, in the same order, on pages without gaps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate_rows, "LARGEST_BLOCK", 2)
        asyncio.run(compared(taken, always))
