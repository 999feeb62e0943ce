"""The attack: to get or use certificates of others through ACME, or to exhaust the server."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchid.features.acme.acme_orders import AcmeOrders, OrderState
from orchid.features.acme.server import AcmeServer
from orchid.kernel.credentials.keys import generate
from tests.api.world import Api
from tests.security.test_cluster_records import recorded
from tests.security.test_cluster_records import world as cluster_world
from tests.security.test_revocations import revoked
from tests.unit.features.acme.acme_client import AcmeClient, b64, public
from tests.unit.features.acme.conftest import SECRET, SIGNER, World, issuing_world, prepared
from tests.unit.features.acme.test_acme_accounts import ACCOUNTS, problem
from tests.unit.features.acme.test_orders import identifier_of, policy
from tests.unit.features.acme.test_orders import issued as acme_certificate
from tests.unit.features.beside import MovingClock

NAME = "web-1.example.com"
PAGES = (
    "new-account",
    "new-order",
    "revoke-cert",
    "key-change",
    "account/web/x",
    "order/web/x",
    "order/web/x/finalize",
    "authorization/web/x/0",
    "certificate/web/x",
)


@pytest.fixture
async def issuing(server_files: Path) -> AsyncIterator[World]:
    async with issuing_world(server_files) as world:
        yield world


@pytest.fixture
async def world(server: Api) -> World:
    return await prepared(server)


BODIES = (
    b"",
    b"{}",
    b"\xff",
    b"[" * 60_000,
    b'{"protected":"","payload":"","signature":""}',
    b'{"protected":"e30","payload":"e30","signature":"e30","header":{"kid":"x"}}',
    b'{"payload":"e30","signatures":[]}',
)


async def test_a_malformed_request_is_a_problem_on_every_page(world: World) -> None:
    """400 and a problem document with a new nonce; never an error of the server."""
    client = AcmeClient(world.api)
    for page in PAGES:
        for body in BODIES:
            answer = await client.post(page, raw=body)
            assert problem(answer) == (400, "malformed")
            assert answer.header("replay-nonce")


async def test_an_unfit_method_or_type_is_a_problem(world: World) -> None:
    client = AcmeClient(world.api)
    for page in PAGES:
        read = await world.api.call("GET", f"/acme/servers/{page}", token=None)
        typed = await client.post(page, {}, media="application/json")
        assert problem(read) == (405, "malformed")
        assert problem(typed) == (415, "malformed")
    posted = await client.post("directory", {})
    assert problem(posted) == (405, "malformed")


async def test_an_oversized_body_is_refused(world: World) -> None:
    """Above 64 KiB, before it is parsed."""
    for size in (64 * 1024 + 1, 4 << 20):
        answer = await AcmeClient(world.api).post("new-account", raw=b" " * size)
        assert problem(answer) == (413, "malformed")


def bound(**header: str) -> dict[str, Any]:
    jws = {"protected": b64(header) if header else "", "payload": "", "signature": ""}
    return {"externalAccountBinding": jws}


async def test_an_unfit_payload_creates_no_account(world: World) -> None:
    for payload in (
        [],
        None,
        {"contact": "x"},
        {"contact": [1]},
        {"onlyReturnExisting": "yes"},
        {"externalAccountBinding": []},
        bound(),
        bound(alg="none"),
        bound(alg="HS256"),
        bound(alg="HS256", kid="web.eab"),
    ):
        answer = await AcmeClient(world.api).post("new-account", payload)
        assert problem(answer)[0] == 400

    assert (await world.api.call("GET", ACCOUNTS)).json["items"] == []


async def test_a_nonce_is_good_for_one_request(world: World) -> None:
    """A repeated request is refused, and so is one with a nonce that nobody issued."""
    client = await world.client()
    nonce = await client.fresh_nonce()
    header = {"alg": "ES256", "kid": client.kid, "url": client.kid, "nonce": nonce}
    body = client.signed(header, None)

    first = await client.send(client.kid, body)
    again = await client.send(client.kid, body)
    made_up = await client.post(client.kid, header={"nonce": "A" * 54})

    assert first.status == 200
    assert problem(again) == problem(made_up) == (400, "badNonce")
    assert again.header("replay-nonce")


async def test_a_request_for_another_url_is_refused(world: World) -> None:
    """A signature is for one resource of this server."""
    client = await world.client()

    for url in (client.url("new-order"), client.kid + "?x=1", "https://other.test/acme/x", ""):
        answer = await client.post(client.kid, header={"url": url})
        assert problem(answer) == (403, "unauthorized")


async def test_a_header_has_either_kid_or_jwk(world: World) -> None:
    client = await world.client()

    both = await client.post(client.kid, header={"jwk": public(client.key)})
    neither = await client.post(client.kid, header={"kid": None})
    by_key = await client.post(client.kid, header={"kid": None, "jwk": public(client.key)})
    by_kid = await client.post("new-account", {})

    assert {problem(one) for one in (both, neither, by_key, by_kid)} == {(400, "malformed")}


async def test_nobody_acts_as_somebody_else(world: World) -> None:
    """Another key under the kid of an account, an unknown kid, and the kid of another authority."""
    victim, thief = await world.client(), await world.client()

    stolen = await thief.post(victim.kid, header={"kid": victim.kid})
    unknown = await thief.post(thief.kid, header={"kid": thief.kid + "x"})
    elsewhere = thief.kid.replace("/servers/", "/others/")
    moved = await thief.post(thief.kid, header={"kid": elsewhere})
    shown = await thief.post(victim.kid)

    assert problem(stolen) == (400, "malformed")
    assert problem(unknown) == problem(moved) == (400, "accountDoesNotExist")
    assert problem(shown) == (404, "malformed")


async def test_orders_of_another_account_do_not_exist(world: World) -> None:
    """Neither the order nor its authorizations, its certificate or its request."""
    victim, thief = await world.client(), await world.client()
    order = await victim.order(NAME)
    url = order.header("location") or ""
    certificate = url.replace("/order/", "/certificate/")

    for page in (url, *order.json["authorizations"], certificate):
        assert problem(await thief.post(page)) == (404, "malformed")
    assert problem(await thief.finalize(order, NAME)) == (404, "malformed")
    assert problem(await victim.post(certificate)) == (404, "malformed")


@pytest.mark.parametrize("how", ["expired", "other type", "other secret", "uid", "no key", "gone"])
async def test_an_external_key_must_be_valid(world: World, how: str) -> None:
    """All refusals are the same, so that nobody learns which key exists."""
    client, secret, notes = AcmeClient(world.api), SECRET, {}
    if how == "uid":
        notes = {"orch.io/service-account.uid": "of-an-earlier-account"}
    kid = await world.external_key(hours=-1 if how == "expired" else 1, **notes)
    if how == "other type":
        body = {"metadata": {"name": "plain"}, "stringData": {"key": SECRET.decode()}}
        await world.api.make("/api/v1/namespaces/web/secrets", body)
        kid = "web.plain"
    elif how == "other secret":
        secret = b"x" * 32
    elif how == "no key":
        kid = "web.nothing"
    elif how == "gone":
        await world.api.call("DELETE", "/api/v1/namespaces/web/secrets/eab")

    answer = await client.register(kid, secret)

    assert problem(answer) == (403, "unauthorized")
    assert "unknown, expired or revoked" in answer.json["detail"]


async def test_an_odd_kid_of_a_binding_is_refused(world: World) -> None:
    await world.external_key()

    for kid in ("", ".", "web", "web.", ".eab", "../web.eab", "web/eab", "x" * 9000):
        answer = await AcmeClient(world.api).register(kid, SECRET)
        assert problem(answer)[0] in (400, 403)


async def test_a_binding_is_for_one_key_and_one_url(world: World) -> None:
    """A binding that somebody else sent binds no other key, and none is taken from elsewhere."""
    kid, owner, thief = await world.external_key(), AcmeClient(world.api), AcmeClient(world.api)
    stolen = {"externalAccountBinding": owner.binding(kid, SECRET)}
    elsewhere = {"externalAccountBinding": thief.binding(kid, SECRET, url="https://other.test/")}
    with_nonce = {"externalAccountBinding": thief.binding(kid, SECRET, nonce="x")}

    for body in (stolen, elsewhere, with_nonce):
        assert problem(await thief.post("new-account", body)) == (400, "malformed")
    assert problem(await thief.post("new-account", {})) == (403, "externalAccountRequired")


@pytest.mark.parametrize("end", ["revoked", "deleted", "recreated"])
async def test_an_account_ends_with_its_service_account(
    world: World, clock: MovingClock, end: str
) -> None:
    """Its key and the external key are refused from then on."""
    kid = await world.external_key()
    client = await world.client(kid)
    place = "/api/v1/namespaces/web/serviceaccounts/frontend"
    if end == "revoked":
        await revoked(world.api, "leaked", account={"namespace": "web", "name": "frontend"})
    else:
        await world.api.call("DELETE", place)
        if end == "recreated":
            await world.api.account("frontend", "web")
    await world.api.server.feed.fresh()

    shown, ordered = await client.post(client.kid), await client.order(NAME)
    other = await AcmeClient(world.api).register(kid, SECRET)

    assert problem(shown) == problem(ordered) == problem(other) == (403, "unauthorized")


async def test_a_deleted_account_is_unknown(world: World) -> None:
    client = await world.client()
    name = client.kid.rpartition("/")[2]
    await world.api.call("DELETE", f"{ACCOUNTS}/{name}")
    await world.api.server.feed.fresh()

    assert problem(await client.post(client.kid)) == (400, "accountDoesNotExist")


async def test_a_write_repeated_at_another_process_changes_nothing(world: World) -> None:
    """Each write is idempotent: the memory of nonces is that of one process."""
    client, nonces = await world.client(), world.api.server.context.port(AcmeServer).pages._nonces

    async def twice(page: str, payload: Any, other: AcmeClient | None = None) -> list[Any]:
        sender = other or client
        header = {"alg": sender.key.algorithm, "url": sender.url(page)}
        header["nonce"] = await sender.fresh_nonce()
        who = {"kid": sender.kid} if sender.kid else {"jwk": public(sender.key)}
        body, answers = sender.signed({**header, **who}, payload), []
        for _ in range(2):
            answers.append(await sender.send(sender.url(page), body))
            nonces._new.clear()  # as another process
        return answers

    orders = await twice("new-order", {"identifiers": [{"type": "dns", "value": NAME}]})
    new = AcmeClient(world.api)
    binding = {"externalAccountBinding": new.binding(await world.external_key("n"), SECRET)}
    accounts = await twice("new-account", binding, new)
    old_contact = {"contact": ["mailto:old@example.com"]}
    nonce = await client.fresh_nonce()
    stale = client.signed(
        {"alg": "ES256", "url": client.kid, "kid": client.kid, "nonce": nonce}, old_contact
    )
    world_time = await twice(client.kid, {"contact": ["mailto:new@example.com"]})
    late = await client.send(client.kid, stale)

    assert orders[0].header("location") == orders[1].header("location")
    assert [one.status for one in accounts] == [201, 200]
    assert world_time[0].status == 200
    assert problem(late) == (400, "badNonce")
    assert (await client.post(client.kid)).json["contact"] == ["mailto:new@example.com"]


async def test_the_external_key_is_not_in_errors_metrics_or_objects(world: World) -> None:
    kid = await world.external_key()
    client = await world.client(kid)
    await AcmeClient(world.api).register(kid, b"wrong" * 8)

    stored = await world.api.call("GET", ACCOUNTS)
    metrics = await world.api.call("GET", "/metrics")

    for text in (stored.text, metrics.text, json.dumps(client.kid)):
        assert SECRET.decode() not in text
    assert 'orchid_acme_requests_total{page="new-account",error=""}' in metrics.text


async def test_a_slow_key_is_refused_before_it_is_used(world: World) -> None:
    """An RSA key above 4096 bits, or with a huge exponent, costs nothing."""
    client = AcmeClient(world.api, key=generate())
    for jwk in (
        {"kty": "RSA", "n": "_" * 1366, "e": "AQAB"},
        {"kty": "RSA", "n": "_" * 682, "e": "_" * 682},
    ):
        answer = await client.post("new-account", {}, header={"alg": "RS256", "jwk": jwk})
        assert problem(answer) == (400, "badPublicKey")


async def test_another_order_of_the_same_name_is_not_the_new_one(world: World) -> None:
    """The name follows from the nonce, so that a repetition finds the first order."""
    client = await world.client()
    accounts = (await world.api.call("GET", ACCOUNTS)).json["items"]
    client.nonce = await client.fresh_nonce()
    digest = hashlib.sha256(f"{accounts[0]['metadata']['uid']}\0{client.nonce}".encode())
    body = {
        "metadata": {"name": digest.hexdigest()[:24], "namespace": "web"},
        "spec": {
            "account": accounts[0]["metadata"]["name"],
            "identifiers": [{"type": "dns", "value": "other.example.com"}],
            "expires": "2040-01-01T00:00:00Z",
        },
    }
    await world.api.make("/apis/identity.orch.io/v1alpha1/namespaces/web/acmeorders", body)

    answer = await client.order(NAME)

    assert problem(answer) == (400, "malformed")
    assert "another order has the name" in answer.json["detail"]


async def test_a_record_of_a_cluster_makes_no_order_valid(world: World) -> None:
    """Its API server knows the name of an order, and reports a certificate for it."""
    client = await world.client()
    order = await client.order(NAME)
    name = "acme-" + (order.header("location") or "").rpartition("/")[2]
    _, alice = await cluster_world(world.api)
    answer = await recorded(
        world.api,
        alice.der,
        signerName=SIGNER,
        request={"name": name, "uid": "1", "created": "2026-01-01T00:00:00Z"},
        requester={"username": "system:serviceaccount:web:frontend"},
    )
    assert answer.status == 201, answer.text
    await world.api.server.feed.fresh()

    shown = await client.post(order.header("location") or "")

    assert shown.json["status"] == "ready"


async def test_orders_that_replace_a_certificate_cost_nothing_to_the_next_one(
    issuing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of every one of them was computed, for 4,000 orders in 47 ms."""
    await policy(issuing, "*.example.com")
    client = await issuing.client()
    leaf, _ = await acme_certificate(client, NAME)
    old = identifier_of(leaf)
    states, state = [], AcmeOrders.state

    def counted(*arguments: Any) -> OrderState:
        states.append(arguments)
        return state(*arguments)

    for _ in range(12):
        assert (await client.order(NAME, replaces=old)).status == 201
    monkeypatch.setattr(AcmeOrders, "state", counted)
    last = await client.order(NAME, replaces=old)

    assert last.status == 201
    assert len(states) == 1  # its own, for the answer


async def test_few_orders_replace_the_same_certificate(
    issuing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchid.features.acme.orders.MOST_REPLACING", 2)
    await policy(issuing, "*.example.com")
    client = await issuing.client()
    leaf, _ = await acme_certificate(client, NAME)
    for _ in range(2):
        assert (await client.order(NAME, replaces=identifier_of(leaf))).status == 201

    answer = await client.order(NAME, replaces=identifier_of(leaf))

    assert problem(answer) == (429, "rateLimited")
    assert (await client.order(NAME)).status == 201


async def test_a_certificate_of_another_account_is_not_replaced(issuing: World) -> None:
    """Also of the same authority and name: `replaces` would stop the renewal of its holder."""
    await policy(issuing, "*.example.com")
    victim = await issuing.client()
    leaf, _ = await acme_certificate(victim, NAME)
    issuing.account = await issuing.api.account("other", "web")
    thief = await issuing.client()

    answer = await thief.order(NAME, replaces=identifier_of(leaf))

    assert problem(answer) == (400, "malformed")
    assert "no certificate of this account" in answer.json["detail"]
