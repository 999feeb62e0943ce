"""Holds, lifted holds and final revocations while faults strike, and a check after every fault.

`Revoking.run` keeps some certificates in use: it puts one on hold, lifts a hold, revokes for good,
by any server that is there. `Revoking.agree` is called when a fault is healed. It waits until the
inventory, the published lists and what every server accepts agree with the revocations that exist
(agreement.py); no agreement within SETTLED seconds is improper. Two things are improper without
any wait: a certificate that is accepted although its revocation was acknowledged, and a revocation
that is missing, or back, against what was acknowledged.

`change` and `since_backup` are for faults that need a certain operation at a certain moment.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tests.faults.agreement import (
    BACKDATE,
    GOOD,
    HELD,
    HOLD,
    MARGIN,
    REVOKED,
    UNSURE,
    Certificate,
    RevocationList,
    Revocations,
    certificates,
    disagreements,
    read_list,
)
from tests.faults.decisions import SIGNER
from tests.faults.issuing import (
    IDENTITY,
    NOT_FOUND,
    RECORDS,
    REVOCATIONS,
    WHO,
    Certified,
    Issued,
    Issuing,
    NotDone,
)
from tests.faults.workload import DONE, OPEN, REFUSED, Lost, Way

OWN_SIGNER, OWN_AUTHORITY = "example.com/faults", "faults"
AUTHORITIES = f"{IDENTITY}/certificateauthorities"
LISTS = {SIGNER: "/crl/cluster.pem", OWN_SIGNER: f"/crl/{OWN_AUTHORITY}.pem"}
CONFLICT, UNAUTHORIZED = 409, 401
FEWEST, MOST = 4, 8  # certificates in use
PAUSE, POLL = 0.2, 0.3
SETTLED = 45.0  # seconds: a new leader begins within twelve, on a machine that does more than this
SURELY = 60.0  # seconds for an operation that is tried again
ASKED = 6  # revoked certificates that are presented again after each fault


@dataclass
class Subject:
    """A certificate in use, and the revocations that may exist of it."""

    issued: Issued
    holds: list[str] = field(default_factory=list)
    is_revoked: bool = False


class Revoking:
    """An administrator who changes revocations, and the holders of the certificates."""

    def __init__(
        self, ways: Sequence[Way], certified: Certified, issuing: Issuing, seed: int
    ) -> None:
        self._ways = ways
        self._turns = itertools.cycle(ways)
        self._certified = certified
        self._issuing = issuing
        self._rng = random.Random(f"{seed}/revoking")
        self._numbers = itertools.count()
        self._lock = asyncio.Lock()  # nobody changes revocations while they are compared
        self.promised: dict[str, bool | None] = {}  # by name: it must exist, must not, may
        self._lists: dict[str, RevocationList] = {}  # as last published, by signer
        self._newest: dict[str, RevocationList] = {}  # at the last agreement
        self.subjects: list[Subject] = []
        self._uids: dict[str, str] = {}  # of revocations that were acknowledged, by name
        self.done: Counter[str] = Counter()
        self.improper: list[str] = []

    @property
    def revoked(self) -> set[str]:
        """Uids of revocations that were acknowledged, and not lifted."""
        return set(self._uids.values())

    # Operations

    async def prepare(self) -> None:
        """Make an authority, and certificates of both signers, one of them on hold."""
        spec = {
            "signerName": OWN_SIGNER,
            "key": {},
            "subject": {"commonName": "Faults CA"},
            "issues": {"usages": ["client auth"]},
        }
        body = {"metadata": {"name": OWN_AUTHORITY}, "spec": spec}
        await self._surely(lambda: self._made(AUTHORITIES, body))
        stop = asyncio.Event()
        for signer in (SIGNER, SIGNER, OWN_SIGNER):
            await self._surely(partial(self._issue, stop, signer))
        for subject in self.subjects[1:]:
            await self._surely(partial(self._revoke, subject, HOLD))

    async def run(self, stop: asyncio.Event) -> None:
        """Change one revocation after the other until `stop` is set."""
        while not stop.is_set():
            with suppress(Lost, NotDone):
                if sum(not one.is_revoked for one in self.subjects) < FEWEST:
                    await self._issue(stop, self._rng.choice((SIGNER, SIGNER, OWN_SIGNER)))
                async with self._lock:
                    await self._change_one()
            await asyncio.sleep(PAUSE)

    async def change(self) -> None:
        """Lift a hold, put one, and revoke for good; each is tried until it is acknowledged."""
        async with self._lock:
            held = self._held()
            await self._revoke_one(HOLD)
            await self._revoke_one("superseded")
            await self._lift_all(held[:1])  # it is on hold already, and good in the end

    async def since_backup(self, *, whole_signer: bool) -> None:
        """Changes that a restore has to keep: of certificates in use, and of new ones."""
        stop = asyncio.Event()
        made = len(self.subjects)
        for _ in range(3):
            await self._surely(lambda: self._issue(stop, SIGNER))
        revoked, held, _ = self.subjects[made:]
        async with self._lock:
            await self._surely(lambda: self._revoke(revoked, "superseded"))
            await self._surely(lambda: self._revoke(held, HOLD))
            before = self._held()
            await self._revoke_one(HOLD)
            await self._revoke_one("superseded")
            await self._lift_all(before[:1])
            if whole_signer:
                await self._second_after(self.subjects[-1].issued)
                name = f"signer-{next(self._numbers)}"
                spec = {"authority": {"signerName": SIGNER}, "reason": "cACompromise"}
                await self._surely(lambda: self._put(name, spec))

    async def _second_after(self, one: Issued) -> None:
        """Wait until a revocation of everything until now means a certificate."""
        moment = one.facts.not_before + BACKDATE + 2 * MARGIN
        await asyncio.sleep((moment - datetime.now(UTC)).total_seconds())

    def restored(self) -> None:
        """A backup is in place: holds that were lifted since may exist again."""
        for name, exists in self.promised.items():
            if exists is False:
                self.promised[name] = None

    async def _change_one(self) -> None:
        subject = self._rng.choice(self._of_use())
        if subject.holds and self._rng.random() < 0.7:
            await self._lift(subject)
        else:
            final = self._rng.random() < (0.5 if subject.holds else 0.2)
            await self._revoke(subject, "superseded" if final else HOLD)

    def _of_use(self) -> list[Subject]:
        """Certificates that are accepted, or may be again; the oldest first."""
        return [one for one in self.subjects if not one.is_revoked]

    def _held(self) -> list[Subject]:
        return [one for one in self._of_use() if one.holds]

    async def _lift_all(self, held: Sequence[Subject]) -> None:
        for one in held:
            await self._surely(partial(self._lift, one))

    async def _revoke_one(self, reason: str) -> None:
        free = next((one for one in self._of_use() if not one.holds), None)
        if free is not None:
            await self._surely(lambda: self._revoke(free, reason))

    async def _issue(self, stop: asyncio.Event, signer: str) -> None:
        name = f"kept-{next(self._numbers)}"
        self.subjects.append(Subject(await self._issuing.new_certificate(name, stop, signer)))
        self.done["certificates issued"] += 1

    async def _revoke(self, subject: Subject, reason: str) -> None:
        name = f"{subject.issued.name}-{next(self._numbers)}"
        if reason == HOLD:
            subject.holds.append(name)
        else:
            subject.is_revoked = True
        named = {"sha256": subject.issued.facts.sha256}
        await self._put(name, {"certificate": named, "reason": reason})
        self.done["holds" if reason == HOLD else "revocations"] += 1
        await self._refused(subject.issued)

    async def _put(self, name: str, spec: dict[str, Any]) -> None:
        self.promised[name] = None
        answer = await self._made(REVOCATIONS, {"metadata": {"name": name}, "spec": spec})
        there = answer["metadata"]  # another one, if that revokes as much already
        self.promised[there["name"]] = True
        self._uids[there["name"]] = there["uid"]

    async def _lift(self, subject: Subject) -> None:
        for name in list(subject.holds):
            self.promised[name] = None
            self._uids.pop(name, None)  # without an answer, nobody knows whether it exists
            status, _ = await self._send("DELETE", f"{REVOCATIONS}/{name}")
            if status in DONE:
                self.promised[name] = False
                self.done["holds lifted"] += 1
            elif status != NOT_FOUND:
                raise NotDone
            subject.holds.remove(name)

    async def _surely(self, act: Callable[[], Awaitable[Any]]) -> None:
        """Try again, by one server after the other, until it is done."""
        end = asyncio.get_running_loop().time() + SURELY
        while True:
            try:
                await act()
                return
            except (Lost, NotDone):
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(POLL)

    # The check after a fault

    async def agree(self) -> None:
        """Wait until everything agrees, or note what does not."""
        clock = asyncio.get_running_loop().time
        async with self._lock:
            end = clock() + SETTLED
            wrong = {"not every server answers"}
            rounds = 0
            while wrong:
                if clock() > (end + SETTLED if rounds == 1 else end):
                    self.improper += [f"after {SETTLED:.0f} s: {text}" for text in sorted(wrong)]
                    return
                with suppress(Lost, NotDone):
                    found = await self._differences()
                    # Certificates are issued and revoked meanwhile: only what lasts counts, so a
                    # single round, as on a slow machine, gets a second one.
                    wrong = wrong & found if rounds else found
                    rounds += 1
                await asyncio.sleep(POLL if wrong else 0)
            self._compare_numbers()
        self.done["agreements"] += 1

    async def _differences(self) -> set[str]:
        found = Revocations(await self._items(REVOCATIONS))
        known = certificates(self._received(), await self._items(RECORDS))
        wrong: set[str] = set()
        for way in self._ways:
            self._lists = {signer: await self._list(way, LISTS[signer]) for signer in LISTS}
            wrong.update(disagreements(known, found, self._lists))
        wrong.update(await self._verdicts(known, found))
        self._compare_promises(found)
        return wrong

    def _received(self) -> list[Issued]:
        return [*(one.issued for one in self.subjects), *self._issuing.finished]

    def _compare_promises(self, found: Revocations) -> None:
        """Note acknowledged changes that are not there, once each; learn those that are open."""
        for name, exists in self.promised.items():
            if exists is not None and exists != (name in found.reasons):
                what = "is missing" if exists else "was deleted and is back"
                self.improper.append(f"the revocation {name} {what}")
                self.promised[name] = None
        for subject in self.subjects:
            mine = [name for name in found.reasons if name.startswith(f"{subject.issued.name}-")]
            subject.holds = [name for name in mine if found.reasons[name] == HOLD]
            subject.is_revoked = len(subject.holds) < len(mine)

    def _compare_numbers(self) -> None:
        """A later list has a higher number, or clients keep the older one."""
        for signer, current in self._lists.items():
            before = self._newest.get(signer)
            if before is not None and current.number < before.number and current != before:
                text = f"the list of {signer} has number {current.number} after {before.number}"
                self.improper.append(text)
            self._newest[signer] = current

    async def _list(self, way: Way, target: str) -> RevocationList:
        status, text = await way.send("GET", target)
        if status not in DONE:
            raise NotDone
        return read_list(text.encode())

    async def _verdicts(self, known: Sequence[Certificate], found: Revocations) -> list[str]:
        """Present certificates to every server: those in use, the newest, and some others."""
        wrong: list[str] = []
        statuses = {one.sha256: found.status(one) for one in known}
        received = [one for one in self._received() if one.signer == SIGNER]
        received = [one for one in received if one.facts.sha256 in statuses]  # since the comparison
        used = [one for one in received if statuses[one.facts.sha256] != REVOKED]
        newest = [
            one for one in received if one.name in {s.issued.name for s in self.subjects[-ASKED:]}
        ]
        others = self._rng.sample(received, min(len(received), ASKED))
        for one in {one.name: one for one in (*used[-ASKED:], *newest, *others)}.values():
            status = statuses[one.facts.sha256]
            if status in (HELD, REVOKED):
                await self._refused(one)
            elif status != UNSURE and one.facts.not_before <= datetime.now(UTC):
                async with self._certified(one.chain) as callers:
                    for caller in callers:
                        answered, _ = await caller.send("POST", WHO, {})
                        if answered not in DONE:
                            wrong.append(f"{answered} was answered to {one.name}, which is {GOOD}")
        return wrong

    async def _refused(self, one: Issued) -> None:
        """A server that accepts this certificate is wrong, at any time."""
        if one.signer != SIGNER:
            return  # servers accept no client certificates of this authority
        async with self._certified(one.chain) as callers:
            for caller in callers:
                with suppress(Lost):
                    status, _ = await caller.send("POST", WHO, {})
                    if status != UNAUTHORIZED and status not in OPEN:
                        text = f"{status} was answered to {one.name}, whose certificate is revoked"
                        self.improper.append(text)

    async def _items(self, collection: str) -> list[Any]:
        status, answer = await self._send("GET", collection)
        if status not in DONE:
            raise NotDone
        items: list[Any] = answer["items"]
        return items

    async def _made(self, collection: str, body: Any) -> Any:
        """Create an object; one that is in its way, for example of an earlier try, counts."""
        status, answer = await self._send("POST", collection, body)
        if status == CONFLICT:
            status, answer = await self._send("GET", f"{collection}/{answer['details']['name']}")
        if status not in DONE:
            raise NotDone
        return answer

    async def _send(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        status, answer = await next(self._turns).send(method, target, body)
        if status not in (*DONE, *REFUSED, *OPEN):
            self.improper.append(f"{method} {target} was answered {status}: {answer}")
        return status, answer
