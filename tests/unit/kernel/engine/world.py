"""The engine over a store in memory, and short words for its verbs.

`engine()` gives an `Engine`: three kinds, no admission policies, a clock that stands still, uids
and suffixes that count. `ask` makes the request that a verb wants.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from orchid.features.accounts.kinds import service_account
from orchid.features.certificates.kinds import certificate_signing_request
from orchid.features.objects.kinds import config_map
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.admission import Admission
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.engine.request import Options, Request, Target
from orchid.kernel.engine.verbs.all_verbs import Verbs
from orchid.kernel.engine.verbs.delete import Deleted, DeleteOptions
from orchid.kernel.engine.verbs.listing import Listed
from orchid.kernel.engine.verbs.patching import MERGE_PATCH
from orchid.kernel.engine.verbs.request_body import decode_object
from orchid.kernel.engine.verbs.watching import Watch
from orchid.kernel.store.interface import Store
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import FakeClock

ALICE = UserInfo(username="alice")


class Counting:
    """Uids and suffixes that count up, unless a test lays others ready."""

    def __init__(self) -> None:
        self.count = 0
        self.suffixes: list[str] = []

    def uid(self) -> str:
        self.count += 1
        return f"00000000-0000-4000-8000-{self.count:012d}"

    def suffix(self) -> str:
        self.count += 1
        return self.suffixes.pop(0) if self.suffixes else f"{self.count:05d}"


@dataclass
class Engine:
    """Verbs, and what they work on."""

    store: Store
    catalog: Catalog
    feed: Feed
    verbs: Verbs
    clock: FakeClock
    random: Counting

    @property
    def config_maps(self) -> Kind[Any]:
        return self.catalog.of(config_map.ConfigMap)

    @property
    def accounts(self) -> Kind[Any]:
        return self.catalog.of(service_account.ServiceAccount)

    @property
    def requests(self) -> Kind[Any]:
        return self.catalog.of(certificate_signing_request.CertificateSigningRequest)

    def ask(
        self, verb: str, kind: Kind[Any], name: str = "", namespace: str = "ns", **options: Any
    ) -> Request:
        target = Target(
            verb,
            is_resource=True,
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            namespace=namespace if kind.namespaced else "",
            name=name,
        )
        return Request(target, ALICE, self.clock.now(), Options(**options), manager="tests")

    async def create(self, body: dict[str, Any], kind: Any = None, **options: Any) -> Entry[Any]:
        kind = kind or self.config_maps
        request = self.ask("create", kind, **options)
        new = decode_object(self.catalog, kind, json.dumps(body).encode(), request)
        return await self.verbs.creating.create(kind, new, request)

    async def make(self, name: str, **meta: Any) -> Entry[Any]:
        """A config map with this name and metadata."""
        return await self.create({"metadata": {"name": name, **meta}})

    async def put(
        self,
        name: str,
        body: dict[str, Any],
        kind: Any = None,
        endpoint: Endpoint | None = None,
        **options: Any,
    ) -> Entry[Any]:
        kind = kind or self.config_maps
        request = self.ask("update", kind, name, **options)
        new = decode_object(self.catalog, kind, json.dumps(body).encode(), request)
        return await self.verbs.updating.replace(kind, endpoint, new, request)

    async def merge(self, name: str, patch: Any, kind: Any = None, **options: Any) -> Entry[Any]:
        kind = kind or self.config_maps
        request = self.ask("patch", kind, name, **options)
        body = json.dumps(patch).encode()
        return await self.verbs.patching.patch(kind, None, MERGE_PATCH, body, request)

    async def delete(self, name: str, *, dry_run: bool = False, **options: Any) -> Deleted:
        kind = self.config_maps
        request = self.ask("delete", kind, name, dry_run=dry_run)
        return await self.verbs.deleting.delete(kind, name, DeleteOptions(**options), request)

    async def get(self, name: str, **options: Any) -> Entry[Any]:
        request = self.ask("get", self.config_maps, name, **options)
        return await self.verbs.reading.get(self.config_maps, request)

    async def list(self, namespace: str = "ns", **options: Any) -> Listed[Any]:
        request = self.ask("list", self.config_maps, namespace=namespace, **options)
        return await self.verbs.listing.page(self.config_maps, request)

    async def watch(self, namespace: str = "ns", **options: Any) -> Watch[Any]:
        options = {"watch": True, **options}
        request = self.ask("watch", self.config_maps, namespace=namespace, **options)
        return await self.verbs.watching.open(self.config_maps, request)


def names(listed: Listed[Any]) -> list[str]:
    return [entry.meta.name for entry in listed.entries]


def seen(watch: Watch[Any]) -> list[tuple[str, str, int]]:
    """Type, name and revision of everything a watcher would get by now, after what it got first."""
    events = (watch.event(turn) for turn in watch.cache.since(watch.after))
    return [
        (type_, entry.meta.name, int(entry.object.metadata.resource_version))
        for type_, entry in filter(None, events)
    ]


@asynccontextmanager
async def engine(store: Store | None = None) -> AsyncIterator[Engine]:
    catalog = Catalog(
        [
            service_account.declare(ORCH),
            config_map.declare(ORCH),
            certificate_signing_request.declare(ORCH),
        ]
    )
    store = store or MemoryStore()
    feed, random = Feed(store, catalog), Counting()
    verbs = Verbs.over(store, feed, Admission([]), ORCH, random, offload=(offload := Offload()))
    async with following(feed):
        await feed.wait_loaded()
        yield Engine(store, catalog, feed, verbs, FakeClock(), random)
    offload.close()
    await store.close()


@asynccontextmanager
async def following(feed: Feed) -> AsyncIterator[None]:
    task = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
