"""Accounts of ACME clients: directory, nonces, external keys, changes."""

from typing import Any

import pytest

from orchid.features.acme.acme_accounts import AcmeAccounts
from orchid.kernel.credentials.keys import generate
from tests.api.world import Answer
from tests.unit.features.acme.acme_client import BASE, AcmeClient, b64, public
from tests.unit.features.acme.conftest import SECRET, World

ACCOUNTS = "/apis/identity.orch.io/v1alpha1/namespaces/web/acmeaccounts"


def problem(answer: Answer) -> tuple[int, str]:
    """The code and the type of a problem document."""
    assert answer.header("content-type") == "application/problem+json", answer.text
    found = answer.json
    assert found["status"] == answer.status
    assert found["detail"]
    return answer.status, found["type"].removeprefix("urn:ietf:params:acme:error:")


async def test_the_directory_needs_no_credentials(world: World) -> None:
    """It names every resource, and says that an external account is required."""
    answer = await world.api.call("GET", "/acme/servers/directory", token=None)

    found = answer.json
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    assert found.pop("meta") == {"externalAccountRequired": True}
    assert found.pop("renewalInfo") == f"{BASE}/renewal-info"
    assert set(found) == {"newNonce", "newAccount", "newOrder", "revokeCert", "keyChange"}
    assert all(url.startswith(f"{BASE}/acme/servers/") for url in found.values())


async def test_an_authority_without_acme_has_no_directory(world: World) -> None:
    place = "/apis/identity.orch.io/v1alpha1/certificateauthorities/servers"
    authority = (await world.api.call("GET", place)).json
    del authority["spec"]["acme"]
    await world.api.call("PUT", place, authority)

    for name in ("servers", "unknown", "a" * 1000):
        answer = await world.api.call("GET", f"/acme/{name}/directory", token=None)
        assert problem(answer) == (404, "malformed")


async def test_a_nonce_comes_by_head_and_get(world: World) -> None:
    """And with every answer to a POST, also with an error."""
    client = AcmeClient(world.api)

    head = await world.api.call("HEAD", "/acme/servers/new-nonce", token=None)
    get = await world.api.call("GET", "/acme/servers/new-nonce", token=None)
    error = await client.post("new-account", {})

    assert (head.status, get.status, error.status) == (200, 204, 403)
    nonces = [answer.header("replay-nonce") for answer in (head, get, error)]
    assert all(nonces)
    assert len(set(nonces)) == 3
    assert head.header("cache-control") == "no-store"
    assert error.header("link") is None or "directory" in (error.header("link") or "")


async def test_an_external_key_creates_an_account_of_its_service_account(world: World) -> None:
    """The object is owned by the service account, and has the identifier of the external key."""
    kid, client = await world.external_key(), AcmeClient(world.api)
    body = {
        "externalAccountBinding": client.binding(kid, SECRET, "HS512"),
        "contact": ["mailto:team@example.com"],
        "termsOfServiceAgreed": True,
    }

    answer = await client.post("new-account", body)

    assert answer.status == 201, answer.text
    assert answer.json == {"status": "valid", "contact": ["mailto:team@example.com"]}
    assert (answer.header("location") or "").startswith(f"{BASE}/acme/servers/account/web/")
    (stored,) = (await world.api.call("GET", ACCOUNTS)).json["items"]
    assert stored["spec"]["serviceAccountName"] == "frontend"
    assert stored["spec"]["externalKey"] == kid
    assert stored["metadata"]["ownerReferences"][0]["uid"] == world.account["metadata"]["uid"]


async def test_three_hashes_bind_an_account(world: World) -> None:
    kid = await world.external_key()
    for algorithm in ("HS256", "HS384", "HS512"):
        client = AcmeClient(world.api)
        bound = {"externalAccountBinding": client.binding(kid, SECRET, algorithm)}
        assert (await client.post("new-account", bound)).status == 201


async def test_the_same_key_finds_its_account_again(world: World) -> None:
    """Without a binding, too; a key without an account gets an error."""
    client = await world.client()
    url, client.kid = client.kid, ""

    again = await client.post("new-account", {"onlyReturnExisting": True})
    once_more = await client.register(await world.external_key("other"), SECRET)
    stranger = await AcmeClient(world.api).post("new-account", {"onlyReturnExisting": True})

    assert (again.status, again.header("location")) == (200, url)
    assert (once_more.status, once_more.header("location")) == (200, url)
    assert problem(stranger) == (400, "accountDoesNotExist")
    assert len((await world.api.call("GET", ACCOUNTS)).json["items"]) == 1


async def test_a_key_that_another_account_has_just_taken_is_in_use(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two requests at once, one creates the account; the other one is for another account."""
    client = await world.client()
    url, client.kid = client.kid, ""
    other = await world.api.account("other", "web")
    mine, theirs = await world.external_key("mine"), "web.theirs"
    world.account = other
    await world.external_key("theirs")
    monkeypatch.setattr(AcmeAccounts, "of_key", lambda *_: None)  # as both requests saw it

    same = await client.register(mine, SECRET)
    client.kid = ""
    refused = await client.register(theirs, SECRET)

    assert (same.status, same.header("location")) == (200, url)
    assert problem(refused)[0] == 409


async def test_contacts_change_and_are_checked(world: World) -> None:
    client = await world.client()

    changed = await client.post(client.kid, {"contact": ["mailto:a@example.com"]})
    shown = await client.post(client.kid)
    bad = await client.post(client.kid, {"contact": ["no contact"]})

    assert changed.json["contact"] == shown.json["contact"] == ["mailto:a@example.com"]
    assert problem(bad) == (400, "invalidContact")


@pytest.mark.parametrize(
    ("contact", "type_"),
    [
        ("mailto:", "invalidContact"),
        ("mailto:team", "invalidContact"),
        ("mailto:a@example.com,b@example.com", "invalidContact"),
        ("mailto:a@example.com?subject=x", "invalidContact"),
        ("mailto:a%2Cb@example.com", "invalidContact"),
        ("MAILTO:a@example.com;b@example.com", "invalidContact"),
        ("tel:+4930", "unsupportedContact"),
        ("https://example.com/a@b", "unsupportedContact"),
    ],
)
async def test_a_contact_is_one_address(world: World, contact: str, type_: str) -> None:
    """RFC 8555, section 7.3; also as the second of two."""
    client = await world.client()

    alone = await client.post(client.kid, {"contact": [contact]})
    second = await client.post(client.kid, {"contact": ["mailto:a@example.com", contact]})

    assert problem(alone) == problem(second) == (400, type_)


async def test_a_deactivated_account_stays_deactivated(world: World) -> None:
    """Its key is refused, and cannot create another account."""
    client = await world.client()

    ended = await client.post(client.kid, {"status": "deactivated"})
    shown = await client.post(client.kid)
    url, client.kid = client.kid, ""
    again = await client.register(await world.external_key("other"), SECRET)

    assert ended.json["status"] == "deactivated"
    assert problem(shown) == problem(again) == (403, "unauthorized")
    assert url


def key_change(
    client: AcmeClient, new: AcmeClient, more: Any = (), **change: Any
) -> dict[str, Any]:
    """The inner JWS of a key change, as a payload."""
    url = client.url("key-change")
    header = {"alg": new.key.algorithm, "jwk": public(new.key), "url": url, **dict(more)}
    payload = {"account": client.kid, "oldKey": public(client.key), **change}
    head, body = b64(header), b64(payload)
    signature = b64(new.key.sign(f"{head}.{body}".encode()))
    return {"protected": head, "payload": body, "signature": signature}


async def test_the_inner_request_of_a_new_key_has_no_nonce(world: World) -> None:
    """RFC 8555, section 7.3.5."""
    client = await world.client()
    new = AcmeClient(world.api, key=generate("EdDSA"), kid=client.kid)

    answer = await client.post("key-change", key_change(client, new, more={"nonce": "x"}))

    assert problem(answer) == (400, "malformed")
    assert "nonce" in answer.text


async def test_a_new_key_replaces_the_old_one(world: World) -> None:
    """The account keeps its URL; the old key signs nothing any more, nor the same change again."""
    client = await world.client()
    new = AcmeClient(world.api, key=generate("EdDSA"), kid=client.kid)

    answer = await client.post("key-change", key_change(client, new))
    old, now = await client.post(client.kid), await new.post(client.kid)
    again = await client.post("key-change", key_change(client, new))

    assert answer.status == 200, answer.text
    assert problem(old) == (400, "badSignatureAlgorithm")
    assert now.status == 200
    assert again.status == 400


async def test_a_key_in_use_is_not_taken(world: World) -> None:
    """The answer is 409 and has the URL of its account."""
    client, other = await world.client(), await world.client()

    answer = await client.post("key-change", key_change(client, other))

    assert problem(answer) == (409, "malformed")
    assert answer.header("location") == other.kid


async def test_a_key_change_must_be_for_this_account(world: World) -> None:
    client, other = await world.client(), await world.client()
    new = AcmeClient(world.api)

    foreign = await client.post("key-change", key_change(client, new, account=other.kid))
    wrong = await client.post("key-change", key_change(client, new, oldKey=public(other.key)))

    assert problem(foreign) == problem(wrong) == (400, "malformed")
