"""Certificates from the first request to the last: create, approve, wait, everything stored.

Start with `measure`. Each connection creates a request for the API client signer, approves it (or
leaves that to policies) and waits until a watch, which all of them share, shows the certificate.
The server's own controllers sign. Every request is another one, as nothing that was seen before may
make the next one cheaper.
"""

import asyncio
import base64
import itertools
import json
import os
import re
import secrets
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.setting import HEADERS

POLICIES = "/apis/identity.orch.io/v1alpha1/approvalpolicies"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
DIFFERENT = 2000  # more than any cache remembers
SIGNER = "orch.io/orch-apiserver-client"
USAGES = ["digital signature", "client auth"]
NAME = re.compile(rb'"name":"([^"]+)"')
LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
APPROVED = {"type": "Approved", "status": "True", "reason": "Bench"}
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Issued:
    """What came of it; latencies in milliseconds, from asking to the certificate."""

    per_second: float
    certificates: int
    cpu_ms: float  # of the server, for one certificate
    p50: float
    p99: float


def measure(
    url: str, pid: int, *, seconds: int, connections: int, by_policy: bool = False
) -> Issued:
    """Issue certificates for so many seconds, from as many connections at once."""
    return uvloop.run(_measure(url, pid, seconds, connections, by_policy))


def policies(count: int) -> Iterator[dict[str, object]]:
    """Policies of one signer for so many teams; the last one allows what is asked for here."""
    for number in range(count):
        team = "system:masters" if number == count - 1 else f"team-{number}"
        yield {
            "metadata": {"name": team.replace(":", "-")},
            "spec": {
                "signerNames": [SIGNER],
                "requesters": {"groups": [team]},
                "allows": {
                    "commonName": "user-*",
                    "usages": USAGES,
                    "keys": ["ECDSA-*"],
                    "maxDuration": "8760h",
                },
                "rules": [{"expression": "request.commonName.startsWith('user-')"}],
            },
        }


def signing_requests(count: int) -> Iterator[str]:
    """Requests in PEM in base64, each for another user; they share a key, which nobody looks at."""
    key = ec.generate_private_key(ec.SECP256R1())
    for number in range(count):
        user = x509.NameAttribute(NameOID.COMMON_NAME, f"user-{number}")
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([user]))
        made = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        yield base64.b64encode(made).decode()


async def _measure(url: str, pid: int, seconds: int, connections: int, by_policy: bool) -> Issued:
    address = urllib.parse.urlsplit(url)
    # The server is ours and on loopback, and its certificate is as new as itself.
    tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback

    async def connect() -> "Connection":
        return Connection(
            *await asyncio.open_connection(address.hostname, address.port, ssl=tls, limit=1 << 22)
        )

    bodies = list(signing_requests(DIFFERENT))
    waiting: dict[bytes, asyncio.Future[None]] = {}
    watcher = await connect()
    now = json.loads(await watcher.send("GET", f"{REQUESTS}?limit=1", None))["metadata"]
    changes = f"{REQUESTS}?watch=1&resourceVersion={now['resourceVersion']}"
    watching = asyncio.create_task(watcher.watch(changes, waiting))
    workers = [await connect() for _ in range(connections)]
    numbers, took = itertools.count(), list[float]()
    run = f"bench-{secrets.token_hex(4)}"  # a server may be measured again and again
    cpu, start = processor_seconds(pid), time.monotonic()

    async def issue(connection: Connection) -> None:
        while time.monotonic() - start < seconds:
            number, began = next(numbers), time.monotonic()
            body, name = bodies[number % len(bodies)], f"{run}-{number}"
            issued = await ask(connection, name, body, waiting)
            if not by_policy:
                await approve(connection, name)
            await asyncio.wait_for(issued, PATIENCE_SECONDS)
            took.append(time.monotonic() - began)

    await asyncio.gather(*(issue(connection) for connection in workers))
    elapsed, used = time.monotonic() - start, processor_seconds(pid) - cpu
    watching.cancel()
    for connection in (watcher, *workers):
        connection.close()
    took.sort()
    return Issued(
        per_second=round(len(took) / elapsed, 1),
        certificates=len(took),
        cpu_ms=round(used / len(took) * 1000, 3),
        p50=round(took[len(took) // 2] * 1000, 1),
        p99=round(took[len(took) * 99 // 100] * 1000, 1),
    )


async def ask(
    connection: "Connection", name: str, request: str, waiting: dict[bytes, asyncio.Future[None]]
) -> asyncio.Future[None]:
    """Ask for one certificate; give what tells that it is issued."""
    issued = waiting[name.encode()] = asyncio.get_running_loop().create_future()
    spec = {"request": request, "signerName": SIGNER, "usages": USAGES}
    await connection.send("POST", REQUESTS, {"metadata": {"name": name}, "spec": spec})
    return issued


async def approve(connection: "Connection", name: str) -> None:
    decision = {"metadata": {"name": name}, "status": {"conditions": [APPROVED]}}
    await connection.send("PUT", f"{REQUESTS}/{name}/approval", decision)


class Connection:
    """One kept connection, with as little of HTTP as the measurement needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())

    async def send(self, method: str, path: str, body: object) -> bytes:
        data = json.dumps(body).encode() if body is not None else b""
        self._write(method, path, f"Content-Length: {len(data)}\r\n", data)
        status, length = await self._head()
        content = await self._reader.readexactly(length)
        if status >= 300:
            raise SystemExit(f"{method} {path}: {status} {content.decode(errors='replace')}")
        return content

    async def watch(self, path: str, waiting: dict[bytes, asyncio.Future[None]]) -> None:
        """Tell whoever waits for a name that its certificate is there."""
        self._write("GET", path, "", b"")
        await self._head()
        while line := await self._reader.readline():
            if b'"certificate":"' in line and (name := NAME.search(line)):
                issued = waiting.pop(name[1], None)
                if issued is not None:
                    issued.set_result(None)

    def close(self) -> None:
        self._writer.close()

    def _write(self, method: str, path: str, more: str, data: bytes) -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\n{self._headers}{more}\r\n"
        self._writer.write(head.encode() + data)

    async def _head(self) -> tuple[int, int]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        return int(head.split(b" ", 2)[1]), int(length[1]) if length else 0


def processor_seconds(pid: int) -> float:
    """The time that a process has used of a processor, in itself and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
