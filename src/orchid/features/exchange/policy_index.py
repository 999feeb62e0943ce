"""Index of TokenExchangePolicies by the claims that they compare.

Each policy is indexed under one of its claims: the one under which the fewest others are. A lookup
takes no more steps than the token has claims, whatever the number of policies. With an account,
only the policies of that account are found: policies of other namespaces cannot disturb it.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

import msgspec

from orchid.features.exchange.kinds.token_exchange_policy import (
    TokenExchangePolicy,
    TokenExchangePolicySpec,
    claim_text,
    lifetime,
)
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed

MOST_CANDIDATES: Final = 64

Claim = tuple[str, str]  # name and text
Scope = tuple[str, ...]  # the issuer; or the issuer, and namespace and name of the account
Buckets = dict[str, dict[str, dict[str, "IndexedPolicy"]]]  # by name, text, and key of the policy


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
    lifetime: int  # seconds, of its tokens
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
        self, issuer: str, claims: Mapping[str, Any], account: tuple[str, str] | None
    ) -> list[IndexedPolicy]:
        """Policies that may match, by name. Raises TooManyPolicies."""
        self._index.catch_up()
        scope: Scope = (issuer,) if account is None else (issuer, *account)
        buckets = self._scopes.get(scope)
        if buckets is None:
            return []
        matches: list[IndexedPolicy] = []
        # Iterate over the smaller set: indexed claim names, or claims of the token.
        for name in buckets if len(buckets) <= len(claims) else claims:
            bucket = buckets.get(name)
            value = claims.get(name)
            if bucket is None or value is None:
                continue
            text = value if isinstance(value, str) else claim_text(value)
            policies = bucket.get(text) if text is not None else None
            if policies is not None:
                if len(matches) + len(policies) > MOST_CANDIDATES:
                    raise TooManyPolicies
                matches += policies.values()
        if len(matches) > 1:
            matches.sort(key=lambda policy: (policy.namespace, policy.name))
        return matches

    def some_of_account(
        self, issuer: str, account: tuple[str, str], most: int
    ) -> list[IndexedPolicy]:
        """A few policies of an account for an issuer, whatever they compare; for audit records."""
        self._index.catch_up()
        texts = chain.from_iterable(
            bucket.values() for bucket in self._scopes.get((issuer, *account), {}).values()
        )
        return list(islice((policy for policies in texts for policy in policies.values()), most))

    def of_namespace(self, namespace: str) -> Iterator[IndexedPolicy]:
        """Every policy of a namespace, by name; for explanations."""
        for entry in self._cache.scan(namespace):
            yield _indexed(self._decode(entry.data))

    # -- following the cache -----------------------------------------------------------------

    def _cleared(self) -> None:
        self._scopes: dict[Scope, Buckets] = {}
        self._indexed: dict[str, list[tuple[Scope, Claim]]] = {}

    def _changed(self, key: str, entry: Entry[TokenExchangePolicy] | None) -> None:
        for scope, (name, text) in self._indexed.pop(key, ()):
            buckets = self._scopes[scope]
            del buckets[name][text][key]
            if not buckets[name][text]:
                del buckets[name][text]
            if not buckets[name]:
                del buckets[name]
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

        def others(claim: Claim) -> tuple[int, Claim]:
            return len(buckets.get(claim[0], {}).get(claim[1], ())), claim

        name, text = min(policy.spec.claims.items(), key=others)
        buckets.setdefault(name, {}).setdefault(text, {})[key] = policy
        return scope, (name, text)


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
        lifetime=lifetime(stored.spec),
        last_used=used.timestamp() if used else 0.0,
    )
