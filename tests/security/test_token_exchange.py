"""The attack: get a token of an account with an outside token that no policy allows."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchid.features.exchange.ports import ConfiguredExchange
from orchid.kernel.settings.errors import BadSettings
from tests.api.world import ADMIN, ALICE, BOB, Api, api, settings
from tests.e2e.outside_issuer import AUDIENCE, OutsideIssuer
from tests.security.exchanging import (
    AGREES,
    POLICIES,
    REGISTRY,
    TYPE,
    VAULT,
    exchange,
    exchanging,
    keys_fetched,
    make_policy,
    policy,
    review,
)
from tests.security.test_revocations import jti_of, revoked
from tests.security.test_revoked_users import allowed, grant

CI = POLICIES.format("ci")
ACCOUNTS = "/api/v1/namespaces/ci/serviceaccounts"


@pytest.fixture(scope="module")
def issuer() -> Iterator[OutsideIssuer]:
    with OutsideIssuer() as made:
        yield made


@pytest.fixture
async def server(server_files: Path, issuer: OutsideIssuer, tmp_path: Path) -> AsyncIterator[Api]:
    async with exchanging(server_files, issuer, tmp_path) as made:
        yield made


@pytest.fixture
async def deployer(server: Api, issuer: OutsideIssuer) -> str:
    """A token that was exchanged by the policy acme-deploy."""
    await make_policy(server, issuer)
    answer = await exchange(server, issuer.github())
    assert answer.status == 200, answer.text
    token: str = answer.json["access_token"]
    return token


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


# -- what is issued --------------------------------------------------------------------------------


@pytest.mark.parametrize("with_ids", [True, False])
async def test_an_outside_token_is_exchanged(
    server: Api, issuer: OutsideIssuer, with_ids: bool
) -> None:
    """For a token of the account that names its origin, also in reviews; nothing may store it."""
    made = await make_policy(server, issuer)
    outside = issuer.github(with_ids=with_ids)

    answer = await exchange(server, outside, scope="anything")
    found = answer.json
    claims = claims_of(found["access_token"])
    status = await review(server, found["access_token"])

    assert answer.status == 200
    assert answer.header("cache-control") == "no-store"
    assert found["token_type"] == "Bearer"
    assert found["issued_token_type"] == f"{TYPE}access_token"
    assert found["expires_in"] == 600 == claims["exp"] - claims["iat"]
    assert found["scope"] == ""
    assert claims["aud"] == [VAULT]
    assert claims["sub"] == "system:serviceaccount:ci:deployer"
    assert claims["act"] == {"iss": issuer.url, "sub": claims_of(outside)["sub"]}
    assert claims["orch.io"]["exchange"] == {
        "jti": jti_of(outside),
        "policy": {"name": "acme-deploy", "uid": made["metadata"]["uid"]},
    }
    assert status["authenticated"] is True
    extra = status["user"]["extra"]
    assert extra["authentication.orch.io/exchange-policy"] == ["acme-deploy"]
    assert extra["authentication.orch.io/exchange-issuer"] == [issuer.url]
    assert extra["authentication.orch.io/exchange-subject"] == [claims["act"]["sub"]]
    assert extra["authentication.orch.io/exchange-credential-id"] == [f"JTI={jti_of(outside)}"]


async def test_audiences_and_lifetime_are_those_of_the_policy(
    server: Api, issuer: OutsideIssuer
) -> None:
    """A request may have fewer audiences and a shorter lifetime, never more."""
    await make_policy(server, issuer, maxDuration="15m")
    token = issuer.github()

    both = await exchange(server, token, audiences=[VAULT, REGISTRY], orch_expires_in="120")
    longer = await exchange(server, token, resource=REGISTRY, orch_expires_in="90000")
    other = await exchange(server, token, audiences=[VAULT, "https://other.example"])
    short = await exchange(server, token, orch_expires_in="1")

    assert claims_of(both.json["access_token"])["aud"] == [VAULT, REGISTRY]
    assert both.json["expires_in"] == 120
    assert longer.json["expires_in"] == 900
    assert claims_of(longer.json["access_token"])["aud"] == [REGISTRY]
    assert (other.status, other.json["error"]) == (400, "invalid_target")
    assert (short.status, short.json["error"]) == (400, "invalid_request")


async def test_no_token_lasts_longer_than_the_server_allows(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """Whatever the policy says."""
    limit = {"service_account_max_token_expiration": "1h"}
    async with exchanging(server_files, issuer, tmp_path, **limit) as server:
        await make_policy(server, issuer, maxDuration="24h")

        answer = await exchange(server, issuer.github())

    assert answer.json["expires_in"] == 3600


@pytest.mark.parametrize(
    ("annotation", "status"),
    [("outside", 200), ("outside,inside", 200), (" inside , outside ", 200), ("inside", 400),
     ("outsider", 400), ("Outside", 400), ("", 400)],
)  # fmt: skip
async def test_the_account_agrees_by_its_annotation(
    server: Api, issuer: OutsideIssuer, annotation: str, status: int
) -> None:
    """With the word outside, alone or in a list."""
    meta = {"annotations": {"identity.orch.io/token-exchange": annotation}}
    await server.account("asked", "ci", **meta)
    await make_policy(server, issuer, account="asked")

    assert (await exchange(server, issuer.github(), account="ci/asked")).status == status


async def test_a_token_can_end_with_the_outside_token(server: Api, issuer: OutsideIssuer) -> None:
    """If the policy says so."""
    await make_policy(server, issuer, until="subject")

    answer = await exchange(server, issuer.github(exp=int(time.time()) + 100))

    assert 90 <= answer.json["expires_in"] <= 100


async def test_claims_of_gitlab_are_compared_as_text(server: Api, issuer: OutsideIssuer) -> None:
    """A number and a boolean equal the text that they are written as."""
    wanted = {"project_id": "20", "ref_protected": "true", "ref": "main"}
    await make_policy(server, issuer, claims=wanted)

    texts = await exchange(server, issuer.gitlab())
    others = await exchange(server, issuer.gitlab(project_id=20, ref_protected=True))
    branch = await exchange(server, issuer.gitlab(ref_protected="false"))
    listed = await exchange(server, issuer.gitlab(project_id=["20"]))

    assert [texts.status, others.status, branch.status, listed.status] == [200, 200, 400, 400]


# -- what ends it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["token", "outside", "outside-issuer", "policy", "account"])
async def test_an_exchanged_token_ends_with_its_origin(
    server: Api, issuer: OutsideIssuer, end: str
) -> None:
    """The policy, the outside token, the account, or its own revocation; from the next review."""
    await make_policy(server, issuer)
    outside = issuer.github()
    token = (await exchange(server, outside)).json["access_token"]
    before = await review(server, token)
    if end == "token":
        await revoked(server, "own", token={"jti": jti_of(token)})
    elif end == "outside":
        await revoked(server, "origin", token={"jti": jti_of(outside)})
    elif end == "outside-issuer":
        await revoked(server, "origin", token={"jti": jti_of(outside), "issuer": issuer.url})
    elif end == "policy":
        await server.call("DELETE", f"{CI}/acme-deploy")
        await make_policy(server, issuer)  # another one of the same name
    else:
        await server.call("DELETE", f"{ACCOUNTS}/deployer")

    after = await review(server, token)
    again = await exchange(server, outside)

    assert before["authenticated"] is True
    assert "authenticated" not in after
    assert again.status == (200 if end in ("token", "policy") else 400)


async def test_the_revocation_of_an_outside_token_outlives_the_tokens_exchanged_for_it(
    server: Api, issuer: OutsideIssuer, deployer: str
) -> None:
    """An exchanged token may be valid for a day longer than the outside token."""
    outside = issuer.github()
    expires = "2100-01-01T00:00:00Z"

    token = {"jti": jti_of(outside), "issuer": issuer.url, "expires": expires}
    found = await revoked(server, "origin", token=token)

    assert found["status"]["expires"] == "2100-01-02T00:00:00Z"


async def test_a_policy_that_is_being_deleted_ends_its_tokens(
    server: Api, issuer: OutsideIssuer, deployer: str
) -> None:
    """A finalizer does not prolong them."""
    body = json.dumps({"metadata": {"finalizers": ["example.com/wait"]}}).encode()
    merge = {"content-type": "application/merge-patch+json"}
    await server.call("PATCH", f"{CI}/acme-deploy", body, headers=merge)
    await server.call("DELETE", f"{CI}/acme-deploy")

    assert (await server.call("GET", f"{CI}/acme-deploy")).status == 200
    assert "authenticated" not in await review(server, deployer)
    assert (await exchange(server, issuer.github())).status == 400


async def test_rules_that_are_too_expensive_for_a_token_refuse_it(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run on the event loop, and the issuer decides how large a token is."""
    await make_policy(server, issuer, rules=[{"expression": "claims.ref != ''"}])
    before = await exchange(server, issuer.github())
    monkeypatch.setattr("orchid.features.exchange.judging.MOST_COST", 10)

    after = await exchange(server, issuer.github())

    assert (before.status, after.status) == (200, 400)


async def test_an_account_that_is_being_deleted_gets_no_token(
    server: Api, issuer: OutsideIssuer
) -> None:
    """Also while a finalizer holds it, and its older tokens may still count."""
    waits = {"finalizers": ["example.com/wait"], "annotations": AGREES}
    await server.account("leaving", "ci", **waits)
    await make_policy(server, issuer, account="leaving")
    before = await exchange(server, issuer.github(), account="ci/leaving")
    await server.call("DELETE", f"{ACCOUNTS}/leaving")

    after = await exchange(server, issuer.github(), account="ci/leaving")

    assert (await server.call("GET", f"{ACCOUNTS}/leaving")).status == 200
    assert (before.status, after.status) == (200, 400)


async def test_a_policy_that_is_not_ready_exchanges_nothing(
    server: Api, issuer: OutsideIssuer
) -> None:
    """Until it is changed again."""
    made = await make_policy(server, issuer)
    [ready] = made["status"]["conditions"]
    made["status"]["conditions"] = [{**ready, "status": "False", "reason": "Suspended"}]
    changed = await server.call("PUT", f"{CI}/acme-deploy/status", made)

    refused = await exchange(server, issuer.github())
    spec = {**changed.json["spec"], "maxDuration": "20m"}
    await server.call("PUT", f"{CI}/acme-deploy", {**changed.json, "spec": spec})
    again = await exchange(server, issuer.github())

    assert (changed.status, refused.status, again.status) == (200, 400, 200)


# -- refusals by policy ----------------------------------------------------------------------------


OTHER_SUBJECTS: tuple[dict[str, Any], ...] = (
    {"repository_id": "999999"},  # a repository of the same name
    {"ref": "refs/heads/feature"},
    {"repository_owner_id": "1", "repository_id": "2", "repository": "fork/app"},
    {"repository_id": None},
    {"repository_id": ["456789"]},
    {"repository_id": {"456789": 1}},
    {"workflow_ref": "acme/app/.github/workflows/other.yml@refs/heads/main"},
)


async def test_another_subject_is_refused_and_no_condition_is_revealed(
    server: Api, issuer: OutsideIssuer
) -> None:
    """The answer repeats the token and has the audit id."""
    rule = "claims.workflow_ref.startsWith('acme/app/.github/workflows/deploy.yml@')"
    await make_policy(server, issuer, rules=[{"expression": rule, "message": "only deploy"}])
    assert (await exchange(server, issuer.github())).status == 200

    for claims in OTHER_SUBJECTS:
        outside = issuer.github(**claims)
        answer = await exchange(server, outside)
        text, subject = answer.json["error_description"], claims_of(outside)["sub"]
        assert (answer.status, answer.json["error"]) == (400, "invalid_request")
        assert subject in text
        assert (answer.header("audit-id") or "-") in text
        assert not any(one in text for one in ("deploy.yml", "only deploy"))
        assert "456789" not in text.replace(subject, "")


async def test_a_refusal_is_the_same_whatever_is_missing(
    server: Api, issuer: OutsideIssuer
) -> None:
    """No account, no policy, no agreement, a system namespace: nothing is disclosed."""
    await make_policy(server, issuer)
    await make_policy(server, issuer, "of-nobody", account="nobody")
    await server.account("silent", "ci")
    await make_policy(server, issuer, "of-silent", account="silent")
    token = issuer.github()

    texts = set()
    for account in ("ci/nobody", "ci/silent", "ci/ghost", "other/deployer", "orch-system/x"):
        answer = await exchange(server, token, account=account)
        assert answer.status == 400
        text = answer.json["error_description"].replace(account, "ACCOUNT")
        texts.add(text.replace(answer.header("audit-id") or "", "ID"))

    assert len(texts) == 1


async def test_without_an_account_policies_must_agree_on_one(
    server: Api, issuer: OutsideIssuer
) -> None:
    """Two accounts are ambiguous, until the request names one."""
    await make_policy(server, issuer)
    alone = await exchange(server, issuer.github(), account=None)
    await server.account("second", "ci", annotations=AGREES)
    await make_policy(server, issuer, "second", account="second")

    several = await exchange(server, issuer.github(), account=None)
    named = await exchange(server, issuer.github(), account="ci/second")

    assert [alone.status, several.status, named.status] == [200, 400, 200]
    assert "?account=" in several.json["error_description"]


async def test_many_policies_of_others_do_not_disturb_a_named_account(
    server: Api, issuer: OutsideIssuer
) -> None:
    """Policies of another namespace that copy our claims only affect requests without account."""
    await make_policy(server, issuer)
    for number in range(70):
        await make_policy(server, issuer, f"copy-{number}", namespace="rival", account="x")

    named = await exchange(server, issuer.github())
    unnamed = await exchange(server, issuer.github(), account=None)

    assert (named.status, unnamed.status) == (200, 400)


# -- invalid tokens --------------------------------------------------------------------------------


def forged(token: str, header: dict[str, Any], key: bytes | None) -> str:
    """The claims of a token below another header, signed by HMAC or not at all."""
    encoded = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    signed = f"{encoded}.{token.split('.')[1]}"
    if key is None:
        return f"{signed}."
    mac = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def confused(issuer: OutsideIssuer, algorithm: str) -> str:
    public = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": algorithm, "kid": issuer.kid, "typ": "JWT"}
    return forged(issuer.github(), header, None if algorithm == "none" else public)


def nested() -> str:
    part = base64.urlsafe_b64encode(b'{"iss":' + b"[" * 5000 + b"]" * 5000 + b"}").rstrip(b"=")
    return f"e30.{part.decode()}.e30"


BAD: dict[str, Any] = {
    "algorithm confusion": lambda one: confused(one, "HS256"),
    "no signature": lambda one: confused(one, "none"),
    "unknown algorithm": lambda one: confused(one, "RS999"),
    "embedded key": lambda one: one.token({"jwk": {"kty": "oct", "k": "AA"}}),
    "key elsewhere": lambda one: one.token({"jku": "https://evil.example/keys"}),
    "unknown key": lambda one: one.token({"kid": "unknown"}),
    "forged": lambda one: one.github()[:-6] + "AAAAAA",
    "wrong issuer": lambda one: one.github(iss="https://evil.example"),
    "issuer with a slash": lambda one: one.github(iss=f"{one.url}/"),
    "no issuer": lambda one: one.github(iss=None),
    "list of issuers": lambda one: "e30.eyJpc3MiOlsiYSJdfQ.e30",
    "other audience": lambda one: one.github(aud="https://other.example"),
    "no audience": lambda one: one.github(aud=None),
    "audience of another type": lambda one: one.github(aud={"a": AUDIENCE}),
    "expired": lambda one: one.github(exp=int(time.time()) - 5),
    "no expiry": lambda one: one.github(exp=None),
    "expires late": lambda one: one.github(exp=int(time.time()) + 25 * 3600),
    "no time of issue": lambda one: one.github(iat=None),
    "not valid yet": lambda one: one.github(nbf=int(time.time()) + 3600),
    "issued later": lambda one: one.github(iat=int(time.time()) + 3600, nbf=None),
    "bound": lambda one: one.github(cnf={"jkt": "x"}),
    "bound to nothing": lambda one: one.github(cnf={}),
    "bound to null": lambda one: one.signed(
        {**jwt.decode(one.github(), options={"verify_signature": False}), "cnf": None}
    ),
    "no subject": lambda one: one.github(sub=None),
    "long subject": lambda one: one.github(sub="x" * 1025),
    "long id": lambda one: one.github(jti="x" * 257),
    "logout token": lambda one: one.token({"typ": "logout+jwt"}),
    "many claims": lambda one: one.github(**{f"c{n}": "x" for n in range(300)}),
    "huge": lambda one: one.github(padding="x" * 20_000),
    "nested": lambda one: nested(),
    "deep claim": lambda one: f"e30.{'A' * 100}.e30",
    "opaque": lambda one: "ya29.opaque",
    "blank": lambda one: " ",
    "encrypted": lambda one: "a.b.c.d.e",
}


REASONS = {
    "algorithm confusion": "'HS256' is not accepted",
    "no signature": "'none' is not accepted",
    "unknown key": "no key with its key id",
    "forged": "altered",
    "other audience": "its audience is 'https://other.example'",
    "no audience": "it has no audience",
}


async def test_an_invalid_token_is_refused(server: Api, issuer: OutsideIssuer) -> None:
    """400 with a reason, and no token."""
    await make_policy(server, issuer)
    good = await exchange(server, issuer.github())

    found = {name: await exchange(server, made(issuer)) for name, made in BAD.items()}

    assert good.status == 200
    assert {name: (one.status, one.json["error"]) for name, one in found.items()} == dict.fromkeys(
        BAD, (400, "invalid_request")
    )
    for name, text in REASONS.items():
        assert text in found[name].json["error_description"], name
    assert all(one.json["error_description"] for one in found.values())
    assert {one.header("cache-control") for one in found.values()} == {"no-store"}


async def test_a_flood_of_unknown_keys_fetches_the_keys_once(
    server: Api, issuer: OutsideIssuer
) -> None:
    """At most every 30 seconds, whatever callers send."""
    await make_policy(server, issuer)
    before = len(issuer.fetches)

    for number in range(20):
        answer = await exchange(server, issuer.token({"kid": f"unknown-{number}"}))
        assert answer.status == 400

    assert len(issuer.fetches) == before


# -- malformed requests ----------------------------------------------------------------------------


FORMS: tuple[tuple[dict[str, str], str], ...] = (
    ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
    ({"grant_type": ""}, "invalid_request"),
    ({"subject_token_type": f"{TYPE}access_token"}, "invalid_request"),
    ({"subject_token_type": f"{TYPE}saml2"}, "invalid_request"),
    ({"subject_token_type": ""}, "invalid_request"),
    ({"requested_token_type": f"{TYPE}refresh_token"}, "invalid_request"),
    ({"actor_token": "x", "actor_token_type": f"{TYPE}jwt"}, "invalid_request"),
    ({"orch_expires_in": "soon"}, "invalid_request"),
    ({"orch_expires_in": "-600"}, "invalid_request"),
    ({"orch_expires_in": "9" * 5000}, "invalid_request"),
    ({"orch_expires_in": "\u0661\u0662\u0663"}, "invalid_request"),
)
QUERIES = (
    "account=ci/deployer&account=ci/deployer",
    "account=",
    "account=ci",
    "account=ci/",
    "account=/deployer",
    "account=ci/deployer/token",
    f"account=ci/{'x' * 600}",
    "subject_token=x",
    "account=ci/deployer&audience=x",
)
URLENCODED = "application/x-www-form-urlencoded"
BODIES = (
    (b"", URLENCODED),
    (b"grant_type=a&grant_type=b", URLENCODED),
    (b"subject_token=%FF", URLENCODED),
    (b"x=" + b"y" * (32 << 10), URLENCODED),
    (b"&".join(b"audience=%d" % n for n in range(40)), URLENCODED),
    (b'{"grant_type": "x"}', "application/json"),
    (b"--x\r\n", "multipart/form-data; boundary=x"),
    (b"\xff\xfe\x00", "application/octet-stream"),
)


async def test_a_malformed_parameter_is_refused(server: Api, issuer: OutsideIssuer) -> None:
    """With the code of RFC 6749."""
    await make_policy(server, issuer)

    for form, code in FORMS:
        answer = await exchange(server, issuer.github(), **form)
        assert (answer.status, answer.json["error"]) == (400, code), form
    assert (await exchange(server, "")).json["error"] == "invalid_request"


async def test_a_malformed_query_is_refused(server: Api, issuer: OutsideIssuer) -> None:
    """A repeated account could mean one account to a proxy and another to us."""
    await make_policy(server, issuer)

    for query in QUERIES:
        answer = await exchange(server, issuer.github(), query=query)
        assert (answer.status, answer.json["error"]) == (400, "invalid_request"), query


async def test_a_body_that_is_no_form_is_refused(server: Api) -> None:
    """Before anything in it is used."""
    for body, media in BODIES:
        answer = await exchange(server, "", body=body, headers={"content-type": media})
        assert (answer.status, answer.json["error"]) == (400, "invalid_request"), body[:40]
        assert (answer.header("audit-id") or "-") in answer.json["error_description"]


async def test_too_many_audiences_are_refused(server: Api, issuer: OutsideIssuer) -> None:
    """Sixteen together."""
    await make_policy(server, issuer)

    answer = await exchange(server, issuer.github(), audiences=[f"https://{n}" for n in range(17)])

    assert (answer.status, answer.json["error"]) == (400, "invalid_target")


async def test_only_post_is_served(server: Api) -> None:
    """A token in a query would be in the logs of proxies."""
    answer = await server.call("GET", "/oauth2/token", token=None)

    assert answer.status in (403, 405)


async def test_a_description_has_only_permitted_characters(
    server: Api, issuer: OutsideIssuer
) -> None:
    """RFC 6749 permits neither quotes nor backslashes nor anything beyond ASCII."""
    await make_policy(server, issuer)

    answer = await exchange(server, issuer.github(ref="x", sub='"\\\r\nSet-Cookie: \u00e4\u202e'))
    text = answer.json["error_description"]

    assert answer.status == 400
    assert all(" " <= one <= "~" and one not in '"\\' for one in text)


# -- limits ----------------------------------------------------------------------------------------


def stop_time(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refill no allowance, however long the test takes."""
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    for limit in (parts.exchanger._limit, parts.limits._rate):
        monkeypatch.setattr(limit, "_monotonic", lambda: 1000.0)


async def test_a_flood_from_one_address_is_limited_and_others_are_served(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 requests a second, also from many addresses of one /64; 429 says when to retry."""
    stop_time(server, monkeypatch)
    await make_policy(server, issuer)
    flood = [
        await exchange(server, "nonsense", address=f"[2001:db8:0:1::{number:x}]:4711")
        for number in range(120)
    ]
    other = await exchange(server, issuer.github(), address="[2001:db8:0:2::1]:4711")

    statuses = [one.status for one in flood]
    late = flood[statuses.index(429)]
    assert statuses == [400] * 50 + [429] * 70
    assert late.json["error"] == "temporarily_unavailable"
    assert int(late.header("retry-after") or 0) >= 1
    assert other.status == 200


async def test_concurrent_requests_of_one_address_are_limited(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten at a time; an unknown key makes a request wait for the issuer."""
    await make_policy(server, issuer)
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    source = parts.subjects._followed[issuer.url].source
    released = asyncio.Event()

    async def newer() -> bool:
        await released.wait()
        return False

    monkeypatch.setattr(source, "newer", newer)
    waiting = [
        asyncio.create_task(exchange(server, issuer.token({"kid": f"k{number}"})))
        for number in range(10)
    ]
    while sum(parts.limits._concurrent.values()) < len(waiting):  # noqa: ASYNC110 -- no event says so
        await asyncio.sleep(0.001)
    beyond = await exchange(server, issuer.github())
    elsewhere = await exchange(server, issuer.github(), address="198.51.100.7:1")
    released.set()
    ended = [answer.status for answer in await asyncio.gather(*waiting)]

    assert (beyond.status, elsewhere.status) == (429, 200)
    assert ended == [400] * 10
    assert (await exchange(server, issuer.github())).status == 200


async def test_one_subject_is_limited(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 exchanges a minute, from any number of addresses; other subjects are served."""
    stop_time(server, monkeypatch)
    await make_policy(server, issuer)
    token = issuer.github()

    found = [
        await exchange(server, token, address=f"192.0.{number // 40}.1:1") for number in range(640)
    ]
    other = await exchange(server, issuer.github(sub="repo:acme/other"), address="192.0.99.1:1")

    assert [one.status for one in found[:600]] == [200] * 600
    assert {one.status for one in found[600:]} == {429}
    assert other.status == 200


# -- who writes policies ---------------------------------------------------------------------------


async def test_an_author_cannot_grant_a_token_that_they_could_not_issue(
    server: Api, issuer: OutsideIssuer
) -> None:
    """Neither by a new policy nor by a change of one, of any field."""
    await grant(
        server,
        "bob",
        allowed("tokenexchangepolicies", "create", "update", "get", group="identity.orch.io"),
    )
    body = policy(issuer)
    refused = await server.call("POST", CI, body, token=BOB)
    made = await server.make(CI, body)
    changed = {**made, "spec": {**made["spec"], "audiences": ["https://evil.example"]}}
    labelled = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}

    answers = [
        await server.call("PUT", f"{CI}/acme-deploy", one, token=BOB) for one in (changed, labelled)
    ]
    await grant(
        server,
        "alice",
        allowed("tokenexchangepolicies", "update", group="identity.orch.io"),
        allowed("serviceaccounts/token", "create", names=("deployer",)),
    )
    permitted = await server.call("PUT", f"{CI}/acme-deploy", changed, token=ALICE)
    moved = {**permitted.json, "spec": {**made["spec"], "account": "other"}}
    other = await server.call("PUT", f"{CI}/acme-deploy", moved, token=ALICE)

    assert refused.status == 403
    assert "serviceaccounts/token" in refused.json["message"]
    assert [one.status for one in answers] == [403, 403]
    assert (permitted.status, other.status) == (200, 403)


async def test_no_policy_is_for_an_account_of_the_system(
    server: Api, issuer: OutsideIssuer
) -> None:
    """Not even of an administrator."""
    for namespace in ("orch-system", "orch-public", "orch-node-lease"):
        answer = await server.call("POST", POLICIES.format(namespace), policy(issuer), token=ADMIN)
        assert answer.status == 422
        assert "cannot be exchanged" in answer.json["message"]


async def test_a_stored_policy_for_an_account_of_the_system_exchanges_nothing(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was restored, or written to the store."""
    await server.account("robot", "orch-system", annotations=AGREES)
    monkeypatch.setattr(
        "orchid.features.exchange.kinds.token_exchange_policy.Rules.validate", lambda *_: ()
    )
    await make_policy(server, issuer, namespace="orch-system", account="robot")

    answer = await exchange(server, issuer.github(), account="orch-system/robot")

    assert answer.status == 400


RISKS: dict[str, tuple[dict[str, str], str]] = {
    "only the subject": ({"sub": "somebody"}, "besides sub"),
    "only an audience": ({"aud": "https://orchid.test"}, "besides sub and aud"),
    "both of them": ({"sub": "somebody", "aud": "https://orchid.test"}, "besides sub and aud"),
    "a subject of GitHub": ({"sub": "repo:acme/app:x", "ref": "main"}, "repository_id"),
    "a subject of GitLab": ({"sub": "project_path:acme/app:x", "ref": "main"}, "project_id"),
    "a name of GitHub": ({"repository": "acme/app", "ref": "refs/heads/main"}, "repository_id"),
    "a path of GitLab": ({"project_path": "acme/app", "ref_protected": "true"}, "project_id"),
}


async def test_a_subject_that_others_can_obtain_causes_a_warning(
    server: Api, issuer: OutsideIssuer
) -> None:
    """The policy is stored all the same."""
    for number, (claims, text) in enumerate(RISKS.values()):
        answer = await server.call("POST", CI, policy(issuer, f"risk-{number}", claims=claims))
        assert answer.status == 201
        assert text in " ".join(answer.warnings)
    safe = await server.call("POST", CI, policy(issuer, "safe"))
    changed = {**safe.json, "spec": {**safe.json["spec"], "claims": {"repository": "acme/app"}}}
    later = await server.call("PUT", f"{CI}/safe", changed)
    assert safe.warnings == []
    assert "repository_id" in " ".join(later.warnings)


URLS = (
    ("https://token.actions.githubusercontent.com", "actor", "repository_id"),
    ("https://token.actions.githubusercontent.com/acme", "actor", "repository_id"),
    ("https://github.acme.example/_services/token", "actor", "repository_id"),
    ("https://token.actions.acme.ghe.com", "actor", "repository_id"),
    ("https://gitlab.com", "user_login", "project_id"),
    ("https://git.acme.example", "namespace_path", "project_id"),
)


async def test_a_known_issuer_is_recognized_by_its_url_or_its_claims(server: Api) -> None:
    """GitHub, with a URL of an enterprise or on its own server; GitLab; installations of both."""
    for number, (url, claim, text) in enumerate(URLS):
        spec = {**policy_spec(url), "claims": {claim: "x", "ref": "main"}}
        answer = await server.call("POST", CI, {"metadata": {"name": f"k{number}"}, "spec": spec})
        assert answer.status == 201
        assert text in " ".join(answer.warnings), url
        assert "not an issuer of this server" in " ".join(answer.warnings)


def policy_spec(url: str) -> dict[str, Any]:
    return {"issuer": url, "account": "deployer", "audiences": [VAULT]}


async def test_a_branch_of_gitlab_that_anybody_may_push_causes_a_warning(server: Api) -> None:
    """Also on a strict server it is no more than a warning: it may be meant."""
    spec = {**policy_spec("https://gitlab.com"), "claims": {"project_id": "20", "ref": "main"}}

    answer = await server.call("POST", CI, {"metadata": {"name": "branch"}, "spec": spec})

    assert "ref_protected" in " ".join(answer.warnings)


async def test_a_strict_server_refuses_such_a_subject(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """With the same text."""
    async with exchanging(server_files, issuer, tmp_path, token_exchange_strict=True) as strict:
        for claims, text in RISKS.values():
            answer = await strict.call("POST", CI, policy(issuer, claims=claims))
            assert answer.status == 422
            assert text in answer.json["message"]
        assert (await strict.call("POST", CI, policy(issuer))).status == 201


POLICY_ERRORS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"issuer": ""}, "spec.issuer: Required"),
    ({"issuer": "http://plain.example"}, "https URL"),
    ({"claims": {}}, "spec.claims: Required"),
    ({"claims": {"jti": "x"}}, "another value in every token"),
    ({"claims": {"iss": "x"}}, "compared as spec.issuer"),
    ({"claims": {"repository_id": ""}}, "Required"),
    ({"claims": {f"c{n}": "x" for n in range(40)}}, "32"),
    ({"claims": {"a": "x" * 1025}}, "Too long"),
    ({"account": ""}, "spec.account: Required"),
    ({"account": "../x"}, "spec.account"),
    ({"audiences": []}, "spec.audiences: Required"),
    ({"audiences": [VAULT, VAULT]}, "Duplicate"),
    ({"maxDuration": "59s"}, "between 60s and 24h"),
    ({"maxDuration": "25h"}, "between 60s and 24h"),
    ({"until": "forever"}, "Unsupported"),
    ({"rules": [{"expression": "claims."}]}, "spec.rules[0].expression"),
    ({"rules": [{"expression": "'text'"}]}, "must evaluate to bool"),
    ({"rules": [{"expression": "user.name == 'x'"}]}, "undeclared"),
    ({"rules": [{"expression": ""}]}, "Required"),
    ({"rules": [{"expression": "true"}] * 33}, "at most 32"),
    (
        {
            "rules": [
                {"expression": "claims.all(a, claims.all(b, claims.all(c, a.matches('(x+x+)+y'))))"}
            ]
        },
        "too expensive",
    ),
)


async def test_an_invalid_policy_is_refused(server: Api, issuer: OutsideIssuer) -> None:
    """422 with the path, or 400 for a body beyond the limits."""
    for spec, text in POLICY_ERRORS:
        answer = await server.call("POST", CI, policy(issuer, **spec))
        assert answer.status in (400, 422), answer.text
        assert text in answer.json["message"]


# -- configuration ---------------------------------------------------------------------------------


async def test_exchange_is_off_by_default(server_files: Path, issuer: OutsideIssuer) -> None:
    """There is no such page, and a new policy has a warning."""
    async with api(server_files) as off:
        anonymous = await exchange(off, issuer.github())
        page = await off.call("POST", "/oauth2/token", b"x=y", token=ADMIN)
        made = await off.call("POST", CI, policy(issuer))

        assert off.server.context.optional(ConfiguredExchange) is None
        assert (anonymous.status, page.status) == (401, 404)
        assert made.status == 201
        assert "token exchange is off" in " ".join(made.warnings)


CONFIGURATION_ERRORS: tuple[dict[str, Any], ...] = (
    {"kind": "Other"},
    {"apiVersion": "v1"},
    {"surprise": 1},
    {"issuers": []},
    {"issuers": [{"url": "http://plain.example", "audiences": ["a"]}]},
    {"issuers": [{"url": "https://a.example"}]},
    {"issuers": [{"url": "https://a.example", "audiences": [""]}]},
    {"issuers": [{"url": "https://a.example", "audiences": ["a"], "algorithms": ["HS256"]}]},
    {"issuers": [{"url": "https://a.example", "audiences": ["a"], "algorithms": ["none"]}]},
    {"issuers": [{"url": "https://a.example", "audiences": ["a"], "jwks": "x"}]},
    {"issuers": [{"url": "https://orchid.test", "audiences": ["a"]}]},
    {"issuers": [{"url": "https://a.example", "audiences": ["a"]}] * 2},
    {"issuers": [{"url": "https://a.example", "audiences": ["a"], "certificateAuthority": "x"}]},
)


def test_an_invalid_configuration_stops_the_start(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """With the path of the error."""
    file = tmp_path / "exchange.json"
    issuer.exchange_configuration(file)
    good = json.loads(file.read_text())

    for change in CONFIGURATION_ERRORS:
        file.write_text(json.dumps({**good, **change}))
        with pytest.raises(BadSettings, match="--token-exchange-config: "):
            asyncio.run(started(server_files, token_exchange_config=str(file)))


async def started(files: Path, **given: Any) -> None:
    async with api(files, ready=False, **given):
        pass


def test_forbidden_anonymous_requests_stop_the_start(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """Clients of the exchange have no credential but the outside token."""
    file = issuer.exchange_configuration(tmp_path / "exchange.json")
    other = tmp_path / "authentication.json"
    document = {
        "apiVersion": "apiserver.config.orch.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": False},
    }
    other.write_text(json.dumps(document))

    with pytest.raises(BadSettings, match="anonymous"):
        asyncio.run(
            started(server_files, token_exchange_config=file, authentication_config=str(other))
        )


async def test_the_file_is_read_again_when_it_changes(
    server: Api, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """A new audience counts, a removed issuer does not, and an invalid file changes nothing."""
    await make_policy(server, issuer)
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    file, token = tmp_path / "exchange.json", issuer.github(aud="https://new.example")
    before = await exchange(server, token)

    issuer.exchange_configuration(file, ["https://new.example"])
    await parts.subjects.reload()
    added = await exchange(server, token)
    file.write_text("kind: Nonsense")
    await parts.subjects.reload()
    invalid = await exchange(server, token)
    with OutsideIssuer() as other:
        other.exchange_configuration(file)
        await parts.subjects.reload()
        await keys_fetched(server)
        removed = await exchange(server, token)
        replaced = await exchange(server, other.github())

    assert [before.status, added.status, invalid.status, removed.status] == [400, 200, 200, 400]
    assert "not exchanged" in removed.json["error_description"]
    assert "no policy" in replaced.json["error_description"]


async def test_a_new_key_of_the_issuer_is_used(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys are fetched again for an unknown key, and the old key is refused."""
    await make_policy(server, issuer)
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    old, source = issuer.github(), parts.subjects._followed[issuer.url].source
    assert (await exchange(server, old)).status == 200

    issuer.rotate()
    monkeypatch.setattr(source, "_is_recent", lambda: False)
    new = await exchange(server, issuer.github())
    again = await exchange(server, old)

    assert (new.status, again.status) == (200, 400)


async def test_a_new_key_that_cannot_be_fetched_is_503(
    server: Api, issuer: OutsideIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token may be good; tokens of the old key are exchanged meanwhile."""
    await make_policy(server, issuer)
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    old, source = issuer.github(), parts.subjects._followed[issuer.url].source
    issuer.rotate()
    monkeypatch.setitem(issuer.pages, "/keys", b"out of order")
    monkeypatch.setattr(source, "_is_recent", lambda: False)

    new, again = await exchange(server, issuer.github()), await exchange(server, old)

    assert (new.status, again.status) == (503, 200)
    assert new.json["error"] == "temporarily_unavailable"


async def test_keys_that_are_not_there_yet_are_503(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """With Retry-After; the client's token may be good."""
    file = issuer.exchange_configuration(tmp_path / "exchange.json", discoveryURL=f"{issuer.url}/x")
    async with api(server_files, token_exchange_config=file) as server:
        parts = server.server.context.port(ConfiguredExchange).parts
        assert parts is not None
        await parts.subjects._followed[issuer.url].source.refresh()

        answer = await exchange(server, issuer.github())

    assert answer.status == 503
    assert answer.json["error"] == "temporarily_unavailable"
    assert answer.header("retry-after")


async def test_an_outside_issuer_does_not_authenticate_to_the_api(
    server: Api, issuer: OutsideIssuer
) -> None:
    """Its tokens can be exchanged, and nothing else."""
    who = "/apis/authentication.orch.io/v1/selfsubjectreviews"

    answer = await server.call("POST", who, {}, token=issuer.github(aud="https://orchid.test"))

    assert answer.status == 401


async def test_the_metadata_name_the_endpoint(server: Api) -> None:
    """When exchange is on."""
    found = (await server.call("GET", "/.well-known/oauth-authorization-server", token=None)).json

    assert found["token_endpoint"] == "https://orchid.test/oauth2/token"
    assert found["token_endpoint_auth_methods_supported"] == ["none"]
    assert found["grant_types_supported"] == ["urn:ietf:params:oauth:grant-type:token-exchange"]


def test_the_settings_have_their_defaults(server_files: Path) -> None:
    """Off, and not strict."""
    given = settings(server_files).given

    assert (given.token_exchange_config, given.token_exchange_strict) == ("", False)
