"""Certificates from the first request to the last: create, approve, wait, everything stored.

Start with `issue`. Each connection creates a request for the API client signer, approves it (or
leaves that to policies) and waits until a watch, which all of them share, shows the certificate.
The controllers of the server sign. All requests differ, so that no cache makes them cheaper.
"""

import asyncio
import base64
import itertools
import json
import secrets
import time
import urllib.parse
from collections.abc import Iterator

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.connection import Connection
from benchmarks.harness import Sent

POLICIES = "/apis/identity.orch.io/v1alpha1/approvalpolicies"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
DIFFERENT = 2000  # more than any cache holds
SIGNER = "orch.io/orch-apiserver-client"
USAGES = ["digital signature", "client auth"]
APPROVED = {"type": "Approved", "status": "True", "reason": "Bench"}
PATIENCE_SECONDS = 60.0


def issue(url: str, *, seconds: int, connections: int, by_policy: bool = False) -> Sent:
    """Issue certificates for so many seconds, from as many connections at once."""
    return uvloop.run(_issue(url, seconds, connections, by_policy))


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
    """Certificate requests (PEM in base64), each for another user, with one shared key."""
    key = ec.generate_private_key(ec.SECP256R1())
    for number in range(count):
        user = x509.NameAttribute(NameOID.COMMON_NAME, f"user-{number}")
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([user]))
        made = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        yield base64.b64encode(made).decode()


async def _issue(url: str, seconds: int, connections: int, by_policy: bool) -> Sent:
    port = urllib.parse.urlsplit(url).port or 0
    bodies = list(signing_requests(DIFFERENT))
    waiting: dict[bytes, asyncio.Future[None]] = {}
    watcher = await Connection.open(port)
    now = json.loads(await watcher.send("GET", f"{REQUESTS}?limit=1"))["metadata"]
    changes = f"{REQUESTS}?watch=1&resourceVersion={now['resourceVersion']}"
    watching = asyncio.create_task(watcher.watch(changes, waiting))
    workers = [await Connection.open(port) for _ in range(connections)]
    numbers, done = itertools.count(), 0
    run = f"bench-{secrets.token_hex(4)}"  # a server may be measured several times
    start = time.monotonic()

    async def work(connection: Connection) -> None:
        nonlocal done
        while time.monotonic() - start < seconds:
            number = next(numbers)
            name = f"{run}-{number}"
            issued = await ask(connection, name, bodies[number % len(bodies)], waiting)
            if not by_policy:
                await approve(connection, name)
            await asyncio.wait_for(issued, PATIENCE_SECONDS)
            done += 1

    await asyncio.gather(*(work(connection) for connection in workers))
    elapsed = time.monotonic() - start
    watching.cancel()
    for connection in (watcher, *workers):
        connection.close()
    return Sent(done, done / elapsed)


async def ask(
    connection: Connection, name: str, request: str, waiting: dict[bytes, asyncio.Future[None]]
) -> asyncio.Future[None]:
    """Request one certificate; the future is done when it has been issued."""
    issued = waiting[name.encode()] = asyncio.get_running_loop().create_future()
    spec = {"request": request, "signerName": SIGNER, "usages": USAGES}
    await connection.send("POST", REQUESTS, {"metadata": {"name": name}, "spec": spec})
    return issued


async def approve(connection: Connection, name: str) -> None:
    decision = {"metadata": {"name": name}, "status": {"conditions": [APPROVED]}}
    await connection.send("PUT", f"{REQUESTS}/{name}/approval", decision)
