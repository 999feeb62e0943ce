"""ClusterReviews: answers the reviews that the API server of a cluster sends.

Start with `answer`. A review is a SubjectAccessReview (v1 or v1beta1) with user, extra and the
request. A revoked credential is denied, with the name of the revocation as the reason; of every
other request the webhook has no opinion, and the cluster's next authorizer decides. The answer is
as fresh as a read: it includes every revocation that was acknowledged before the review came. The
check of the caller's right has waited for them, so that it rarely waits itself.
"""

from typing import Final

import msgspec

from orchid.features.clusters.calls import ClusterCalls
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.clusters.revoked import ClusterRevocations
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.errors import BadRequest, NotFound
from orchid.kernel.wire.naming import KUBERNETES

LARGEST: Final = 1 << 20  # bytes; a user may be in thousands of groups
MOST_IDS: Final = 16
KIND: Final = "SubjectAccessReview"
VERSIONS: Final = frozenset(
    f"{KUBERNETES.authorization}/{version}" for version in ("v1", "v1beta1")
)
_NO_OPINION: Final = b'"status":{"allowed":false}}'


class _Extra(msgspec.Struct, rename={"ids": KUBERNETES.credential_id}):
    ids: tuple[str, ...] | None = None


class _Spec(msgspec.Struct):
    user: str = ""
    extra: _Extra | None = None


class _Review(msgspec.Struct, rename="camel"):
    """The part of a review that decides; what else it says is skipped."""

    kind: str
    api_version: str
    spec: _Spec


class _Status(msgspec.Struct):
    allowed: bool
    denied: bool
    reason: str


_read: Final = msgspec.json.Decoder(_Review).decode
_heads: Final = {
    version: b'{"kind":"%b","apiVersion":"%b",' % (KIND.encode(), version.encode())
    for version in VERSIONS
}
_no_opinions: Final = {version: head + _NO_OPINION for version, head in _heads.items()}


class ClusterReviews:
    largest = LARGEST

    def __init__(self, feed: Feed, revocations: ClusterRevocations, calls: ClusterCalls) -> None:
        self._feed = feed
        self._clusters = feed.of(Cluster)
        self._prefix = self._clusters.kind.key_prefix
        self._revocations = revocations
        self._calls = calls

    async def answer(self, cluster: str, body: bytes, arrived: float) -> bytes:
        """The review with its status, as JSON; `arrived` when it came, on the monotonic clock.

        Raises BadRequest if the body is no review, NotFound if there is no such cluster, and
        Unavailable if the store cannot say what is revoked: the API server's failurePolicy applies.
        """
        await self._feed.fresh_for_request()
        entry = self._clusters.entries.get(self._prefix + cluster)
        if entry is None:
            self._calls.unknown()
            raise NotFound(self._clusters.kind.about(cluster))
        try:
            review = _read(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise self.malformed(cluster, str(problem)) from None
        ids = (review.spec.extra.ids if review.spec.extra else None) or ()
        if review.kind != KIND or review.api_version not in VERSIONS or len(ids) > MOST_IDS:
            raise self.malformed(cluster, f"not a {KIND} of {' or '.join(sorted(VERSIONS))}")
        revocation = self._revocations.find(entry.meta, review.spec.user, ids)
        self._calls.answered(entry.meta, arrived, denied=revocation is not None)
        if revocation is None:
            return _no_opinions[review.api_version]
        status = _Status(False, True, f"credential revoked by {revocation}")
        return _heads[review.api_version] + b'"status":%b}' % msgspec.json.encode(status)

    def malformed(self, cluster: str, why: str) -> BadRequest:
        """Count a call that is no review, and say so."""
        entry = self._clusters.entries.get(self._prefix + cluster)
        if entry is not None:
            self._calls.malformed(entry.meta)
        return BadRequest(f"the body is no review: {why}")
