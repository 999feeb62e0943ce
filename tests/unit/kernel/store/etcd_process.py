"""A real etcd for tests: one member or several, on loopback, gone with all its data at the end.

Without fsync where etcd can do without, on a file system in memory where there is one, and with
short elections: a member is up in less than a tenth of a second.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.system_packages import require_program

START_SECONDS = 30


class Member:
    """One etcd process, which can be stopped and started again with its data."""

    def __init__(self, name: str, directory: Path, arguments: list[str], url: str) -> None:
        self.name = name
        self.url = url
        self._log = directory / f"{name}.log"
        self._arguments = [
            require_program("etcd"),
            *("--name", name, "--data-dir", str(directory / name)),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--heartbeat-interval", "20", "--election-timeout", "200"),
            *arguments,
            *fast_options(),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def forget(self) -> None:
        """Lose its data; it must have been killed."""
        shutil.rmtree(self._arguments[self._arguments.index("--data-dir") + 1])


class Cluster:
    """Some members that know each other."""

    def __init__(self, directory: Path, size: int = 1, arguments: list[str] | None = None) -> None:
        self.directory = directory
        scheme = "https" if "--cert-file" in (arguments or []) else "http"
        names = [f"m{n}" for n in range(size)]
        ports = free_ports(3 * size)
        peers = [f"http://127.0.0.1:{port}" for port in ports[:size]]
        urls = [f"{scheme}://127.0.0.1:{port}" for port in ports[size : 2 * size]]
        self._health = [f"http://127.0.0.1:{port}" for port in ports[2 * size :]]
        everyone = ",".join(f"{name}={peer}" for name, peer in zip(names, peers, strict=True))
        self.members = [
            Member(
                name,
                directory,
                [
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", everyone, "--listen-metrics-urls", health),
                    *(arguments or []),
                ],
                url,
            )
            for name, peer, url, health in zip(names, peers, urls, self._health, strict=True)
        ]

    @property
    def urls(self) -> list[str]:
        return [member.url for member in self.members]

    def start(self) -> None:
        for member in self.members:
            member.start()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def leader(self) -> Member | None:
        """The member that leads, as it says itself; None while none does."""
        for member, url in zip(self.members, self._health, strict=True):
            if "\netcd_server_is_leader 1\n" in metrics(url):
                return member
        return None

    async def wait_healthy(self, member: Member | None = None) -> None:
        """Wait until a member, or every one, answers consistent reads."""
        asked = [self.members.index(member)] if member else range(len(self.members))
        async with asyncio.timeout(START_SECONDS):
            for n in asked:
                # Another process sets no Event for us.
                while not await asyncio.to_thread(is_healthy, self._health[n]):  # noqa: ASYNC110 -- another process sets no event
                    await asyncio.sleep(0.01)


@contextlib.contextmanager
def running(size: int = 1, arguments: list[str] | None = None) -> Iterator[Cluster]:
    """Start a cluster, and end it with all its data."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - made private
    with tempfile.TemporaryDirectory(prefix="orchid-etcd-", dir=memory) as directory:
        cluster = Cluster(Path(directory), size, arguments)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill()


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False


def metrics(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=2) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


@cache
def fast_options() -> list[str]:
    usage = subprocess.run([require_program("etcd"), "--help"], capture_output=True, check=False)
    options = ["--unsafe-no-fsync"] if b"--unsafe-no-fsync" in usage.stdout + usage.stderr else []
    return [*options, "--log-level", "warn"]
