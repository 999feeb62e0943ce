"""ExchangePolicyIndex: a lookup finds what a scan of all policies finds."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.features.exchange import policy_index
from orchid.features.exchange.kinds import token_exchange_policy
from orchid.features.exchange.kinds.token_exchange_policy import (
    TokenExchangePolicy,
    TokenExchangePolicySpec,
    claim_text,
)
from orchid.features.exchange.policy_index import ExchangePolicyIndex, TooManyPolicies
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.access.world import World, world_of

FEW = 2  # candidates, so that examples reach the limit
ISSUERS = ("https://one", "https://two")

issuers = st.sampled_from(ISSUERS)
accounts = st.tuples(st.sampled_from(("ns1", "ns2")), st.sampled_from(("a", "b")))
claims = st.dictionaries(
    st.sampled_from(("sub", "repository", "ref")), st.sampled_from(("x", "y", "1", "true"))
)
tokens = st.dictionaries(
    st.sampled_from(("sub", "repository", "ref", "other")),
    st.sampled_from(("x", "y", "1", 1, True, False, None, ["x"], 1.5)),
)
names = st.sampled_from([f"p{number}" for number in range(5)])
writes = st.tuples(st.just("write"), names, issuers, accounts, claims)
steps = st.one_of(
    writes,
    writes,
    st.tuples(st.just("delete"), names, accounts),
    st.tuples(st.just("mark"), names, accounts),
    st.tuples(st.just("find"), issuers, tokens, accounts | st.none()),
)


class Policies:
    """The stored policies by namespace and name, and the index over the same store."""

    def __init__(self, here: World, limit: int) -> None:
        self.here, self.limit = here, limit
        self.stored: dict[tuple[str, str], TokenExchangePolicy] = {}
        self.index = ExchangePolicyIndex(here.feed)

    async def write(
        self, name: str, issuer: str, account: tuple[str, str], wanted: dict[str, str]
    ) -> None:
        namespace, named = account
        meta = ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}")
        spec = TokenExchangePolicySpec(issuer=issuer, claims=wanted, account=named)
        self.stored[namespace, name] = await self.here.put(
            TokenExchangePolicy(metadata=meta, spec=spec)
        )

    async def delete(self, name: str, account: tuple[str, str]) -> None:
        found = self.stored.pop((account[0], name), None)
        if found is not None:
            await self.here.delete(found)

    async def mark(self, name: str, account: tuple[str, str]) -> None:
        """Mark a policy for deletion: it no longer counts."""
        found = self.stored.pop((account[0], name), None)
        if found is not None:
            gone = datetime(2030, 1, 1, tzinfo=UTC)
            await self.here.put(found.with_meta(deletion_timestamp=gone))

    async def find(
        self, issuer: str, token: dict[str, Any], account: tuple[str, str] | None
    ) -> None:
        texts = {(claim, claim_text(value)) for claim, value in token.items()}
        scanned = [
            one
            for one in self.stored.values()
            if one.spec.issuer == issuer
            and (account is None or (one.namespace, one.spec.account) == account)
        ]
        sharing = {str_of(one) for one in scanned if one.spec.claims.items() & texts}
        matching = {
            str_of(one) for one in scanned if one.spec.claims and one.spec.claims.items() <= texts
        }
        await self.index.fresh()
        try:
            found = [str(one) for one in self.index.candidates(issuer, token, account)]
        except TooManyPolicies:
            assert len(sharing) > self.limit
            return
        assert found == sorted(set(found), key=lambda text: text.split("/"))
        assert matching <= set(found) <= sharing
        assert len(found) <= self.limit


def str_of(one: TokenExchangePolicy) -> str:
    return f"{one.namespace}/{one.name}"


async def compared(taken: list[tuple[Any, ...]], limit: int) -> None:
    async with world_of(token_exchange_policy.declare(ORCH)) as here:
        policies = Policies(here, limit)
        for verb, *values in taken:
            await getattr(policies, verb)(*values)
        with_claims = [one for one in policies.stored.values() if one.spec.claims]
        assert len(policies.index) == len(with_claims)
        for namespace, name in list(policies.stored):
            await policies.delete(name, (namespace, ""))
        assert len(policies.index) == 0
        assert policies.index.__dict__["_scopes"] == {}  # nothing is left of removed policies


@pytest.mark.parametrize("limit", [FEW, policy_index.MOST_CANDIDATES])
@settings(max_examples=60)
@given(taken=st.lists(steps, min_size=10, max_size=40))
def test_a_lookup_equals_a_scan(limit: int, taken: list[tuple[Any, ...]]) -> None:
    """Every policy that matches is found, and none that shares no claim with the token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_index, "MOST_CANDIDATES", limit)
        asyncio.run(compared(taken, limit))


async def test_more_policies_than_the_limit_are_too_many() -> None:
    """As many as the limit are found; one more policy for the same claim makes it too many."""
    async with world_of(token_exchange_policy.declare(ORCH)) as here:
        policies = Policies(here, policy_index.MOST_CANDIDATES)
        for number in range(policy_index.MOST_CANDIDATES):
            await policies.write(f"p{number}", ISSUERS[0], ("ns1", "a"), {"sub": "x"})
        found = policies.index.candidates(ISSUERS[0], {"sub": "x"}, None)
        await policies.write("last", ISSUERS[0], ("ns1", "a"), {"sub": "x"})

        assert len(found) == policy_index.MOST_CANDIDATES
        with pytest.raises(TooManyPolicies):
            policies.index.candidates(ISSUERS[0], {"sub": "x"}, None)
