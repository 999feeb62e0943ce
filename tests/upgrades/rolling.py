"""Two servers over one etcd, replaced one after the other under load."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.https import Https
from tests.e2e.serving import Server, free_port, sealing_flags, start, wait_until_ready
from tests.upgrades.population import FLAGS, SIGNING, Population, problems


class Pair:
    """The two servers: same keys, one etcd, each on a port of its own."""

    def __init__(self, home: Path, etcd: str) -> None:
        self.ports = (free_port(), free_port())
        self._home = home
        self._flags = (*FLAGS, *SIGNING, *sealing_flags(home), "--etcd-servers", etcd)
        self._running: list[Server | None] = [None, None]

    def start(self, number: int, environment: Mapping[str, str] | None = None) -> None:
        """Start one; the second begins with a copy of the files of the first."""
        data = self._home / f"server-{number}"
        if number and not data.exists():
            shutil.copytree(self._home / "server-0", data)
        server = start(data, *self._flags, port=self.ports[number], env=environment)
        self._running[number] = server
        wait_until_ready(server)

    def stop(self, number: int) -> None:
        server, self._running[number] = self._running[number], None
        assert server is not None
        server.stop()

    def replace(self, number: int, environment: Mapping[str, str] | None = None) -> None:
        self.stop(number)
        self.start(number, environment)

    def problems(self, made: Population) -> list[str]:
        """What either server has lost, or refuses."""
        found = []
        for number, port in enumerate(self.ports):
            with Https(port) as server:
                found += [f"server {number}: {each}" for each in problems(server, port, made)]
        return found

    def kill(self) -> None:
        for server in self._running:
            if server is not None:
                server.kill()


@contextmanager
def pair(home: Path, etcd: str) -> Iterator[Pair]:
    """Two servers, not started yet; none is left at the end."""
    servers = Pair(home, etcd)
    try:
        yield servers
    finally:
        servers.kill()
