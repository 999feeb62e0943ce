"""CertificateIndex: search of the inventory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.certificates import certificate_rows, certificate_search
from orchid.features.certificates.certificate_rows import RowMaker
from orchid.features.certificates.certificate_search import CertificateIndex
from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.certificate_search import (
    SORTS,
    CertificateSearchSpec,
    CertificateSearchStatus,
    MalformedPosition,
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
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.access.world import World, world_of

DAY = timedelta(days=1)
ALICE = UserInfo(username="alice")


class Readers:
    """Allows alice to list the inventory."""

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        wanted = "list", "identity.orch.io", "issuedcertificates"
        is_allowed = user is ALICE and (target.verb, target.group, target.resource) == wanted
        return Decision(Verdict.ALLOW if is_allowed else Verdict.NO_OPINION)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world_of(issued_certificate.declare(ORCH)) as world:
        yield world


@pytest.fixture
def index(here: World) -> CertificateIndex:
    return CertificateIndex(here.feed, Readers(), here.clock)


def record(here: World, name: str, days: float = 30, **spec: Any) -> IssuedCertificate:
    return IssuedCertificate(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=here.clock.now()),
        spec=IssuedCertificateSpec(
            **{
                "signer_name": "example.com/web",
                "serial_number": name,
                "subject": f"CN=host-{name}",
                "not_after": here.clock.now() + days * DAY,
                **spec,
            }
        ),
    )


def revoked(here: World, one: IssuedCertificate) -> IssuedCertificate:
    status = IssuedCertificateStatus(revoked=Revoked(time=here.clock.now(), reason="superseded"))
    return replace(one, status=status)


async def names(index: CertificateIndex, **spec: Any) -> list[str]:
    found = await index.find(CertificateSearchSpec(**spec), ALICE)
    return [one.name for one in found.items]


async def test_every_word_must_occur_in_some_property(here: World, index: CertificateIndex) -> None:
    """Of subject, names, requester, request and serial number; case is ignored."""
    await here.put(
        record(
            here, "a1", subject="CN=Web,O=Shop", names=("web.Example.com", "10.0.0.1"),
            requester=Requester(username="carol"), request=IssuedFor(name="web-csr"),
        )
    )  # fmt: skip
    await here.put(record(here, "b2", names=("db.example.com",)))

    assert await names(index, text="example.COM") == ["a1", "b2"]
    for words in ("cn=web shop", "10.0.0.1 a1", "CAROL web-csr", "WEB.EXAMPLE  carol"):
        assert await names(index, text=words) == ["a1"], words
    assert await names(index, text="example.com carol b2") == []
    assert await names(index, text="*.example.com") == []  # no patterns
    assert await names(index, text="shop\ncarol") == ["a1"]  # words, not a line break


async def test_the_default_is_live_certificates_by_expiry(
    here: World, index: CertificateIndex
) -> None:
    """Neither expired nor revoked, and the first to expire first."""
    for name, days in (("a", 3), ("b", 1), ("c", 2), ("d", -1)):
        await here.put(record(here, name, days))
    await here.put(revoked(here, record(here, "e", 4)))

    assert await names(index) == ["b", "c", "a"]
    assert await names(index, state="Revoked") == ["e"]
    [found] = (await index.find(CertificateSearchSpec(state="Revoked"), ALICE)).items
    assert (found.revoked, found.reason) == (here.clock.now(), "superseded")
    assert await names(index, state="Expired") == ["d"]
    assert await names(index, state="All") == ["d", "b", "c", "a", "e"]
    assert await names(index, ends_within="48h") == ["b", "c"]
    assert await names(index, ends_within="48h", state="All") == ["b", "c"]


async def test_filters_compare_whole_values(here: World, index: CertificateIndex) -> None:
    """One of the values of each filter; an approver is a user or a policy."""
    await here.put(record(here, "a", signer_name="x/y", requester=Requester(username="carol")))
    await here.put(record(here, "b", approver=Approver(username="dave")))
    await here.put(record(here, "c", approver=Approver(username="robot", policy="hosts")))
    await here.put(record(here, "d.e", cluster="prod"))
    await here.put(record(here, "f", authority_key="ab12"))

    assert await names(index, signer_names=("x/y", "other")) == ["a"]
    assert await names(index, signer_names=("x",)) == []
    assert await names(index, requesters=("carol",)) == ["a"]
    assert await names(index, approvers=("dave", "hosts")) == ["b", "c"]
    assert await names(index, approvers=("",), text="host-a") == ["a"]
    assert await names(index, clusters=("prod",)) == ["d.e"]
    assert await names(index, authority_keys=("ab12", "ab")) == ["f"]
    assert await names(index, requesters=("carol",), approvers=("dave",)) == []


async def test_replaced_certificates_can_be_omitted(here: World, index: CertificateIndex) -> None:
    """Replaced by a live one with the same signer, subject and names, in any order."""
    same = {"subject": "CN=w", "names": ("b", "a")}
    await here.put(record(here, "old", 1, **same))
    await here.put(record(here, "new", 9, **{**same, "names": ("a", "b")}))
    await here.put(record(here, "other", 1, subject="CN=w", names=("a",)))
    later = await here.put(record(here, "later", 10, subject="CN=w", names=("a",)))

    assert await names(index, omit_replaced=True, ends_within="48h") == []
    await here.put(revoked(here, later))
    assert await names(index, omit_replaced=True, ends_within="48h") == ["other"]
    assert await names(index, omit_replaced=True) == ["other", "new"]


@pytest.mark.parametrize("sort", SORTS)
async def test_pages_have_every_match_once(
    here: World, index: CertificateIndex, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same order as one page; `matches` counts all of them on each page. A page may end
    where a block of rows ends.
    """
    monkeypatch.setattr(certificate_rows, "LARGEST_BLOCK", 2)
    for number in range(11):
        requester = Requester(username=f"user-{number % 3}")
        one = record(here, f"{number:x}", number // 2 + 1, requester=requester)
        await here.put(replace(one, spec=replace(one.spec, not_after=None)) if number > 8 else one)
    whole = await index.find(CertificateSearchSpec(sort=sort), ALICE)
    paged: list[Any] = []
    page = CertificateSearchStatus(next="")
    while page.next or not paged:
        spec = CertificateSearchSpec(sort=sort, limit=4, after=page.next)
        page = await index.find(spec, ALICE)
        paged += page.items
        assert page.matches == 11

    assert paged == [*whole.items]
    assert len(paged) == 11
    assert whole.next == ""


async def test_a_search_follows_every_change(
    here: World, index: CertificateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New, changed and deleted records, with a turn of the event loop for each."""
    monkeypatch.setattr(certificate_search, "RECORDS", 1)
    monkeypatch.setattr(certificate_search, "LONGEST_TURN", 0)
    first = await here.put(record(here, "a", 1))
    assert await names(index) == ["a"]
    second = await here.put(record(here, "b", 2))
    await here.put(revoked(here, first))
    assert await names(index) == ["b"]
    await here.delete(second)
    assert await names(index, state="All") == ["a"]
    assert len(index._rows) == 1


async def test_only_records_that_changed_are_decoded_again(
    here: World, index: CertificateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the history of changes is lost, and all revisions are compared."""
    for name in "abc":
        await here.put(record(here, name))
    await names(index)
    decoded: list[str] = []
    original = RowMaker.row_of

    def counting(self: RowMaker, entry: Any) -> Any:
        decoded.append(entry.key[-1])
        return original(self, entry)

    monkeypatch.setattr(RowMaker, "row_of", counting)
    await names(index)
    assert decoded == []
    await here.put(record(here, "d"))
    index._entries = None
    assert len(await names(index)) == 4
    assert decoded == ["d"]


@pytest.mark.parametrize("lost", ["history", "cache"])
async def test_changes_without_a_history_are_indexed(
    here: World, index: CertificateIndex, lost: str
) -> None:
    """Changed, deleted and new records, if the history was dropped or all was loaded again."""
    first, second = await here.put(record(here, "a")), await here.put(record(here, "b"))
    assert await names(index) == ["a", "b"]
    await here.put(revoked(here, first))
    await here.delete(second)
    await here.put(record(here, "c"))
    cache = here.feed.of(IssuedCertificate)

    if lost == "history":
        cache.drop_oldest(len(cache.changes))
    else:
        cache.load(dict(cache.entries), cache.revision)

    assert not cache.changes
    assert await names(index) == ["c"]
    assert await names(index, state="Revoked") == ["a"]


async def test_a_record_that_is_deleted_during_a_search_is_left_out(
    here: World, index: CertificateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has chosen it already; it counts, and is not shown."""
    for name in "abc":
        await here.put(record(here, name))
    entries = here.feed.of(IssuedCertificate).entries
    original = certificate_search._item

    def deleting(found: IssuedCertificate) -> Any:
        for key in [one for one in entries if one.endswith("/b")]:
            del entries[key]
        return original(found)

    monkeypatch.setattr(certificate_search, "_item", deleting)

    assert await names(index) == ["a", "c"]


async def test_other_tasks_run_during_a_search(here: World) -> None:
    """After each 2 ms, while the index is built and during the search; the clock moves by 1 ms
    whenever it is read.
    """
    for number in range(400):
        await here.put(record(here, f"{number:x}"))
    index = CertificateIndex(here.feed, Readers(), SlowClock(here.clock.now()))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    found = await index.find(CertificateSearchSpec(limit=200), ALICE)
    counting.cancel()

    assert found.matches == 400
    assert turns > (400 + 200) / certificate_search.RECORDS / 3  # readings of the clock, by turn


class SlowClock(FakeClock):
    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


async def test_searches_at_the_same_time_share_the_index(
    here: World, index: CertificateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds every record once, also while others change the index."""
    monkeypatch.setattr(certificate_search, "LONGEST_TURN", 0)
    monkeypatch.setattr(certificate_rows, "LARGEST_BLOCK", 2)

    async def put(number: int) -> list[str]:
        await here.put(record(here, f"{number:x}", 20 - number))
        return await names(index)

    found = await asyncio.gather(*(put(number) for number in range(16)))

    assert all(len(set(one)) == len(one) for one in found)
    assert await names(index) == [f"{number:x}" for number in reversed(range(16))]


async def test_a_cancelled_search_leaves_a_complete_index(
    here: World, index: CertificateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that goes away while the index is built; the next search builds the rest."""
    monkeypatch.setattr(certificate_search, "LONGEST_TURN", 0)
    monkeypatch.setattr(certificate_search, "RECORDS", 1)
    for number in range(9):
        await here.put(record(here, f"{number:x}"))
    begun = asyncio.create_task(names(index))
    for _ in range(5):
        await asyncio.sleep(0)
    indexed = len(index._rows)

    begun.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await begun

    assert 0 < indexed < 9
    assert len(await names(index)) == 9


async def test_a_serial_number_is_found_by_its_parts(here: World, index: CertificateIndex) -> None:
    """Also in upper case; the name of the record of a cluster is not searched."""
    await here.put(record(here, "ab12cd", subject="CN=x", serial_number="AB12CD"))
    await here.put(record(here, "prod.fe99", subject="CN=y", serial_number="AB77"))

    assert await names(index, text="B12c") == ["ab12cd"]
    assert await names(index, text="ab77") == ["prod.fe99"]
    assert await names(index, text="fe99") == []
    assert await names(index, text="ce") == []  # issuedcertificates, in the keys of the cache


async def test_a_search_needs_the_right_to_list(index: CertificateIndex) -> None:
    """The refusal names it, and comes before anything else."""
    with pytest.raises(Forbidden, match=r"cannot list resource .*issuedcertificates"):
        await index.find(CertificateSearchSpec(after="x"), UserInfo(username="bob"))


@pytest.mark.parametrize("after", ["x", "e30=", "WyJ4Il0=", "WyJhIiwiYiJd", "é", "WzEsMiwzXQ=="])
async def test_a_position_of_another_search_is_refused(index: CertificateIndex, after: str) -> None:
    """Not base64, not a pair, or a text where the order has numbers."""
    with pytest.raises(MalformedPosition):
        await index.find(CertificateSearchSpec(after=after), ALICE)
