"""Orders: from names to a certificate, by policy or by a person."""

import asyncio
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.acme.kinds.acme_order import AcmeOrder
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.renewal_information import certificate_id
from orchid.kernel.credentials.keys import TokenKey
from orchid.kernel.wire.naming import ORCH
from tests.api.world import Answer
from tests.unit.features.acme.acme_client import AcmeClient, b64, request_for
from tests.unit.features.acme.conftest import SIGNER, World
from tests.unit.features.acme.test_acme_accounts import problem

REQUESTS = f"/apis/{ORCH.certificates}/v1/certificatesigningrequests"
POLICIES = "/apis/identity.orch.io/v1alpha1/approvalpolicies"
ISSUED = "/apis/identity.orch.io/v1alpha1/issuedcertificates"
NAME = "web-1.example.com"


async def policy(world: World, *names: str, **spec: Any) -> None:
    """A policy that approves these names for the account, and denies others."""
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "signerNames": [SIGNER],
            "allows": {
                "dnsNames": list(names),
                "commonName": "*",
                "usages": ["digital signature", "key encipherment", "server auth"],
                "keys": ["ECDSA-P256"],
                "maxDuration": "2160h",
            },
            "otherwise": "deny",
            **spec,
        },
    }
    await world.api.make(POLICIES, body)
    rule = {
        "apiGroups": ["identity.orch.io"],
        "resources": ["approvalpolicies"],
        "resourceNames": ["web"],
        "verbs": ["use"],
    }
    rbac = f"/apis/{ORCH.rbac}/v1"
    await world.api.make(f"{rbac}/clusterroles", {"metadata": {"name": "use"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "use"},
        "roleRef": {"kind": "ClusterRole", "name": "use", "apiGroup": ORCH.rbac},
        "subjects": [{"kind": "ServiceAccount", "name": "frontend", "namespace": "web"}],
    }
    await world.api.make(f"{rbac}/clusterrolebindings", binding)


async def approve(world: World, order: Answer) -> None:
    name = "acme-" + (order.header("location") or "").rpartition("/")[2]
    found = await world.beside.admin.get(CertificateSigningRequest, name)
    await world.beside.approve(found)


async def settled(client: AcmeClient, order: Answer) -> Answer:
    """Poll an order until it is no longer processing."""
    async with asyncio.timeout(20):
        while True:
            found = await client.post(order.header("location") or "")
            if found.json["status"] != "processing":
                return found
            assert int(found.header("retry-after") or 0) >= 3
            await asyncio.sleep(0.01)


async def issued(client: AcmeClient, *names: str, **more: Any) -> list[x509.Certificate]:
    """Order, finalize and fetch a certificate that a policy approves."""
    order = await client.order(*names, **more)
    assert order.status == 201, order.text
    await client.finalize(order, *names)
    done = await settled(client, order)
    assert done.json["status"] == "valid", done.text
    answer = await client.post(done.json["certificate"])
    assert answer.header("content-type") == "application/pem-certificate-chain"
    return x509.load_pem_x509_certificates(answer.body)


async def test_a_policy_approves_and_the_client_fetches_its_certificate(issuing: World) -> None:
    """Every authorization is valid and has no challenges; the chain has the authority, too."""
    await policy(issuing, "*.example.com")
    client = await issuing.client()

    order = await client.order(NAME, "WEB-2.example.com")
    authorization = await client.post(order.json["authorizations"][1])
    finalized = await client.finalize(order, NAME, "web-2.example.com", common_name=NAME)
    done = await settled(client, order)
    answer = await client.post(done.json["certificate"])

    assert (order.status, order.json["status"]) == (201, "ready")
    assert authorization.json["status"] == "valid"
    assert authorization.json["challenges"] == []
    assert authorization.json["identifier"] == {"type": "dns", "value": "web-2.example.com"}
    assert finalized.json["status"] in ("processing", "valid")
    leaf, authority = x509.load_pem_x509_certificates(answer.body)
    leaf.verify_directly_issued_by(authority)
    (record,) = (await issuing.api.call("GET", ISSUED)).json["items"]
    assert record["spec"]["requester"]["username"] == "system:serviceaccount:web:frontend"
    stored = await issuing.beside.admin.get(
        AcmeOrder, (order.header("location") or "").rpartition("/")[2], "web"
    )
    assert stored.status.fetched is not None


async def test_the_reason_of_a_policy_is_the_error_of_the_order(issuing: World) -> None:
    await policy(issuing, "*.example.com")
    client = await issuing.client()

    order = await client.order("web.example.org")
    await client.finalize(order, "web.example.org")
    done = await settled(client, order)
    again = await client.finalize(order, "web.example.org")

    assert done.json["status"] == "invalid"
    assert done.json["error"]["type"] == "urn:ietf:params:acme:error:unauthorized"
    assert "web.example.org" in done.json["error"]["detail"]
    assert problem(again) == (403, "orderNotReady")


async def test_an_account_without_the_right_gets_the_refusal(issuing: World) -> None:
    """The request is created as the service account, with its permissions."""
    client = await issuing.client()
    await issuing.api.call("DELETE", f"/apis/{ORCH.rbac}/v1/clusterrolebindings/frontend")
    await issuing.api.server.feed.fresh()

    order = await client.order(NAME)
    answer = await client.finalize(order, NAME)

    assert problem(answer) == (403, "unauthorized")
    assert "certificatesigningrequests" in answer.json["detail"]


async def test_a_person_approves_while_the_client_waits(issuing: World) -> None:
    """The client sees processing until then."""
    client = await issuing.client()
    order = await client.order(NAME)

    waiting = await client.finalize(order, NAME)
    await approve(issuing, order)
    done = await settled(client, order)

    assert (waiting.json["status"], waiting.header("retry-after")) == ("processing", "3")
    assert done.json["status"] == "valid"


async def test_an_approval_is_kept_for_a_client_that_left(issuing: World) -> None:
    """Its next order gets a certificate without another approval; only that one is live."""
    client = await issuing.client()
    first = await client.order(NAME)
    await client.finalize(first, NAME)
    await approve(issuing, first)
    await settled(client, first)

    (leaf, _) = await issued(client, NAME)
    name = f"acme-{(first.header('location') or '').rpartition('/')[2]}"
    async with asyncio.timeout(20):
        while not await superseded(issuing):  # noqa: ASYNC110 -- asked as any client would
            await asyncio.sleep(0.01)

    second = await issuing.api.call("GET", REQUESTS)
    (kept,) = [one for one in second.json["items"] if one["metadata"]["name"] != name]
    condition = kept["status"]["conditions"][0]
    assert condition["reason"] == "ApprovalKept"
    assert name in condition["message"]
    assert "admin" in condition["message"]
    assert f"{leaf.serial_number:x}" not in await superseded(issuing)
    third = await client.order(NAME)
    assert (await client.finalize(third, NAME)).json["status"] == "processing"


async def superseded(world: World) -> list[str]:
    place = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
    found = (await world.api.call("GET", place)).json["items"]
    return [one["spec"]["certificate"]["serialNumber"] for one in found]


async def test_a_newer_request_replaces_an_undecided_one(issuing: World) -> None:
    client = await issuing.client()
    orders = [await client.order(NAME) for _ in range(2)]
    other = await client.order("other.example.com")
    await client.finalize(other, "other.example.com")
    for order in orders:
        await client.finalize(order, NAME)

    old = f"acme-{(orders[0].header('location') or '').rpartition('/')[2]}"
    await issuing.beside.until_gone(CertificateSigningRequest, old)

    left = (await issuing.api.call("GET", REQUESTS)).json["items"]
    assert len(left) == 2


async def test_the_same_request_again_gets_the_same_answer(issuing: World) -> None:
    """Another one does not: an order leads to one certificate."""
    client = await issuing.client()
    order = await client.order(NAME)
    csr = {"csr": b64(request_for(NAME))}

    first = await client.post(order.json["finalize"], csr)
    again = await client.post(order.json["finalize"], csr)
    other = await client.finalize(order, NAME)

    assert first.json == again.json
    assert problem(other) == (403, "orderNotReady")
    assert len((await issuing.api.call("GET", REQUESTS)).json["items"]) == 1


async def test_a_request_must_have_the_names_of_the_order(world: World) -> None:
    client = await world.client()
    order = await client.order(NAME)

    for names, common_name in (
        (("other.example.com",), ""),
        ((NAME, "more.example.com"), ""),
        ((NAME,), "x.example.com"),
    ):
        answer = await client.finalize(order, *names, common_name=common_name)
        assert problem(answer) == (400, "badCSR")


UNFIT: list[tuple[Any, str]] = [
    ([], "malformed"),
    ([{"type": "dns", "value": "*.example.com"}], "rejectedIdentifier"),
    ([{"type": "dns", "value": "a..b"}], "rejectedIdentifier"),
    ([{"type": "dns", "value": "127.0.0.1"}], "rejectedIdentifier"),
    ([{"type": "ip", "value": "example.com"}], "malformed"),
    ([{"type": "email", "value": "a@example.com"}], "unsupportedIdentifier"),
    ([{"type": "dns", "value": "x" * 5000}], "malformed"),
    ([{"type": "dns", "value": f"n{i}.example.com"} for i in range(101)], "malformed"),
    ("x", "malformed"),
    ([{"type": "dns"}], "malformed"),
    ([{"type": "ip", "value": "fe80::1%eth0"}], "malformed"),
]


async def test_names_of_an_order_are_checked(world: World) -> None:
    client = await world.client()

    for identifiers, type_ in UNFIT:
        answer = await client.post("new-order", {"identifiers": identifiers})
        assert problem(answer) == (400, type_)


async def test_an_address_is_a_name_too(world: World) -> None:
    client = await world.client()

    answer = await client.post(
        "new-order", {"identifiers": [{"type": "ip", "value": "2001:DB8:0::1"}]}
    )

    assert answer.json["identifiers"] == [{"type": "ip", "value": "2001:db8::1"}]


async def test_times_of_an_order_are_checked(world: World) -> None:
    client = await world.client()

    begins = await client.order(NAME, notBefore="2030-01-01T00:00:00Z")
    past = await client.order(NAME, notAfter="2020-01-01T00:00:00Z")
    no_zone = await client.order(NAME, notAfter="2040-01-01T00:00:00")
    late = await client.order(NAME, notAfter="2110-01-01T00:00:00Z")
    beyond = await client.order(NAME, notAfter="9999-12-31T23:59:59-23:00")
    good = await client.order(NAME, notAfter="2040-01-01T00:00:00Z")

    for answer in (begins, past, no_zone, late, beyond):
        assert problem(answer) == (400, "malformed")
    assert good.json["notAfter"] == "2040-01-01T00:00:00Z"


async def test_an_account_creates_twenty_orders_a_minute(world: World) -> None:
    client = await world.client()
    for _ in range(20):
        assert (await client.order(NAME)).status == 201

    answer = await client.order(NAME)

    assert problem(answer) == (429, "rateLimited")
    assert answer.header("retry-after") == "60"


def identifier_of(certificate: x509.Certificate) -> str:
    key = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    number = certificate.serial_number
    serial = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return certificate_id(key.key_identifier or b"", serial)


async def test_an_order_replaces_a_certificate_once(issuing: World) -> None:
    """Only a valid order counts, and only for a certificate of the same account and name."""
    await policy(issuing, "*.example.com")
    client = await issuing.client()
    leaf, _ = await issued(client, NAME)
    old = identifier_of(leaf)

    unused = await client.order(NAME, replaces=old)
    new, _ = await issued(client, NAME, replaces=old)
    again = await client.order(NAME, replaces=old)
    other = await client.order("other.example.com", replaces=identifier_of(new))
    unknown = await client.order(NAME, replaces="AAAA.AAAA")
    malformed = await client.order(NAME, replaces="no identifier")

    assert (unused.status, unused.json["replaces"]) == (201, old)
    assert problem(again) == (409, "alreadyReplaced")
    assert problem(other) == problem(unknown) == problem(malformed) == (400, "malformed")


async def test_the_requester_and_the_key_revoke_a_certificate(issuing: World) -> None:
    """The account that got it, or the certificate's own key; once is enough."""
    await policy(issuing, "*.example.com")
    client, stranger = await issuing.client(), AcmeClient(issuing.api)
    key = ec.generate_private_key(ec.SECP256R1())
    leaf, _ = await issued(client, NAME)
    order = await client.order(NAME)
    await client.post(order.json["finalize"], {"csr": b64(request_for(NAME, key=key))})
    done = await settled(client, order)
    mine = x509.load_pem_x509_certificates((await client.post(done.json["certificate"])).body)[0]

    holder = AcmeClient(issuing.api, key=TokenKey(key))
    theirs, own = ({"certificate": b64(one.public_bytes(Encoding.DER))} for one in (leaf, mine))

    refused = await stranger.post("revoke-cert", theirs)
    bad = await client.post("revoke-cert", {**theirs, "reason": 6})
    revoked = await client.post("revoke-cert", {**theirs, "reason": 4})
    again = await client.post("revoke-cert", {**theirs, "reason": 4})
    by_key = await holder.post("revoke-cert", {**own, "reason": 1})
    nothing = await client.post("revoke-cert", {"certificate": b64(b"nothing")})

    assert problem(refused) == (403, "unauthorized")
    assert problem(bad) == (400, "badRevocationReason")
    assert (revoked.status, revoked.body) == (200, b"")
    assert problem(again) == (400, "alreadyRevoked")
    assert (by_key.status, by_key.text) == (200, "")
    assert problem(nothing) == (400, "malformed")
    assert len(await superseded(issuing)) == 2
    renewal = await issuing.api.call("GET", f"/renewal-info/{identifier_of(leaf)}", token=None)
    assert renewal.json["suggestedWindow"]["end"] < leaf.not_valid_before_utc.isoformat()


async def test_a_certificate_is_still_there_after_its_request_was_deleted(issuing: World) -> None:
    await policy(issuing, "*.example.com")
    client = await issuing.client()
    order = await client.order(NAME)
    await client.finalize(order, NAME)
    done = await settled(client, order)
    before = await client.post(done.json["certificate"])
    name = f"acme-{(order.header('location') or '').rpartition('/')[2]}"
    await issuing.api.call("DELETE", f"{REQUESTS}/{name}")

    after = await client.post(done.json["certificate"])

    assert after.body == before.body
    assert (await client.post(order.header("location") or "")).json["status"] == "valid"


async def test_the_key_of_the_account_gets_no_certificate(world: World) -> None:
    """Who steals the key of a certificate would have the account, too."""
    private = ec.generate_private_key(ec.SECP256R1())
    client = await world.client(key=TokenKey(private))
    order = await client.order(NAME)

    answer = await client.finalize(order, NAME, key=private)

    assert problem(answer) == (400, "badCSR")
    assert "key of the account" in answer.text
