"""Run clients against a system while faults strike it, then judge what they saw.

    python -m tests.faults.run --store workers --minutes 10
    python -m tests.faults.run --store etcd --minutes 1 --seed 4711 --keep /tmp/story

`sqlite` is one server on a file, `workers` one with three workers, `etcd` three servers on three
members. The seed, which is printed, decides what each client means to do and which fault strikes
when; the machine decides how they meet. Ends with exit code 1 if anything was violated.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.exchanges import tokens_by_user
from tests.faults.checker import Violation, violations
from tests.faults.decisions import Decisions
from tests.faults.faults import EtcdFaults, Faults, SQLiteFaults, plan
from tests.faults.history import Commit, History, Outcome
from tests.faults.issuing import Issuing, over_tls
from tests.faults.revoking import Revoking
from tests.faults.rights import Removal, Rights
from tests.faults.systems import ServerOnSQLite, ServersOnEtcd, System
from tests.faults.workload import OverTls, Workload

SHOWN = 20
SYSTEMS: dict[str, Callable[[float], ServerOnSQLite | ServersOnEtcd]] = {
    "sqlite": lambda minutes: ServerOnSQLite(minutes, workers=1),
    "workers": lambda minutes: ServerOnSQLite(minutes, workers=3),
    "etcd": ServersOnEtcd,
}


@dataclass
class Report:
    """How a run went."""

    store: str
    seed: int
    history: History
    only: str = ""  # the faults that were wanted, by a part of their name
    log: list[Commit] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)  # what rights rested on, acknowledged
    decided: int = 0  # acknowledged approvals, each of which the ledger has once
    issued: int = 0  # certificates that were seen, each of which is on record
    revoked: int = 0  # those of them that were accepted before, and refused after
    changed: Counter[str] = field(default_factory=Counter)  # holds and revocations, and checks
    struck: Counter[str] = field(default_factory=Counter)
    missing: dict[str, str] = field(default_factory=dict)
    broken: list[Violation] = field(default_factory=list)
    server_logs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        calls = Counter(f"{call.action} {call.outcome.value}" for call in self.history.calls)
        unknown = [call for call in self.history.calls if call.outcome is Outcome.UNKNOWN]
        why = Counter(f"answered {call.status or 'nothing'}" for call in unknown)
        watchers = self.history.watchers
        events = sum(len(segment.events) for each in watchers for segment in each.segments)
        sessions = sum(watcher.sessions for watcher in watchers)
        over = sum(len(watcher.segments) - 1 for watcher in watchers)
        lines = [
            f"{self.store}, seed {self.seed}: {len(self.history.calls)} calls, "
            f"{len(self.log)} commits, {self.struck.total()} faults, "
            f"{len(self.broken)} violations",
            f"  calls: {_counted(calls)}",
            f"  unknown: {_counted(why)}",
            f"  watches: {len(watchers)} watchers, {sessions} sessions, {events} events, "
            f"{over} times begun again",
            f"  ledger: {self.decided} approvals acknowledged",
            f"  certificates: {self.issued} handed out, {self.revoked} accepted and then revoked",
            f"  holds and revocations: {_counted(self.changed)}",
            f"  rights taken away: {_counted(self.removed)}",
            f"  faults: {_counted(self.struck)}",
            *(f"  not injected: {kind} ({why})" for kind, why in self.missing.items()),
            *(f"  VIOLATION {violation}" for violation in self.broken[:SHOWN]),
        ]
        if len(self.broken) > SHOWN:
            lines.append(f"  and {len(self.broken) - SHOWN} more")
        return "\n".join(lines)


def run(store: str, minutes: float, seed: int, keep: Path | None = None, only: str = "") -> Report:
    """One complete run: start, load, faults, stop, check."""
    system = SYSTEMS[store](minutes)
    try:
        system.start()
        report = asyncio.run(_run(system, minutes, Report(store, seed, History(), only=only)))
    except BaseException:
        _show_logs(system)
        raise
    finally:
        system.close()
    report.broken = violations(report.history, report.log)
    if keep is not None or report.broken:
        keep = keep or Path(tempfile.mkdtemp(prefix="orchid-faults-"))
        keep.mkdir(parents=True, exist_ok=True)
        report.history.save(keep / f"{store}-{seed}.json", report.log)
        for machine, text in zip(system.machines, report.server_logs, strict=True):
            (keep / f"{store}-{seed}-{machine.data.name}.log").write_text(text)
        _say(f"everything that was seen is in {keep}")
    return report


class Crew:
    """All clients of a run; they work until they rest."""

    def __init__(self, system: System, history: History, seed: int) -> None:
        token = tokens_by_user()["admin"]
        certified = over_tls(system.urls, system.directory)
        self._ways = [OverTls(url, token) for url in system.urls]
        self.workload = Workload(self._ways, history, seed)
        self.decisions = Decisions(self._ways)
        self.rights = Rights(system.urls, token)
        self.issuing = Issuing(self._ways, certified)
        self.revoking = Revoking(self._ways, certified, self.issuing, seed)
        self._tokens: Sequence[tuple[Removal, str, str]] = ()  # to be revoked after a backup
        self._issued: set[str] = set()  # at the time of a backup
        self._stop = asyncio.Event()
        self._working: asyncio.Future[list[None]] | None = None

    def begin(self) -> None:
        crew = (self.workload, self.decisions, self.rights, self.issuing, self.revoking)
        self._stop = asyncio.Event()
        self._working = asyncio.gather(*(each.run(self._stop) for each in crew))

    async def rest(self) -> None:
        self._stop.set()
        if self._working is not None:
            await self._working

    async def prepare(self) -> None:
        """Some certificates, so that there were some, whatever strikes afterwards."""
        await self.issuing.run(asyncio.Event(), 1)
        await self.revoking.prepare()

    async def check(self) -> None:
        """Compare everything that is said of revocations, now that a fault is healed."""
        await self.revoking.agree()
        await self.rights.ask_again()

    async def change_revocations(self) -> None:
        await self.revoking.change()

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        await self.rest()
        self._tokens = await self.rights.given()
        self._issued = set(self.issuing.issued)
        yield
        self.begin()

    async def change_since_backup(self, *, whole_signer: bool) -> None:
        await self.revoking.since_backup(whole_signer=whole_signer)
        await self.rights.revoke(self._tokens)

    def restored(self) -> None:
        self.issuing.issued = self._issued
        self.revoking.restored()

    async def close(self) -> None:
        for way in self._ways:
            await way.close()


async def _run(system: ServerOnSQLite | ServersOnEtcd, minutes: float, report: Report) -> Report:
    faults: Faults
    report.missing = system.missing
    crew = Crew(system, report.history, report.seed)
    faults = (
        EtcdFaults(system, crew)
        if isinstance(system, ServersOnEtcd)
        else SQLiteFaults(system, crew)
    )
    try:
        await crew.prepare()
        async with crew.workload.watching():
            crew.begin()
            try:
                await _strike(faults, minutes * 60, report, crew)
            finally:
                await crew.rest()
            await crew.workload.look()
    finally:
        await crew.close()
    report.log = await system.log()
    await _judge(system, crew, report)
    return report


async def _judge(system: System, crew: Crew, report: Report) -> None:
    """Put what the clients saw into the report, and what the stopped servers have left."""
    decisions, rights, issuing, revoking = crew.decisions, crew.rights, crew.issuing, crew.revoking
    report.decided = len(decisions.acknowledged)
    report.removed, report.changed = rights.removed, revoking.done
    report.issued, report.revoked = len(issuing.issued), issuing.accepted
    for each in (decisions, rights, issuing, revoking):
        report.history.improper += each.improper
    acknowledged = {
        "approval": decisions.acknowledged,
        "revocation": issuing.revoked | rights.revoked | revoking.revoked,
    }
    report.history.improper += await system.records(acknowledged, issuing.issued)
    report.history.improper += system.complaints()
    report.server_logs = [machine.running.log_text() for machine in system.machines]


async def _strike(faults: Faults, seconds: float, report: Report, crew: Crew) -> None:
    """Carry out the plan until the time is over, and check after every fault."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    there = [kind for kind in faults.kinds if kind not in report.missing]
    kinds = [kind for kind in there if report.only in kind]
    for fault in plan(report.seed, kinds):
        await asyncio.sleep(fault.pause)
        if clock() >= end:
            return
        begun = clock()
        await faults.strike(fault)
        healed = clock()
        await crew.check()
        _say(
            f"  {end - begun:6.1f} s left: {fault}, healed after {healed - begun:.1f} s, "
            f"settled after {clock() - healed:.1f} s"
        )
        report.struck[fault.kind] += 1


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counter.items())) or "none"


def _show_logs(system: System) -> None:
    for machine in system.machines:
        if machine.server is not None:
            _say(machine.server.with_log("was there"))


def _say(text: str) -> None:
    print(text, flush=True)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run", description=__doc__)
    parser.add_argument("--store", choices=SYSTEMS, required=True)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--keep", type=Path, help="a directory for the history")
    parser.add_argument("--only", default="", help="what the name of a fault must contain")
    given = parser.parse_args(words)
    if given.store == "etcd" and not shutil.which("etcd"):
        _say("etcd is not installed; scripts/system-packages does that")
        return 2
    _say(f"{given.store}: --minutes {given.minutes} --seed {given.seed}")
    report = run(given.store, given.minutes, given.seed, given.keep, given.only)
    _say(str(report))
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
