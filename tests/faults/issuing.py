"""Certificates that are issued, used and revoked during faults.

`Issuing.run` asks for a certificate, approves the request, waits until a signing controller has
handed it out, and looks by every server whether it is on record. Then it proves itself with it,
revokes it by any server and, once that is acknowledged, asks every server again. A fault excuses
any refusal. It excuses no certificate without a record, and no acceptance of one that is revoked.

When all is over, `unrecorded` reads the store itself: what a request holds has a record there.
"""

import asyncio
import base64
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import serialization

from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, read_issued
from orchid.kernel.store.interface import Span, Store
from tests.faults.decisions import APPROVED, REQUESTS, SIGNER, STORED_REQUESTS
from tests.faults.workload import DONE, OPEN, REFUSED, Lost, OverTls, Way
from tests.unit.kernel.credentials import samples

IDENTITY = "/apis/identity.orch.io/v1alpha1"
RECORDS, REVOCATIONS = f"{IDENTITY}/issuedcertificates", f"{IDENTITY}/credentialrevocations"
STORED_RECORDS = Span.prefix("identity/issuedcertificates/")
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
PAUSE = 0.05
PATIENCE = 15.0  # seconds for a certificate: when a leader is killed, the next one waits for long
UNAUTHORIZED, NOT_FOUND = 401, 404


class Issued(NamedTuple):
    """A certificate that a client received."""

    name: str  # of the request
    signer: str
    chain: bytes
    facts: IssuedFacts


Certified = Callable[[bytes], AbstractAsyncContextManager[Sequence[Way]]]
"""Connects to every server with a client certificate, by its chain."""


class NotDone(Exception):
    """Something on the way was not done: there is nothing to be seen this time."""


class Issuing:
    """An administrator who issues certificates and takes them back, and those who have them."""

    def __init__(self, ways: Sequence[Way], certified: Certified) -> None:
        self._ways = ways
        self._turns = itertools.cycle(ways)
        self._certified = certified
        self._numbers = itertools.count()
        self.issued: set[str] = set()  # numbers of certificates that were handed out
        self.revoked: set[str] = set()  # uids of revocations that were acknowledged
        self.finished: list[Issued] = []  # those that were revoked, with acknowledgement
        self.accepted = 0  # certificates that were accepted before they were revoked
        self.improper: list[str] = []

    async def run(self, stop: asyncio.Event, most: int | None = None) -> None:
        """Issue and revoke until `stop` is set, or so many times."""
        for _ in range(most) if most is not None else itertools.count():
            if stop.is_set():
                return
            with suppress(Lost, NotDone):
                await self._issue_and_revoke(f"issued-{next(self._numbers)}", stop)
            await asyncio.sleep(PAUSE)

    async def _issue_and_revoke(self, name: str, stop: asyncio.Event) -> None:
        made = await self.new_certificate(name, stop)
        async with self._certified(made.chain) as callers:
            accepted = await self._asked(callers)
            answer = await self._done("POST", REVOCATIONS, revocation(name, made.facts))
            self.revoked.add(answer["metadata"]["uid"])
            self.finished.append(made)
            for status in await self._asked(callers):
                if status != UNAUTHORIZED and status not in OPEN:
                    text = f"{status} was answered to {name} after its certificate was revoked"
                    self.improper.append(text)
        self.accepted += any(status in DONE for status in accepted)

    async def new_certificate(self, name: str, stop: asyncio.Event, signer: str = SIGNER) -> Issued:
        """A new certificate, which is in the inventory; raises NotDone, Lost."""
        chain = await self._handed_out(name, stop, signer)
        made = Issued(name, signer, chain, read_issued(chain))
        self.issued.add(made.facts.serial)
        await self._look_for(made.facts)
        return made

    async def _handed_out(self, name: str, stop: asyncio.Event, signer: str) -> bytes:
        """The certificate of a new request, as soon as any server shows it."""
        spec = {
            "request": base64.b64encode(samples.request(name)).decode(),
            "signerName": signer,
            "usages": ["client auth"],
        }
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": spec}
        await self._done("POST", REQUESTS, body)
        decided = {**body, "status": {"conditions": [APPROVED]}}
        await self._done("PUT", f"{REQUESTS}/{name}/approval", decided)
        clock = asyncio.get_running_loop().time
        end = clock() + PATIENCE
        while clock() < end and not stop.is_set():
            with suppress(Lost, NotDone):
                found = await self._done("GET", f"{REQUESTS}/{name}")
                if "certificate" in found["status"]:
                    return base64.b64decode(found["status"]["certificate"])
            await asyncio.sleep(PAUSE)
        raise NotDone

    async def _look_for(self, facts: IssuedFacts) -> None:
        """An issued certificate has its record on every server."""
        for way in self._ways:
            with suppress(Lost):
                status, answer = await way.send("GET", f"{RECORDS}/{facts.serial}")
                known = self._judged(status, answer) in DONE
                if status == NOT_FOUND or (known and answer["spec"]["sha256"] != facts.sha256):
                    self.improper.append(f"{facts.subject} was handed out and is not on record")

    async def _asked(self, callers: Sequence[Way]) -> list[int]:
        """The answer of each server to the certificate; none for a server that does not answer."""
        asking = [caller.send("POST", WHO, {}) for caller in callers]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Lost):
                raise answer
        return [self._judged(*answer) for answer in answers if not isinstance(answer, Lost)]  # type: ignore[misc]  # any other was raised

    async def _done(self, method: str, target: str, body: Any = None) -> Any:
        status, answer = await next(self._turns).send(method, target, body)
        if self._judged(status, answer) not in DONE:
            raise NotDone
        return answer

    def _judged(self, status: int, answer: Any) -> int:
        if status not in (*DONE, *REFUSED, *OPEN, UNAUTHORIZED):
            self.improper.append(f"{status} was answered: {answer}")
        return status


def revocation(name: str, facts: IssuedFacts) -> dict[str, Any]:
    """A revocation of a certificate, by each of its names in turn."""
    ways_to_name: tuple[dict[str, str], ...] = (
        {"sha256": facts.sha256},
        {"signerName": SIGNER, "serialNumber": facts.serial},
        {"requestName": name},
    )
    named = ways_to_name[int(facts.serial[-1], 16) % len(ways_to_name)]
    return {"metadata": {"name": name}, "spec": {"certificate": named, "reason": "superseded"}}


def over_tls(urls: Sequence[str], directory: Path) -> Certified:
    """Ways over TLS, on which a certificate is shown; its files are kept in a directory."""

    @asynccontextmanager
    async def certified(chain: bytes) -> Any:
        place = directory / "client.pem"
        place.touch(mode=0o600)
        place.write_bytes(chain + KEY)
        async with AsyncExitStack() as stack:
            ways = [OverTls(url, identity=place) for url in urls]
            for way in ways:
                stack.push_async_callback(way.close)
            yield ways

    return certified


KEY = samples.P256.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


async def unrecorded(store: Store, issued: set[str]) -> list[str]:
    """Certificates of requests and clients that are missing in the inventory."""
    records = [json.loads(one.value) for one in (await store.read(STORED_RECORDS)).records]
    known = {one["spec"]["sha256"] for one in records}
    requests = [json.loads(one.value) for one in (await store.read(STORED_REQUESTS)).records]
    chains = [one["status"].get("certificate") for one in requests]
    held = [read_issued(base64.b64decode(chain)) for chain in chains if chain]
    lost = issued - {facts.serial for facts in held}
    return [
        *(f"{facts.subject} has no record" for facts in held if facts.sha256 not in known),
        *(f"the certificate {serial} was handed out and is lost" for serial in lost),
    ]
