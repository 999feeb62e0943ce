"""The ledger: its head, the last entries, a verification on this machine, and proofs.

A server that vouches for itself proves nothing, so the verification is computed by the console on
the user's machine, as by `orchid ledger verify`.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from orchid.features.console import text
from orchid.features.console.api import NOT_FOUND, Api, Json, Refused
from orchid.features.console.page import ConsolePage, Retry, Shown, Visit
from orchid.features.console.pages import shared
from orchid.kernel.outbound.api_connection import SUCCESS
from orchid.kernel.tlog import audit
from orchid.kernel.tlog.audit import LogAtOneMoment, LogRefused
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteRefused, NoteVerifier
from orchid.kernel.tlog.proof_file import ProofFile
from orchid.kernel.tlog.proofs import ProofRefused
from orchid.kernel.tlog.tiles import FULL, Tile

SHOWN: Final = 50
MOST_VERIFIED: Final = 100_000  # entries; larger ones with the command
MOST_BUNDLES: Final = 78  # about 20,000 entries
LONGEST_VALUE: Final = 40  # characters; digests are abbreviated
ISSUED: Final = "certificate.issued"


class ServerLedger:
    """The ledger of the server, as a source of a log."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def verifier(self) -> NoteVerifier:
        line = await self._fetch("key")
        if line is None:
            raise LogRefused("the server names no key of a ledger")
        return NoteVerifier.parse(line.decode(errors="replace"))

    async def checkpoint(self) -> bytes | None:
        return await self._fetch("checkpoint")

    async def tile(self, tile: Tile) -> bytes | None:
        return await self._fetch(tile.path)

    async def _fetch(self, name: str) -> bytes | None:
        await asyncio.sleep(
            0
        )  # in the process of the server, no call waits: others have their turn
        status, body = await self._api.raw(f"/ledger/{name}")
        if status == NOT_FOUND:
            return None
        if status not in SUCCESS:
            raise Refused(status, f"the ledger cannot be read: status {status}", {"kind": "ledger"})
        return body


async def read(visit: Visit) -> Mapping[str, Any]:
    return {**await shared.gather(visit, ledger=_head(visit.api)), "verified": None}


async def _head(api: Api) -> Json:
    source = LogAtOneMoment(ServerLedger(api))
    try:
        verifier = await ServerLedger(api).verifier()
        head = await audit.opened(source, verifier)
        entries = await _last(source, head.size)
    except (LogRefused, NoteRefused) as refusal:
        return {"problem": str(refusal)}
    return {
        "origin": head.origin,
        "size": head.size,
        "root": head.root.hex(),
        "key": verifier.vkey,
        "entries": entries,
    }


async def _last(source: LogAtOneMoment, size: int) -> list[Json]:
    """The last entries, the newest first."""
    rows: list[Json] = []
    for tile in reversed(audit.bundles_of(size)):
        entries = await audit.bundle_entries(source, tile)
        for place in reversed(range(len(entries))):
            if len(rows) == SHOWN:
                return rows
            rows.append({"index": tile.index * FULL + place, **_row(entries[place])})
    return rows


def _row(entry: bytes) -> Json:
    content = content_of(entry)
    rest = {
        key: value
        for key, value in content.items()
        if key not in ("type", "time", "sealed", "object", "tokens", "exchanges")
    }
    shown = ", ".join(f"{key} {_value(value)}" for key, value in sorted(rest.items()))
    if "tokens" in content:
        shown = f"{sum(int(row[2]) for row in content['tokens'])} tokens, {shown}"
    serial = content.get("serial") if content.get("type") == ISSUED else ""
    return {
        "serial": serial or "",
        "type": content.get("type", ""),
        "time": content.get("time"),
        "about": shown,
    }


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    # An ellipsis of ours is not to be spelled out like a character of the value.
    return text.short(value).replace("…", "...") if len(str(value)) > LONGEST_VALUE else str(value)


async def verify(visit: Visit) -> Shown | Retry:
    """Read everything and compute all hashes again, on the machine of the user."""
    if not visit.viewer.is_local:
        return Retry("A server that verifies its own ledger proves nothing.", 400)
    source = LogAtOneMoment(ServerLedger(visit.api))
    try:
        verifier = await ServerLedger(visit.api).verifier()
        head = await audit.opened(source, verifier)
        if head.size > MOST_VERIFIED:
            return Retry(f"{head.size} entries are too many here. Use: orchid ledger verify", 400)
        head = await audit.audit(source, verifier)
    except (LogRefused, NoteRefused) as refusal:
        return Retry(f"The ledger does not match its signed head: {refusal}")
    return Shown({"verified": {"size": head.size, "root": head.root.hex()}})


async def proof_of(api: Api, serial: str) -> bytes:
    """A proof that a certificate is in the ledger; an invalid one is refused."""
    source = LogAtOneMoment(ServerLedger(api))
    try:
        verifier = await ServerLedger(api).verifier()
        note = await source.checkpoint() or b""
        head = Checkpoint.opened(note, verifier)
        index = await _index_of(source, head.size, serial)
        entry = await audit.entry_at(source, index, head.size)
        steps = await audit.inclusion_proof(source, index, head.size)
        proof = ProofFile(entry, index, steps, note)
        proof.opened(verifier)
    except (LogRefused, NoteRefused, ProofRefused) as refusal:
        raise Refused(409, f"The ledger gives no valid proof: {refusal}") from None
    return proof.encode()


async def _index_of(source: LogAtOneMoment, size: int, serial: str) -> int:
    for tile in list(reversed(audit.bundles_of(size)))[:MOST_BUNDLES]:
        entries = await audit.bundle_entries(source, tile)
        for place in reversed(range(len(entries))):
            content = content_of(entries[place])
            entry_serial = str(content.get("serial", "")).lstrip("0")
            if content.get("type") == ISSUED and entry_serial == serial.lstrip("0"):
                return tile.index * FULL + place
    text_ = "The last 20,000 entries do not have it. Use: orchid ledger prove"
    raise Refused(NOT_FOUND, text_)


async def tokens_of(api: Api, uid: str) -> Json:
    """Live tokens of an account by hour of expiry, counted backwards from the head."""
    source = LogAtOneMoment(ServerLedger(api))
    try:
        head = await audit.opened(source, await ServerLedger(api).verifier())
        counts, since = await _counted(source, head.size, uid)
    except (LogRefused, NoteRefused) as refusal:
        return {"problem": str(refusal), "total": 0, "rows": [], "since": ""}
    rows = [{"end": end, "count": count} for end, count in sorted(counts.items())]
    return {"rows": rows, "total": sum(counts.values()), "since": since, "problem": ""}


async def _counted(source: LogAtOneMoment, size: int, uid: str) -> tuple[Counter[str], str]:
    now = text.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    counts: Counter[str] = Counter()
    since = ""
    for tile in list(reversed(audit.bundles_of(size)))[:MOST_BUNDLES]:
        for entry in await audit.bundle_entries(source, tile):
            content = content_of(entry)
            since = min(filter(None, (since, str(content.get("time") or ""))), default="")
            for account, end, count in content.get("tokens") or ():
                if account == uid and end > now:
                    counts[end] += count
    return counts, since


def content_of(entry: bytes) -> Json:
    try:
        content = json.loads(entry)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


PAGES = (ConsolePage("/ledger", "ledger.html", read, section="ledger", act=verify, every=10),)
