"""The attack: learn the terms of policies, or revoke tokens of others."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from orchid.features.exchange.judging import PolicyJudge
from orchid.features.exchange.policy_index import IndexedPolicy
from orchid.kernel.expressions.cel import ExpressionInput
from tests.api.world import ADMIN, ALICE, BOB, Answer, Api, api
from tests.e2e.outside_issuer import OutsideIssuer
from tests.security.exchanging import (
    FORM,
    GITHUB_CLAIMS,
    VAULT,
    exchange,
    exchanging,
    make_policy,
    review,
)
from tests.security.test_introspection import basic
from tests.security.test_revocations import REVOCATIONS, jti_of, revoked
from tests.security.test_revoked_users import allowed, grant

REVIEWS = "/apis/identity.orch.io/v1alpha1/namespaces/ci/tokenexchangereviews"
REVOKE = "/oauth2/revoke"
DEPLOYER = "system:serviceaccount:ci:deployer"


@pytest.fixture(scope="module")
def issuer() -> Iterator[OutsideIssuer]:
    with OutsideIssuer() as made:
        yield made


@pytest.fixture
async def server(server_files: Path, issuer: OutsideIssuer, tmp_path: Path) -> AsyncIterator[Api]:
    async with exchanging(server_files, issuer, tmp_path) as made:
        yield made


async def explained(server: Api, caller: str = ADMIN, **spec: Any) -> Answer:
    return await server.call("POST", REVIEWS, {"spec": spec}, token=caller)


def failed(answer: Answer) -> dict[str, tuple[str, str]]:
    """The failed checks of the best policy: wanted and seen values by field."""
    checks = answer.json["status"]["policies"][0]["checks"]
    return {
        one["field"]: (one.get("wanted", ""), one.get("seen", ""))
        for one in checks
        if not one["allowed"]
    }


# -- explanations ----------------------------------------------------------------------------------


async def test_a_review_explains_every_check(server: Api, issuer: OutsideIssuer) -> None:
    """By policy and claim, with the wanted and the seen value, for a token or for claims."""
    rule = {"expression": "claims.event_name == 'push'", "message": "only pushes"}
    await make_policy(server, issuer, rules=[rule])

    good = await explained(server, token=issuer.github())
    branch = await explained(server, token=issuer.github(ref="refs/heads/x"))
    event = await explained(server, token=issuer.github(event_name="pull_request"))
    claims = await explained(server, issuer=issuer.url, claims={"ref": "refs/heads/main"})
    expired = await explained(server, token=issuer.github(exp=1))
    other = await explained(server, token=issuer.github(), account="other")

    assert good.json["status"]["allowed"] is True
    assert "token" not in json.dumps(good.json["status"]["policies"])
    assert failed(branch) == {"claims[ref]": ("refs/heads/main", "refs/heads/x")}
    assert list(failed(event)) == ["rules[0]"]
    assert set(failed(claims)) == {"claims[repository_id]", "claims[repository_owner_id]"}
    assert expired.json["status"] == {
        "allowed": False,
        "message": "the subject token is refused: it has expired",
    }
    assert "no policy of this namespace" in other.json["status"]["message"]


async def test_a_review_explains_the_audiences(server: Api, issuer: OutsideIssuer) -> None:
    """As in the request; the policy that allows all of them comes first."""
    await make_policy(server, issuer, "a", audiences=["https://a.example"])
    await make_policy(server, issuer, "b", audiences=["https://b.example", "https://c.example"])

    good = await explained(server, token=issuer.github(), audiences=["https://c.example"])
    bad = await explained(server, token=issuer.github(), audiences=["https://d.example"])

    assert [one["name"] for one in good.json["status"]["policies"]] == ["b", "a"]
    assert [one["allowed"] for one in good.json["status"]["policies"]] == [True, False]
    assert bad.json["status"]["allowed"] is False
    assert failed(bad) == {"audiences": ("https://a.example", "https://d.example")}


async def test_a_review_explains_the_account_and_a_revocation(
    server: Api, issuer: OutsideIssuer
) -> None:
    """What the anonymous client is not informed of."""
    await server.account("silent", "ci")
    await make_policy(server, issuer, account="silent")
    token = issuer.github()

    account = await explained(server, token=token)
    await revoked(server, "outside", token={"jti": jti_of(token)})
    gone = await explained(server, token=token)

    assert list(failed(account)) == ["account"]
    assert account.json["status"]["allowed"] is False
    assert "revoked" in gone.json["status"]["message"]


async def test_a_review_evaluates_the_rules_of_a_limited_number_of_policies(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as an exchange: those with the fewest claims that differ."""
    rule = [{"expression": "claims.event_name == 'none'"}]
    for number in range(70):
        await make_policy(server, issuer, f"p{number:02d}", rules=rule)
    await make_policy(server, issuer, "z-other", claims={**GITHUB_CLAIMS, "ref": "x"}, rules=rule)
    await make_policy(server, issuer, "a-last", claims={"repository_id": "1"}, rules=rule)
    judge, judged = PolicyJudge._rules, []

    async def counting(self: PolicyJudge, policy: IndexedPolicy, given: ExpressionInput) -> Any:
        judged.append(policy.name)
        return await judge(self, policy, given)

    monkeypatch.setattr(PolicyJudge, "_rules", counting)
    found = (await explained(server, token=issuer.github())).json["status"]

    assert len(judged) == 64
    assert not {"z-other", "a-last"} & set(judged)
    assert found["allowed"] is False
    assert len(found["policies"]) == 32


async def test_a_review_needs_the_right_to_list_policies(
    server: Api, issuer: OutsideIssuer
) -> None:
    """It shows their terms."""
    await make_policy(server, issuer)
    create = allowed("tokenexchangereviews", "create", group="identity.orch.io")
    await grant(server, "bob", create)
    read = allowed("tokenexchangepolicies", "list", group="identity.orch.io")
    await grant(server, "alice", create, read)

    without = await explained(server, BOB, token=issuer.github())
    with_right = await explained(server, ALICE, token=issuer.github())

    assert (without.status, with_right.status) == (403, 201)
    assert "list the policies" in without.json["message"]


async def test_a_malformed_review_is_refused(
    server: Api, issuer: OutsideIssuer, server_files: Path
) -> None:
    """Nothing to review, both forms, too many claims, or exchange is off."""
    token = issuer.github()

    for spec, text in (
        ({}, "token, or issuer and claims"),
        ({"token": token, "issuer": "x"}, "not together with token"),
        ({"claims": {"a": "b"}}, "spec.issuer: Required"),
        ({"issuer": "x", "claims": {f"c{n}": "x" for n in range(300)}}, "256"),
    ):
        answer = await explained(server, **spec)
        assert answer.status in (400, 422)
        assert text in answer.json["message"]
    async with api(server_files) as off:
        answer = await explained(off, token=token)
        assert answer.status == 400
        assert "token exchange is off" in answer.json["message"]


# -- revocation ------------------------------------------------------------------------------------


async def revoke(server: Api, token: str, caller: str | None = None, **headers: str) -> Answer:
    body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
    return await server.call("POST", REVOKE, body, token=caller, headers={**FORM, **headers})


async def stored(server: Api) -> list[Any]:
    found: list[Any] = (await server.call("GET", REVOCATIONS)).json["items"]
    return found


@pytest.mark.parametrize("way", ["nothing", "bearer", "basic", "post"])
async def test_the_holder_of_a_token_revokes_it(
    server: Api, issuer: OutsideIssuer, way: str
) -> None:
    """With no other credential, or with the token itself as client secret, or as bearer token if it
    is for this server."""
    await make_policy(server, issuer, audiences=[VAULT, "https://orchid.test"])
    audience = "https://orchid.test" if way == "bearer" else VAULT
    found = await exchange(server, issuer.github(), audiences=[audience])
    token: str = found.json["access_token"]
    before = await review(server, token, audience)

    if way == "bearer":
        answer = await revoke(server, token, token)
    elif way == "basic":
        answer = await revoke(server, token, authorization=basic(DEPLOYER, token))
    elif way == "post":
        form = {"token": token, "client_id": DEPLOYER, "client_secret": token}
        answer = await server.call(
            "POST", REVOKE, urlencode(form).encode(), token=None, headers=FORM
        )
    else:
        answer = await revoke(server, token)

    [revocation] = await stored(server)
    assert before["authenticated"] is True
    assert (answer.status, answer.body) == (200, b"")
    assert answer.header("cache-control") == "no-store"
    assert "authenticated" not in await review(server, token, audience)
    assert revocation["spec"]["token"]["jti"] == jti_of(token)
    assert revocation["spec"]["message"] == "revoked by its holder"
    assert (await revoke(server, token)).status == 200, "again"


async def test_another_caller_needs_the_verb_revoke(server: Api) -> None:
    """On the account of the token."""
    token = await server.token("deployer", "ci", audiences=[VAULT])
    await grant(server, "alice", allowed("serviceaccounts", "revoke", names=("deployer",)))

    refused = await revoke(server, token, BOB)
    still = await review(server, token)
    done = await revoke(server, token, ALICE)

    assert (refused.status, refused.json["error"]) == (403, "access_denied")
    assert still["authenticated"] is True
    assert done.status == 200
    assert "authenticated" not in await review(server, token)


async def test_nothing_is_stored_for_a_token_that_is_not_ours(
    server: Api, issuer: OutsideIssuer
) -> None:
    """The answer is 200 all the same."""
    good = await server.token("deployer", "ci")
    payload = good.split(".")[1]

    for token in ("nonsense", issuer.github(), f"e30.{payload}.e30", good[:-6] + "AAAAAA", ALICE):
        assert (await revoke(server, token)).status == 200
    assert await stored(server) == []


async def test_malformed_revocations_are_refused(server: Api) -> None:
    """Without a token, with a wrong secret, or by another method."""
    token = await server.token("deployer", "ci")

    missing = await revoke(server, "")
    wrong = await revoke(server, token, authorization=basic(DEPLOYER, "wrong"))
    get = await server.call("GET", f"{REVOKE}?token={token}")

    assert (missing.status, missing.json["error"]) == (400, "invalid_request")
    assert (wrong.status, wrong.json["error"]) == (401, "invalid_client")
    assert get.status == 405
    assert await stored(server) == []


async def test_holders_revoke_a_limited_number_of_tokens(server: Api) -> None:
    """20 an hour for each account: each is an object in the store."""
    tokens = [await server.token("deployer", "ci") for _ in range(21)]
    await server.account("other", "ci")
    other = await server.token("other", "ci")

    answers = [(await revoke(server, token)).status for token in tokens]

    assert answers == [200] * 20 + [503]
    assert (await revoke(server, other)).status == 200


async def test_the_metadata_name_the_revocation_endpoint(server: Api) -> None:
    """Whether exchange is on or not."""
    found = (await server.call("GET", "/.well-known/oauth-authorization-server", token=None)).json

    assert found["revocation_endpoint"] == "https://orchid.test/oauth2/revoke"
    assert "none" in found["revocation_endpoint_auth_methods_supported"]
