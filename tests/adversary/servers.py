"""The servers that are attacked: on one file, with workers, or two over etcd.

They are processes of this checkout, or of another one (`checkout`). Their flags let keys and
revocations become effective within seconds, so that long sequences fit into minutes.
"""

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e import serving
from tests.e2e.serving import sealing_flags
from tests.faults.systems import complaints_in
from tests.unit.kernel.store.etcd_process import Cluster

STORES = ("file", "workers", "etcd")
ISSUER = "https://orchid.test"
READY_SECONDS = 120.0


@dataclass
class Servers:
    """One or two servers of one installation."""

    directory: Path
    store: str
    flags: tuple[str, ...]
    checkout: Path | None = None
    running: dict[int, serving.Server] = field(default_factory=dict)
    log_read: dict[Path, int] = field(default_factory=dict)
    _cluster: Cluster | None = None
    _ports: dict[int, int] = field(default_factory=dict)

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.running.values()]

    @property
    def first_port(self) -> int:
        """Of the first server that runs, or that will run again."""
        return next(iter(self.ports), self._ports[0])

    @property
    def can_restore(self) -> bool:
        return self.store != "etcd"

    def start(self) -> None:
        if self.store == "etcd":
            self._cluster = Cluster(self.directory, 1)
            self._cluster.start()
            asyncio.run(self._cluster.wait_healthy())
        for number in range(2 if self.store == "etcd" else 1):
            self._start(number)

    def _start(self, number: int) -> None:
        data = self.directory / f"server{number}"
        port = self._ports.setdefault(number, serving.free_port())
        launcher = ("env", f"PYTHONPATH={self.checkout / 'src'}") if self.checkout else ()
        started = serving.start(data, *self._flags(), port=port, launcher=launcher)
        try:
            server = serving.wait_until_ready(started, READY_SECONDS)
        except BaseException:
            started.kill()
            raise
        self.running[number] = server

    def _flags(self) -> tuple[str, ...]:
        if self._cluster is not None:
            urls = ",".join(self._cluster.urls)
            return (*self.flags, "--etcd-servers", urls, *sealing_flags(self.directory))
        return (*self.flags, "--workers", "2" if self.store == "workers" else "1")

    def restart(self, number: int = 0, *, kill: bool = False) -> None:
        """End a server, orderly or not, and start it again."""
        number = sorted(self.running)[number % len(self.running)]
        self._end(number, kill=kill)
        self._start(number)

    def fail_over(self, number: int) -> bool:
        """Kill one of two servers, or start the missing one; whether there are two."""
        if self._cluster is None:
            return False
        if len(self.running) == 1:
            self._start(1 - next(iter(self.running)))
        else:
            self._end(number % 2, kill=True)
        return True

    def _end(self, number: int, *, kill: bool = False) -> None:
        server = self.running.pop(number)
        if kill:
            server.kill()
        else:
            server.stop()

    def back_up(self, copy: Path) -> None:
        self._orchid("backup", str(copy))

    def restore(self, copy: Path) -> str:
        """Stop, put a backup into place and start again; what the command printed."""
        self._end(0)
        try:
            return self._orchid("restore", str(copy), "--accept-ledger")
        finally:
            self._start(0)

    def _orchid(self, *words: str) -> str:
        source = self.checkout or Path(__file__).parents[2]
        command = [sys.executable, "-m", "orchid", *words]
        command += ["--data-dir", str(self.directory / "server0")]
        environment = {**os.environ, "PYTHONPATH": str(source / "src")}
        done = subprocess.run(command, check=False, capture_output=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stdout!r} {done.stderr!r}")
        return (done.stdout + done.stderr).decode()

    def new_log(self) -> str:
        """What the servers wrote to their logs since the last call."""
        texts = []
        for server in self.running.values():
            with server.log.open("rb") as log:
                log.seek(self.log_read.get(server.log, 0))
                data = log.read()
            whole = data.rpartition(b"\n")[0]
            self.log_read[server.log] = self.log_read.get(server.log, 0) + len(whole)
            texts.append(whole.decode(errors="replace"))
        return "\n".join(texts)

    def close(self) -> None:
        for server in self.running.values():
            server.kill()
        if self._cluster is not None:
            self._cluster.kill()


__all__ = ["ISSUER", "STORES", "Servers", "complaints_in"]
