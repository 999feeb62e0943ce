"""Index of TokenExchangePolicies by the claims that they compare.

Each policy is indexed under one of its claims: the one under which the fewest others are. A lookup
takes as many steps as the token has claims, whatever the number of policies. With an account, only
the policies of that account are found: policies of other namespaces cannot disturb its exchanges.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from orchid.access.cache_index import CacheIndex
from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.kinds.token_exchange_policy import (
    TokenExchangePolicy,
    TokenExchangePolicySpec,
    claim_text,
)

MOST_CANDIDATES: Final = 64

Claim = tuple[str, str]  # name and text
Scope = tuple[str, ...]  # the issuer; or the issuer, and namespace and name of the account
Buckets = dict[Claim, dict[str, "IndexedPolicy"]]


class TooManyPolicies(Exception):
    """More policies compare the claims of a token than are evaluated for one exchange."""


class IndexedPolicy(msgspec.Struct, frozen=True, eq=False):
    """A policy as it is stored now."""

    namespace: str
    name: str
    uid: str
    revision: str
    generation: int
    spec: TokenExchangePolicySpec
    is_ready: bool
    last_used: float  # seconds; 0: never

    @property
    def account(self) -> tuple[str, str]:
        return self.namespace, self.spec.account

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ExchangePolicyIndex:
    """All policies, as new as the feed."""

    def __init__(self, feed: Feed) -> None:
        self.fresh = feed.fresh  # wait until every committed change is in the index
        self._cache = feed.of(TokenExchangePolicy)
        self._decode = self._cache.kind.decoder.stored
        self._cleared()
        self._index = CacheIndex(self._cache, self._changed, self._cleared)

    def __len__(self) -> int:
        self._index.catch_up()
        return len(self._indexed)

    def candidates(
        self, issuer: str, claims: Iterable[Claim], account: tuple[str, str] | None
    ) -> list[IndexedPolicy]:
        """Policies that may match, by name. Raises TooManyPolicies."""
        self._index.catch_up()
        scope: Scope = (issuer,) if account is None else (issuer, *account)
        buckets = self._scopes.get(scope)
        if buckets is None:
            return []
        found: list[IndexedPolicy] = []
        for claim in claims:
            bucket = buckets.get(claim)
            if bucket is not None:
                if len(found) + len(bucket) > MOST_CANDIDATES:
                    raise TooManyPolicies
                found += bucket.values()
        return sorted(found, key=lambda policy: (policy.namespace, policy.name))

    def of_namespace(self, namespace: str) -> Iterator[IndexedPolicy]:
        """Every policy of a namespace, by name; for explanations."""
        for entry in self._cache.scan(namespace):
            yield _indexed(self._decode(entry.data))

    # -- following the cache -----------------------------------------------------------------

    def _cleared(self) -> None:
        self._scopes: dict[Scope, Buckets] = {}
        self._indexed: dict[str, list[tuple[Scope, Claim]]] = {}

    def _changed(self, key: str, entry: Entry[TokenExchangePolicy] | None) -> None:
        for scope, claim in self._indexed.pop(key, ()):
            buckets = self._scopes[scope]
            del buckets[claim][key]
            if not buckets[claim]:
                del buckets[claim]
            if not buckets:
                del self._scopes[scope]
        if entry is None or entry.identity.deletion_timestamp is not None:
            return
        policy = _indexed(self._decode(entry.data))
        if policy.spec.claims:
            issuer = policy.spec.issuer
            indexed = [
                self._put(key, policy, scope) for scope in ((issuer,), (issuer, *policy.account))
            ]
            self._indexed[key] = indexed

    def _put(self, key: str, policy: IndexedPolicy, scope: Scope) -> tuple[Scope, Claim]:
        buckets = self._scopes.setdefault(scope, {})
        claim = min(policy.spec.claims.items(), key=lambda one: (len(buckets.get(one, ())), one))
        buckets.setdefault(claim, {})[key] = policy
        return scope, claim


def claims_as_text(claims: Iterable[tuple[str, object]]) -> list[Claim]:
    """The claims of a token that can equal a text, as text."""
    texts = ((name, claim_text(value)) for name, value in claims)
    return [(name, text) for name, text in texts if text is not None]


def _indexed(stored: TokenExchangePolicy) -> IndexedPolicy:
    meta, used = stored.metadata, stored.status.last_used
    return IndexedPolicy(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        revision=meta.resource_version,
        generation=meta.generation,
        spec=stored.spec,
        is_ready=stored.is_ready,
        last_used=used.timestamp() if used else 0.0,
    )
