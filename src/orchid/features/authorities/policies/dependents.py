"""The dependents of an authority, when it is deleted or changed.

An authority with intermediates below it is not deleted: nothing would certify their next keys. For
all other dependents the response has a warning, also in a dry run. It counts the valid certificates
of the signer, its pending requests and its trust bundles. Dependents are found by a search in the
bytes of all objects, a few at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, TypeVar

from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    parent_problem,
)
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.request_conditions import DENIED, FAILED

AT_ONCE = 1000  # objects per loop turn
MOST_NAMED = 5  # authorities in a message

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
        self._authorities = feed.of(CertificateAuthority)
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
        if new is None:
            await self._refuse_parent(kind, old)
        signer = old.spec.signer_name
        dependents = await self._dependents(signer)
        if any(dependents):
            done = "changed" if new is not None else "deleted"
            request.warn(f"the authority of {signer} is {done}, on which depend {dependents}")

    async def _refuse_parent(self, kind: Kind[Any], old: CertificateAuthority) -> None:
        mark = b'"parent":{"authority":"%s"' % old.name.encode()
        candidates = [authority async for authority in _marked(self._authorities, mark)]
        below = sorted(authority.name for authority in candidates if _is_below(authority, old))
        if below:
            text = f"authorities are below it, delete them first: {_listed(below)}"
            raise Forbidden(kind.about(old.name), text)

    async def _dependents(self, signer: str) -> Dependents:
        mark = b'"signerName":"%s"' % signer.encode()
        waiting = [_waits(one, signer) async for one in _marked(self._requests, mark)]
        owned = [one.spec.signer_name == signer async for one in _marked(self._bundles, mark)]
        return Dependents(self._live(signer), sum(waiting), sum(owned))


async def _marked(cache: KindCache[T], mark: bytes) -> AsyncIterator[T]:
    """Objects whose bytes contain the mark; others are not decoded."""
    entries: list[Entry[T]] = list(cache.scan())
    for index, entry in enumerate(entries):
        if index % AT_ONCE == 0:
            await asyncio.sleep(0)
        if mark in entry.tail:
            yield entry.object


def _is_below(one: CertificateAuthority, other: CertificateAuthority) -> bool:
    parent = one.spec.parent
    return parent is not None and parent.authority == other.name and not parent_problem(one, other)


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _waits(request: CertificateSigningRequest, signer: str) -> bool:
    ended = request.is_issued or request.has(DENIED) or request.has(FAILED)
    return request.spec.signer_name == signer and not ended


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
