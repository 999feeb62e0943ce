"""Decisions during faults, and whether the ledger records each of them exactly once.

`Decisions.run` creates certificate requests and approves them, on any available server, so that the
signing controller always has work. Then `ledger_violations` reads the store: the signed log must
verify, and have one entry for every approval, certificate and revocation and no other entries;
pending entries count too.
"""

import asyncio
import base64
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orchid.features.ledger.reading import StoredLog
from orchid.kernel.credentials.keys import read_private_key
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import object_seal
from orchid.kernel.store.interface import Span, Store
from orchid.kernel.tlog.audit import LogRefused, audit, entries
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteRefused, NoteVerifier
from tests.faults.workload import DONE, OPEN, REFUSED, Lost, Way
from tests.unit.kernel.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
SIGNER = "orch.io/orch-apiserver-client"
STORED_REQUESTS = Span.prefix("certificates/certificatesigningrequests/")
PAUSE = 0.05
APPROVED = {"type": "Approved", "status": "True", "reason": "Faults"}


REVOKED = ("certificate", "token", "account", "authority")


class Recorded(NamedTuple):
    """A kind of object in the ledger: where it is stored, and the types of its entries."""

    what: str
    stored: Span
    types: frozenset[str]
    ended: frozenset[str] = frozenset()  # types of entries about its removal


RECORDED = (
    Recorded("approval", STORED_REQUESTS, frozenset({"request.approved"})),
    Recorded(
        "certificate",
        Span.prefix("identity/issuedcertificates/"),
        frozenset({"certificate.issued"}),
    ),
    Recorded(
        "revocation",
        Span.prefix("identity/credentialrevocations/"),
        frozenset(f"{what}.revoked" for what in REVOKED),
        frozenset(f"{what}.released" for what in REVOKED),
    ),
)


class Decisions:
    """A client that approves one request after the other."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = itertools.cycle(ways)
        self._numbers = itertools.count()
        self.acknowledged: set[str] = set()  # uids of requests whose approval was answered
        self.improper: list[str] = []  # answers that no fault excuses

    async def run(self, stop: asyncio.Event) -> None:
        asked = base64.b64encode(samples.request()).decode()
        spec = {"request": asked, "signerName": SIGNER, "usages": ["client auth"]}
        while not stop.is_set():
            with contextlib.suppress(Lost):
                await self._decide(f"faults-{next(self._numbers)}", spec)
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
        """The answer, if the operation succeeded; else None."""
        status, answer = await next(self._ways).send(method, target, body)
        if status in DONE:
            return answer
        if status not in (*REFUSED, *OPEN):
            self.improper.append(f"{method} {target} was answered {status}: {answer}")
        return None


async def ledger_violations(
    store: Store, data: Path, acknowledged: Mapping[str, set[str]]
) -> list[str]:
    """Everything that is wrong with the ledger in a store, whose key is in a data directory.

    `acknowledged`: uids of what was answered, by what it is.
    """
    try:
        entries_there = [content async for content in _logged(store, data)]
    except (LogRefused, NoteRefused) as refusal:
        return [f"the ledger does not hold: {refusal}"]
    return [
        text
        for each in RECORDED
        for text in _wrong(
            each.what,
            Counter(one["object"] for one in entries_there if one["type"] in each.types),
            {object_seal(uid) for uid in await _there(store, each)},
            {object_seal(uid) for uid in acknowledged.get(each.what, ())},
            {one["object"] for one in entries_there if one["type"] in each.ended},
        )
    ]


def _wrong(
    what: str, logged: Counter[str], there: set[str], acknowledged: set[str], ended: set[str]
) -> Iterator[str]:
    """Differences between entries and stored objects, both by the hash of their uid."""
    yield from (f"{count} entries for one {what}" for count in logged.values() if count > 1)
    yield from (f"a stored {what} has no entry" for _ in there - logged.keys())
    yield from (f"an entry for an unknown {what}" for _ in logged.keys() - there - ended)
    yield from (f"an acknowledged {what} is lost" for _ in acknowledged - there - ended)
    yield from (f"an entry says that a stored {what} was removed" for _ in ended & there)


async def _logged(store: Store, data: Path) -> AsyncIterator[Any]:
    """Every entry, in its place or waiting for it."""
    log = StoredLog(store)
    note = await log.checkpoint() or b""
    key = read_private_key((data / "ledger.key").read_bytes())
    public: Any = key.public_key()
    head = await audit(log, NoteVerifier(Checkpoint.claimed(note).origin, public))
    waiting = [record.value for record in (await store.read(store_keys.PENDING)).records]
    for entry in [*waiting, *[each async for each in entries(log, head.size)]]:
        yield json.loads(entry)


async def _there(store: Store, each: Recorded) -> list[str]:
    """The uids of what is stored; a request counts once it is decided."""
    found = [json.loads(record.value) for record in (await store.read(each.stored)).records]
    is_request = each.stored == STORED_REQUESTS
    decided = (one for one in found if not is_request or one["status"].get("conditions"))
    return [one["metadata"]["uid"] for one in decided]
