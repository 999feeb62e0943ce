"""The current edition of every published bundle, in memory; runs in every serving process.

Reads   publishedbundles; the ConfigMap of the current edition, when it changes
Never   serves bytes whose SHA-256 differs from the status

`wait_for_change` holds requests until a bundle changes. A waiting request takes no seat of the
request limits (kernel/base/scheduling/seat.py); their number has its own limit.
"""

import asyncio
import hashlib
from typing import Final

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles import forms, stored_edition
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.base.scheduling.seat import SEAT
from orchid.kernel.client.client import Client, ListSelection, WatchedChange
from orchid.kernel.runtime.loop import Controller, TryAgain
from orchid.kernel.wire.naming import Naming

MOST_WAITING: Final = 1000  # requests of one process
# Requests that are answered in one turn of the event loop when a bundle changes, and bytes that are
# encrypted for them.
MOST_PER_TURN, BYTES_PER_TURN = 50, 1 << 20
PEM, PKCS12, OPEN_PKCS12, SPIFFE = "pem", "p12", "nopassword.p12", "json"


class ServedEdition:
    """An edition, and its formats, each created on first use."""

    def __init__(self, bundle: PublishedBundle, text: bytes) -> None:
        self.bundle_uid, self.sequence = bundle.metadata.uid, bundle.status.sequence
        self.sha256 = bundle.status.sha256
        self.text = text
        self._forms: dict[tuple[str, int], asyncio.Future[bytes]] = {}

    async def form(self, name: str, refresh_seconds: int) -> bytes:
        """The edition in one of its formats."""
        if name == PEM:
            return self.text
        key = (name, refresh_seconds if name == SPIFFE else 0)
        future = self._forms.get(key)
        if future is None:
            if name == SPIFFE:  # of an earlier hint
                self._forms = {
                    old: stored_form for old, stored_form in self._forms.items() if old[0] != name
                }
            making = asyncio.to_thread(self._make, name, refresh_seconds)
            future = self._forms[key] = asyncio.ensure_future(making)
        try:
            return await asyncio.shield(future)  # the first client may disconnect, the others wait
        except Exception:
            self._forms.pop(key, None)
            raise

    def _make(self, name: str, refresh_seconds: int) -> bytes:
        if name == SPIFFE:
            return forms.spiffe_bundle(
                self.text, sequence=self.sequence, refresh_seconds=refresh_seconds
            )
        return forms.java_trust_store(self.text, password=name == PKCS12)


class PublishedEditions(Controller[PublishedBundle]):
    name = "trust-editions"
    minds_deletions = True

    def __init__(self, client: Client, naming: Naming) -> None:
        super().__init__(client, ListSelection(PublishedBundle))
        self._home = naming.system_namespace
        self.bundles: dict[str, PublishedBundle] = {}
        self._editions: dict[str, ServedEdition] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.waiting = 0
        self.is_loaded = False
        self._listed: set[str] | None = None  # names in the list that is being read
        self._is_closed = False

    # -- watch -------------------------------------------------------------------------------

    def starting(self) -> None:
        self._listed = set()

    def take(self, event: WatchedChange[PublishedBundle]) -> None:
        if self._listed is not None:
            self._listed.add(event.object.name)
        super().take(event)

    async def all_listed(self) -> None:
        if self._listed is not None:
            for name in self.bundles.keys() - self._listed:
                self._drop(name)  # deleted while the watch was down
        self._listed = None
        self.is_loaded = True

    async def reconcile(self, bundle: PublishedBundle) -> None:
        self.bundles[bundle.name] = bundle
        status, served = bundle.status, self._editions.get(bundle.name)
        if served is not None and served.bundle_uid != bundle.metadata.uid:
            self._editions.pop(bundle.name)  # of an earlier bundle of this name
            served = None
        if not status.sequence:
            self._editions.pop(bundle.name, None)
            return
        if served is not None and (served.sequence, served.sha256) == (
            status.sequence,
            status.sha256,
        ):
            return
        text = await self.stored(bundle.name, status.sequence, status.sha256)
        if text is None:
            raise TryAgain(f"edition {status.sequence} is not stored")
        self._editions[bundle.name] = ServedEdition(bundle, text)
        self._wake(bundle.name)

    async def gone(self, last: PublishedBundle) -> None:
        self._drop(last.name)

    def _drop(self, name: str) -> None:
        self.bundles.pop(name, None)
        self._editions.pop(name, None)
        self._wake(name)

    async def stored(self, name: str, sequence: int, sha256: str) -> bytes | None:
        """The PEM text of an edition; None if it is missing or has another digest."""
        stored_name = stored_edition.edition_name(name, sequence)
        config_map = await self._client.find(ConfigMap, stored_name, self._home)
        text = (
            config_map.data.get(stored_edition.PEM, "").encode() if config_map is not None else b""
        )
        return text if text and hashlib.sha256(text).hexdigest() == sha256 else None

    # -- serving -----------------------------------------------------------------------------

    def current(self, name: str) -> ServedEdition | None:
        return self._editions.get(name)

    @property
    def is_full(self) -> bool:
        """Whether no further request may wait."""
        return self._is_closed or self.waiting >= MOST_WAITING

    async def wait_for_change(self, name: str, seconds: float) -> None:
        """Wait until a bundle has another edition, or is deleted, at most so many seconds."""
        loop, seat = asyncio.get_running_loop(), SEAT.get()
        changed: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.setdefault(name, set())
        waiting.add(changed)
        timer = loop.call_later(seconds, _finish, changed)
        self.waiting += 1
        if seat is not None:
            seat.park()
        try:
            await changed
        finally:
            if seat is not None:
                seat.unpark()
            self.waiting -= 1
            timer.cancel()
            waiting.discard(changed)
            if not waiting and self._waiting.get(name) is waiting:
                del self._waiting[name]

    def stop_waiting(self) -> None:
        """Respond to all waiting requests: the server stops."""
        self._is_closed = True
        for name in tuple(self._waiting):
            self._wake(name)

    def _wake(self, name: str) -> None:
        """Answer the requests that wait for a bundle, a few in each turn of the event loop."""
        edition = self._editions.get(name)
        size = len(edition.text) if edition is not None else 0
        at_once = max(1, min(BYTES_PER_TURN // max(size, 1), MOST_PER_TURN))
        _finish_some(list(self._waiting.pop(name, ())), at_once)


def _finish_some(waiting: "list[asyncio.Future[None]]", at_once: int) -> None:
    for one in waiting[:at_once]:
        _finish(one)
    if len(waiting) > at_once:
        asyncio.get_running_loop().call_soon(_finish_some, waiting[at_once:], at_once)


def _finish(one: "asyncio.Future[None]") -> None:
    if not one.done():
        one.set_result(None)
