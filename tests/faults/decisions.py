"""Decisions while faults strike, and whether the ledger tells of each of them exactly once.

`Decisions.run` makes certificate requests and approves them, by any server that is there. Then
`ledger_violations` reads the store itself: the signed log must hold, and have one entry for every
approved request and for nothing else; entries that still wait for their place count as well.
"""

import asyncio
import base64
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from orchid.credentials.keys import read_private_key
from orchid.ledger import places
from orchid.ledger.entries import seal
from orchid.ledger.reading import StoredLog
from orchid.store.interface import Span, Store
from orchid.tlog.audit import LogRefused, audit, entries
from orchid.tlog.checkpoints import Checkpoint
from orchid.tlog.notes import NoteRefused, NoteVerifier
from tests.faults.workload import DONE, OPEN, REFUSED, Lost, Way
from tests.unit.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
STORED = Span.prefix("certificates/certificatesigningrequests/")
PAUSE = 0.05
APPROVED = {"type": "Approved", "status": "True", "reason": "Faults"}


class Decisions:
    """A client that approves one request after the other."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = itertools.cycle(ways)
        self.acknowledged: set[str] = set()  # uids of requests whose approval was answered
        self.improper: list[str] = []  # answers that no fault excuses

    async def run(self, stop: asyncio.Event) -> None:
        asked = base64.b64encode(samples.request()).decode()
        spec = {"request": asked, "signerName": "example.com/faults", "usages": ["client auth"]}
        for number in itertools.count():
            if stop.is_set():
                return
            with contextlib.suppress(Lost):
                await self._decide(f"faults-{number}", spec)
            await asyncio.sleep(PAUSE)

    async def _decide(self, name: str, spec: dict[str, Any]) -> None:
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": spec}
        made = await self._done("POST", REQUESTS, body)
        if made is None:
            return
        decided = {**body, "status": {"conditions": [APPROVED]}}
        if await self._done("PUT", f"{REQUESTS}/{name}/approval", decided) is not None:
            self.acknowledged.add(made["metadata"]["uid"])

    async def _done(self, method: str, target: str, body: Any) -> Any:
        """What was answered if it was done, else None."""
        status, answer = await next(self._ways).send(method, target, body)
        if status in DONE:
            return answer
        if status not in (*REFUSED, *OPEN):
            self.improper.append(f"{method} {target} was answered {status}: {answer}")
        return None


async def ledger_violations(store: Store, data: Path, acknowledged: set[str]) -> list[str]:
    """Everything that is wrong with the ledger in a store, whose key is in a data directory."""
    try:
        told = Counter([object_ async for object_ in _told(store, data)])
    except (LogRefused, NoteRefused) as refusal:
        return [f"the ledger does not hold: {refusal}"]
    approved = {_seal(uid) for uid in await _approved(store)}
    return [
        *(f"{count} entries tell of one approval" for count in told.values() if count > 1),
        *("an approval has no entry" for _ in approved - told.keys()),
        *("an entry tells of an approval that was not" for _ in told.keys() - approved),
        *("an acknowledged approval is lost" for uid in acknowledged if _seal(uid) not in approved),
    ]


async def _told(store: Store, data: Path) -> AsyncIterator[str]:
    """The object of each entry about an approval, in its place or waiting for it."""
    log = StoredLog(store)
    note = await log.checkpoint() or b""
    key = read_private_key((data / "ledger.key").read_bytes())
    public: Any = key.public_key()
    head = await audit(log, NoteVerifier(Checkpoint.claimed(note).origin, public))
    waiting = [record.value for record in (await store.read(places.PENDING)).records]
    for entry in [*waiting, *[each async for each in entries(log, head.size)]]:
        content = json.loads(entry)
        if content["type"] == "request.approved":
            yield content["object"]


async def _approved(store: Store) -> list[str]:
    found = [json.loads(record.value) for record in (await store.read(STORED)).records]
    return [each["metadata"]["uid"] for each in found if each["status"].get("conditions")]


def _seal(uid: str) -> str:
    return seal(uid, "uid", uid)
