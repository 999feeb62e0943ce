"""A small world for these tests: objects in a memory store, and the feed that shows them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, TypeVar

from orchid.features.accounts.kinds import service_account
from orchid.features.authorities.kinds import certificate_authority
from orchid.features.certificates.kinds import (
    certificate_signing_request,
    issued_certificate,
    pod_certificate_request,
)
from orchid.features.exchange.kinds import token_exchange_policy
from orchid.features.objects.kinds import node, secret
from orchid.features.objects.kinds.pod import pod
from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.kinds import signing_key
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Kind
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedCertificate, RevokedToken, RevokedUser
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.access.presenting import FakeClock

T = TypeVar("T", bound=Object)


@dataclass
class World:
    """Put, delete and look; what is put is in the feed when `put` returns."""

    store: MemoryStore
    catalog: Catalog
    feed: Feed
    clock: FakeClock
    offload: Offload

    async def put(self, new: T) -> T:
        """Store an object, in place of an older one of its name if there is one."""
        kind = self.catalog.of(type(new))
        new = replace(new, kind=kind.name, api_version=kind.api_version)
        await self._commit(kind, new, encode(new))
        return new

    async def delete(self, gone: Object) -> None:
        kind = self.catalog.of(type(gone))
        await self._commit(kind, gone, None)

    async def _commit(self, kind: Kind[Any], one: Object, value: bytes | None) -> None:
        key = kind.key(one.namespace, one.name)
        there = self.feed.cache(kind).entries.get(key)
        await self.store.commit([Change(key, value, there.revision if there else ABSENT)])
        await self.feed.fresh()


def world() -> AbstractAsyncContextManager[World]:
    """An empty world whose kinds are those that credentials are about."""
    return world_of(
        pod.declare(ORCH),
        secret.declare(ORCH),
        node.declare(ORCH),
        service_account.declare(ORCH),
        certificate_signing_request.declare(ORCH),
        pod_certificate_request.declare(ORCH),
        certificate_authority.declare(ORCH),
        signing_key.declare(ORCH),
        token_exchange_policy.declare(ORCH),
    )


@asynccontextmanager
async def world_of(*kinds: Kind[Any]) -> AsyncIterator[World]:
    catalog = Catalog(kinds)
    store = MemoryStore()
    feed = Feed(store, catalog)
    following = asyncio.create_task(feed.run())
    await feed.wait_loaded()
    try:
        with closing(Offload()) as offload:
            yield World(store, catalog, feed, FakeClock(), offload)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await store.close()


REVOCABLE = credential_revocation.declare(ORCH), issued_certificate.declare(ORCH)


def revocation(
    name: str, target: RevokedToken | RevokedCertificate | RevokedUser
) -> CredentialRevocation:
    """The revocation of a token, a certificate or a user, for a world of REVOCABLE."""
    by = type(target).__name__.removeprefix("Revoked").lower()
    meta = ObjectMeta(name=name, uid=f"uid-{name}")
    return CredentialRevocation(metadata=meta, spec=CredentialRevocationSpec(**{by: target}))
