"""Warning about the dependents of an authority, when it is deleted or changed.

Nothing is refused: the response has a warning, also in a dry run. It counts the valid certificates
of the signer, its pending requests and its trust bundles. Requests and bundles are counted by a
search in the bytes of all of them, a few at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, TypeVar

from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.engine.cache.kind_cache import KindCache
from orchid.engine.interfaces import AdmissionPolicy
from orchid.engine.kind import Kind
from orchid.engine.request import Request
from orchid.kinds.certificate_authority import CertificateAuthority
from orchid.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.wire.meta import Object
from orchid.wire.request_conditions import DENIED, FAILED

AT_ONCE = 1000  # objects per loop turn

T = TypeVar("T", bound=Object)


class Dependents(NamedTuple):
    """Numbers of dependents."""

    certificates: int
    requests: int
    bundles: int

    def __str__(self) -> str:
        counted = (
            _counted(self.certificates, "live certificate"),
            _counted(self.requests, "open request"),
            _counted(self.bundles, "trust bundle"),
        )
        return f"{counted[0]}, {counted[1]} and {counted[2]}"


class AuthorityDependents(AdmissionPolicy):
    reviews = (CertificateAuthority,)

    def __init__(self, feed: Feed, live: Callable[[str], int]) -> None:
        """`live`: the number of valid certificates of a signer."""
        self._live = live
        self._requests = feed.of(CertificateSigningRequest)
        self._bundles = feed.of(ClusterTrustBundle)

    async def review(
        self,
        request: Request,
        kind: Kind[Any],
        new: CertificateAuthority | None,
        old: CertificateAuthority | None,
    ) -> None:
        if old is None or old.is_platform or (new is not None and new.spec == old.spec):
            return
        signer = old.spec.signer_name
        found = await self._dependents(signer)
        if any(found):
            done = "changed" if new is not None else "deleted"
            request.warn(f"the authority of {signer} is {done}, on which depend {found}")

    async def _dependents(self, signer: str) -> Dependents:
        waiting = [_waits(one, signer) async for one in _naming(self._requests, signer)]
        owned = [one.spec.signer_name == signer async for one in _naming(self._bundles, signer)]
        return Dependents(self._live(signer), sum(waiting), sum(owned))


async def _naming(cache: KindCache[T], signer: str) -> AsyncIterator[T]:
    """Objects whose bytes contain the signer name; others are not decoded."""
    mark = b'"signerName":"%s"' % signer.encode()
    entries: list[Entry[T]] = list(cache.scan())
    for index, entry in enumerate(entries):
        if index % AT_ONCE == 0:
            await asyncio.sleep(0)
        if mark in entry.tail:
            yield entry.object


def _waits(request: CertificateSigningRequest, signer: str) -> bool:
    ended = request.is_issued or request.has(DENIED) or request.has(FAILED)
    return request.spec.signer_name == signer and not ended


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
