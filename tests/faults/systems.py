"""Systems under test: servers and their store, started and ended by the test.

`ServerOnSQLite` is one server, alone or with workers; `ServersOnEtcd` is three servers on three
members. Both give the addresses to work at, and, when all is over, the store's own log. How they
are struck is in faults.py; here are only the handles for it.

Disks are small file systems in memory, so that they can be filled, where we may mount one; the
clock is libfaketime's, so that it can jump, where that is installed. `missing` says what is not
there, by name.
"""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import Span, Store
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.conformance.exchanges import TOKENS
from tests.e2e import serving
from tests.e2e.serving import sealing_flags
from tests.faults.decisions import ledger_violations
from tests.faults.history import ABSENT, Commit
from tests.faults.issuing import unrecorded
from tests.faults.store_log import commits_after
from tests.unit.kernel.store.etcd_process import Cluster, Member

# Those that issue and revoke; none that removes anything: the clients alone do that.
CONTROLLERS = "csrsigning,certificate-authority,revocation-marker,revocation-list-publisher"
FLAGS = (
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", "https://orchid.test"),
    *("--history", "24h"),  # the whole log is needed at the end
)
CONTROLLERS_LEASE = Span.key("coordination/leases/orch-system/orch-controller-manager")
WENT_WRONG = ("request.failed", "Traceback (most recent call last)")  # what such a log says
START_SECONDS = 120.0  # much has to be read by then, on a machine that does more than this
MEGABYTES = 256  # of a disk: etcd takes twice 64 of them before anything is written


class Disk:
    """A small file system in memory at a directory, if we may mount one."""

    def __init__(self, place: Path, megabytes: int) -> None:
        place.mkdir(mode=0o700)
        options = f"size={megabytes}m,mode=0700"
        command = ["mount", "-t", "tmpfs", "-o", options, "orchid-faults", str(place)]
        self.place = place
        self.mounted = (
            shutil.which("mount") is not None
            and subprocess.run(command, capture_output=True, check=False).returncode == 0
        )
        self._ballast = place / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12):
                try:
                    while ballast.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.place)], check=True)


class Clock:
    """The time of day of a process that is started with `environment`."""

    LIBRARIES: ClassVar = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)
        self.environment = {}
        if self.LIBRARIES:
            self.environment = {
                "LD_PRELOAD": str(self.LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(file),
                "FAKETIME_CACHE_DURATION": "1",
                # As when somebody sets the time: what counts seconds goes on undisturbed.
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
            }

    @staticmethod
    def sweep(pid: int) -> None:
        """Remove what the library leaves behind of a process that was killed."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            Path("/dev/shm", name).unlink(missing_ok=True)  # noqa: S108 - the library's place

    def set(self, seconds: int) -> None:
        """Put the clock ahead, or back, of the true time; it is seen within a second."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._file)


class Machine:
    """One `orchid serve` with its data and its clock, which can be started again and again."""

    def __init__(self, data: Path, *flags: str) -> None:
        self.data = data
        self.clock = Clock(data.with_name(f"{data.name}.time"))
        self.flags = (*FLAGS, *flags)
        self._port = serving.free_port()
        self.server: serving.Server | None = None
        self.before_start: Callable[[], None] = lambda: None
        self._pids: list[int] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def running(self) -> serving.Server:
        assert self.server is not None
        return self.server

    def start(self, controllers: str = CONTROLLERS, launcher: Sequence[str] = ()) -> None:
        """Start the server with these controllers, and wait until it is ready."""
        self.before_start()
        flags = (*self.flags, "--controllers", controllers)
        self.server = serving.start(
            self.data, *flags, port=self._port, env=self.clock.environment, launcher=launcher
        )
        self._pids.append(self.server.pid)
        serving.wait_until_ready(self.server, START_SECONDS)

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()

    def kill(self) -> None:
        if self.server is not None:
            self.server.kill()

    def sweep(self) -> None:
        for pid in self._pids:
            self.clock.sweep(pid)


class System:
    """The common part of both systems: a directory, machines, and an orderly end."""

    def __init__(self, minutes: float) -> None:
        self._closing = ExitStack()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - made private
        self.directory = Path(
            self._closing.enter_context(
                tempfile.TemporaryDirectory(
                    prefix="orchid-faults-", dir=memory, ignore_cleanup_errors=True
                )
            )
        )
        self.megabytes = MEGABYTES + round(50 * minutes)  # the log is kept, and grows
        self.machines: list[Machine] = []
        self._log: list[Commit] = []
        self._copied = ABSENT  # the revision up to which the log was read
        self.missing: dict[str, str] = {}
        if not Clock.LIBRARIES:
            self.missing["clock jump"] = "system package missing: faketime"

    @property
    def urls(self) -> list[str]:
        return [machine.url for machine in self.machines]

    def start(self) -> None:
        raise AssertionError("each system has its own way")

    async def log(self) -> list[Commit]:
        """Stop the servers, and read what they have left."""
        for machine in self.machines:
            await asyncio.to_thread(machine.stop)
        store = await self.open_store()
        try:
            await self._copy_log(store)
        finally:
            await store.close()
        return self._log

    async def records(self, acknowledged: Mapping[str, set[str]], issued: set[str]) -> list[str]:
        """Faults of the ledger and the inventory that the stopped servers have left."""
        store = await self.open_store()
        try:
            wrong = await ledger_violations(store, self.machines[0].data, acknowledged)
            return wrong + await unrecorded(store, issued)
        finally:
            await store.close()

    def complaints(self) -> list[str]:
        """Log lines of servers that no fault excuses: where a server went wrong."""
        texts = [machine.running.log_text() for machine in self.machines]
        return [complaint for text in texts for complaint in complaints_in(text)]

    async def _copy_log(self, store: Store) -> None:
        """Read the log on, from where we last were."""
        commits, self._copied = await commits_after(store, self._copied)
        self._log += commits

    async def open_store(self) -> Store:
        raise AssertionError("each system has its own store")

    def disk(self, name: str) -> Disk:
        disk = Disk(self.directory / name, self.megabytes)
        self._closing.callback(disk.close)
        return disk

    def close(self) -> None:
        """End whatever still runs, and leave nothing behind."""
        for machine in self.machines:
            machine.kill()
            machine.sweep()
        self._closing.close()


def complaints_in(text: str) -> list[str]:
    """Where a server went wrong, by its log: once for each word that says so."""
    places = [text.find(word) for word in WENT_WRONG]
    return [
        f"a server wrote: {text[max(0, place - 300) : place + 3000]}"
        for place in places
        if place >= 0
    ]


class ServerOnSQLite(System):
    """One server on one file, with as many workers."""

    def __init__(self, minutes: float, workers: int, *flags: str) -> None:
        super().__init__(minutes)
        self.workers = workers
        self.file_disk = self.disk("data")
        self._backups = itertools.count()
        self.machines = [Machine(self.file_disk.place, "--workers", str(workers), *flags)]

    @property
    def urls(self) -> list[str]:
        return [self.machines[0].url] * 3  # each a way of its own, with its own connections

    def start(self) -> None:
        self.machines[0].start()

    async def back_up(self) -> Path:
        """Copy the store while the server runs."""
        copy = self.directory / f"backup-{next(self._backups)}.db"
        await self._orchid("backup", str(copy))
        return copy

    async def restore(self, copy: Path) -> None:
        """Put a copy into place; no server may run. Commits since the copy are lost."""
        store = await SQLiteStore.open(copy)
        try:
            await self._copy_log(store)
        finally:
            await store.close()
        self._copied = ABSENT  # the restored store has no history before its restore
        await self._orchid("restore", str(copy), "--accept-ledger")

    async def _orchid(self, *words: str) -> None:
        command = [sys.executable, "-m", "orchid", *words, "--data-dir", str(self.file_disk.place)]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)

    async def open_store(self) -> Store:
        return await SQLiteStore.open(self.file_disk.place / "orchid.db")


class ServersOnEtcd(System):
    """Three servers on three members of one etcd."""

    def __init__(self, minutes: float, *flags: str) -> None:
        super().__init__(minutes)
        self.disks = [self.disk(f"m{number}") for number in range(3)]  # where the members look
        self.cluster = Cluster(self.directory, 3)
        urls = ",".join(self.cluster.urls)
        self.machines = [
            Machine(
                self.directory / f"server{number}",
                *("--etcd-servers", urls, *sealing_flags(self.directory), *flags),
            )
            for number in range(3)
        ]
        if not all(disk.mounted for disk in self.disks):
            self.missing["full disk"] = "no file system could be mounted"

    def start(self) -> None:
        self.cluster.start()
        asyncio.run(self.cluster.wait_healthy())
        first, *others = self.machines
        first.start()
        for other in others:
            self.copy_data(first, other)
            other.start()

    @staticmethod
    def copy_data(first: Machine, other: Machine) -> None:
        """They are one server to their clients: the same authority."""
        shutil.copytree(first.data, other.data)

    def disk_of(self, member: Member) -> Disk:
        return self.disks[self.cluster.members.index(member)]

    async def leading_controllers(self) -> str:
        """The identity of the process whose controllers work, by their Lease."""
        store = await self.open_store()
        try:
            [lease] = (await store.read(CONTROLLERS_LEASE)).records
        finally:
            await store.close()
        return str(json.loads(lease.value)["spec"].get("holderIdentity", ""))

    async def compact(self, keep: int) -> None:
        """Have etcd forget all but its newest revisions; we do not."""
        store = await self.open_store()
        try:
            newest = await store.revision()
            await self._copy_log(store)
            await store.compact(max(newest - keep, 1))
        finally:
            await store.close()

    async def open_store(self) -> Store:
        return await EtcdStore.open(self.cluster.urls)

    def close(self) -> None:
        for machine in self.machines:
            machine.kill()
        self.cluster.kill()
        super().close()
