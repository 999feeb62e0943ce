"""Which process is at the other end of a connection, as the kernel knows it. Linux only.

Start with `Lines`. Each `Line` is a connection that is kept open and knows the worker at its end.
Never looks at a process that is not a child of the given server.
"""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from tests.e2e.serving import Server

ANSWER_SECONDS = 30.0


def children(server: Server) -> set[int]:
    """The processes that a server has started."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and parent_of(int(entry.name)) == server.pid:
            found.add(int(entry.name))
    return found


def parent_of(pid: int) -> int:
    try:
        # The name, in brackets, may hold anything; behind it come the state and the parent.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def worker_at(server: Server, client_port: int) -> int:
    """The process that has accepted the connection from a port; 0 if none has yet."""
    wanted = f"socket:[{_inode(server.port, client_port)}]"
    for pid in children(server):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(descriptor.readlink()) == wanted:
                    return pid
            except FileNotFoundError:
                continue  # closed while we looked
    return 0


def _inode(server_port: int, client_port: int) -> str:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ends = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
        if ends == [server_port, client_port]:
            return fields[9]
    return "none"


class Line:
    """A connection to one worker, as the holder of a token."""

    def __init__(self, server: Server, token: str) -> None:
        # Whom we trust is tested elsewhere; here it is who answers.
        tls = ssl._create_unverified_context()  # noqa: S323 -- who answers is not what is tested
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, context=tls, timeout=ANSWER_SECONDS
        )
        self._token = token
        try:
            self.call("GET", "/version")  # an answer: so somebody has accepted
        except BaseException:
            self.close()
            raise
        self.worker = worker_at(server, self._connection.sock.getsockname()[1])

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request and give its status and its answer; raises OSError, HTTPException."""
        answer = self._send(method, path, body)
        return answer.status, json.loads(answer.read())

    def text(self, path: str) -> str:
        """A page that is not JSON."""
        return self._send("GET", path, None).read().decode()

    def events(self, path: str) -> list[Any]:
        """All events of a watch until its timeout."""
        return [json.loads(line) for line in self._send("GET", path, None).read().splitlines()]

    def _send(self, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, headers)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()


class Lines:
    """Opens connections as the holder of a token, and closes them all at the end."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._open: list[Line] = []

    def to(self, server: Server) -> Line:
        """A connection to whichever worker takes it."""
        line = Line(server, self.token)
        self._open.append(line)
        return line

    def to_each(self, server: Server, count: int) -> list[Line]:
        """One connection to each of so many workers."""
        found: dict[int, Line] = {}
        for _ in range(1000):
            line = self.to(server)
            found.setdefault(line.worker, line)
            found.pop(0, None)  # nobody's: its worker has ended meanwhile
            if len(found) == count:
                return list(found.values())
            if found.get(line.worker) is not line:
                line.close()
        raise AssertionError(f"a thousand connections reached only {len(found)} workers")

    def close(self) -> None:
        for line in self._open:
            line.close()
