"""An author of a TokenExchangePolicy needs the right to the tokens that it grants."""

from typing import Any

import pytest

from orchid.features.exchange.kinds import token_exchange_policy
from orchid.features.exchange.kinds.token_exchange_policy import (
    TokenExchangePolicy,
    TokenExchangePolicySpec,
)
from orchid.features.exchange.policies.exchange_policy_authors import OFF, ExchangePolicyAuthors
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.meta import ManagedFieldsEntry, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import Rights, a_request

KIND: Any = token_exchange_policy.declare(ORCH)
HERE = Target(
    verb="update",
    is_resource=True,
    group=ORCH.identity,
    resource="tokenexchangepolicies",
    namespace="ci",
    name="jobs",
)
ISSUER = "https://idp.example"
ALLOWED = Rights(("create", "serviceaccounts", "deployer"))


def policy(claims: dict[str, str] | None = None, **meta: Any) -> TokenExchangePolicy:
    spec = TokenExchangePolicySpec(
        issuer=ISSUER, claims=claims or {"sub": "a", "id": "7"}, account="deployer"
    )
    return TokenExchangePolicy(metadata=ObjectMeta(name="jobs", namespace="ci", **meta), spec=spec)


def authors(rights: Rights, *, is_on: bool = True, is_strict: bool = False) -> Any:
    return ExchangePolicyAuthors(rights, lambda: [ISSUER], is_on=is_on, is_strict=is_strict)


async def warnings(authors: Any, new: Any, old: Any = None) -> list[str]:
    request = a_request(HERE)
    await authors.review(request, KIND, new, old)
    return request.warnings


@pytest.mark.parametrize("old", [None, policy({"sub": "b", "id": "7"}), policy(labels={"a": "b"})])
async def test_every_change_needs_the_right_to_the_tokens(old: Any) -> None:
    """Also one of metadata alone; asked for that account in that namespace."""
    rights = Rights(("create", "serviceaccounts", "other"))

    with pytest.raises(Forbidden, match='tokens of the account "ci/deployer"'):
        await authors(rights).review(a_request(HERE), KIND, policy(), old)

    asked = rights.asked[0]
    assert (asked.subresource, asked.namespace, asked.name) == ("token", "ci", "deployer")


async def test_a_deletion_a_status_and_upkeep_need_none() -> None:
    """The managed fields are written by the server with every change."""
    rights = Rights()
    status = a_request(replace(HERE, subresource="status"))
    kept = policy(managed_fields=(ManagedFieldsEntry(manager="x"),))

    await authors(rights).review(a_request(HERE), KIND, None, policy())
    await authors(rights).review(status, KIND, policy(), policy({"id": "8"}))
    await authors(rights).review(a_request(HERE), KIND, kept, policy())

    assert rights.asked == []


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"sub": "a", "aud": "b"}, "besides sub and aud"),
        ({"repository": "a/b"}, "repository_id or repository_owner_id"),
    ],
)
async def test_a_subject_of_somebody_else_later_is_refused_or_warned_about(
    claims: dict[str, str], text: str
) -> None:
    """A strict server refuses it, also where an earlier version was stored before."""
    strict, mild = authors(ALLOWED, is_strict=True), authors(ALLOWED)

    for old in (None, policy()):
        with pytest.raises(Invalid, match=text):
            await strict.review(a_request(HERE), KIND, policy(claims), old)
        assert text in (await warnings(mild, policy(claims), old))[0]

    relabeled = policy(claims, labels={"a": "b"})
    assert await warnings(strict, relabeled, policy(claims)) == []
    assert await warnings(mild, relabeled, policy(claims)) == []


async def test_a_policy_without_effect_is_warned_about() -> None:
    """Because exchange is off, or because of its issuer."""
    foreign = replace(policy(), spec=replace(policy().spec, issuer="https://other.example"))

    assert await warnings(authors(ALLOWED), policy()) == []
    assert await warnings(authors(ALLOWED, is_on=False), foreign) == [OFF]
    assert await warnings(authors(ALLOWED), foreign) == [
        "spec.issuer: not an issuer of this server's --token-exchange-config"
    ]


async def test_advice_is_a_warning_on_strict_servers_too() -> None:
    """Everybody who pushes a branch gets a token: that may be intended."""
    strict = authors(ALLOWED, is_strict=True)

    found = await warnings(strict, policy({"project_id": "7"}))
    protected = await warnings(strict, policy({"project_id": "7", "ref_protected": "true"}))

    assert len(found) == 1
    assert "compare ref_protected" in found[0]
    assert protected == []
