"""The attack: request a certificate with a stolen credential, which is approved after its end.

What is issued after a revocation is newer than the revocation, so nothing else would cover it.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.wire.naming import ORCH
from tests.api.world import ALICE, BOB, Answer, Api
from tests.security.certified import Certified, cluster_authority, issued
from tests.security.test_revocations import REQUESTS, jti_of, revoked
from tests.security.test_revoked_users import allowed, grant
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.credentials import samples

ROBOT = {"namespace": "default", "name": "robot"}
CORE = "/api/v1/namespaces/default"
POD = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "robot"}
APPROVED = {"type": "Approved", "status": "True", "reason": "Test"}
SINCE = "since the request was created: it has to be requested again"

KEYS = f"/apis/{ORCH.identity}/v1beta1/signingkeys"

End = Callable[[Api], Awaitable[Any]]


def body(name: str, key: ec.EllipticCurvePrivateKey, **spec: Any) -> dict[str, Any]:
    """A request for a certificate that names somebody else than its requester."""
    request = base64.b64encode(samples.request("db.example.com", key=key)).decode()
    usual = {"signerName": ORCH.client_signer, "usages": ["client auth"]}
    return {"metadata": {"name": name}, "spec": {"request": request, **usual, **spec}}


async def waiting(server: Api, name: str, **how: Any) -> Certified:
    """A request that waits for its approval, and the certificate that a signer made for it."""
    certified = issued(cluster_authority(server.server.files.path), "db.example.com")
    key = serialization.load_pem_private_key(certified.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    await server.make(REQUESTS, body(name, key), **how)
    return certified


async def approve(server: Api, name: str, type_: str = "Approved") -> Answer:
    found = (await server.call("GET", f"{REQUESTS}/{name}")).json
    found["status"] = {"conditions": [{**APPROVED, "type": type_}]}
    return await server.call("PUT", f"{REQUESTS}/{name}/approval", found)


async def sign(server: Api, name: str, certified: Certified) -> Answer:
    found = (await server.call("GET", f"{REQUESTS}/{name}")).json
    found["status"]["certificate"] = base64.b64encode(certified.chain).decode()
    return await server.call("PUT", f"{REQUESTS}/{name}/status", found)


async def may_request(server: Api, user: str) -> None:
    await grant(
        server, user, allowed("certificatesigningrequests", "create", group=ORCH.certificates)
    )


async def by_account(server: Api, *, bound: bool = False) -> tuple[dict[str, Any], str]:
    """The token of an account that may send requests, and its id."""
    await server.account("robot")
    rule = allowed("certificatesigningrequests", "create", group=ORCH.certificates)
    rbac = f"/apis/{ORCH.rbac}/v1"
    role = {"metadata": {"name": "requesters"}, "rules": [rule]}
    await server.make(f"{rbac}/clusterroles", role)
    subject = {"kind": "ServiceAccount", **ROBOT}
    reference = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "requesters"}
    binding = {"metadata": {"name": "requesters"}, "subjects": [subject], "roleRef": reference}
    await server.make(f"{rbac}/clusterrolebindings", binding)
    spec: dict[str, Any] = {}
    if bound:
        await server.make(f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": POD})
        spec = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}
    token = await server.token("robot", **spec)
    return {"token": token}, jti_of(token)


def revoking(**spec: Any) -> End:
    return lambda server: revoked(server, "stolen", **spec)


def deleting(path: str) -> End:
    return lambda server: server.call("DELETE", f"{CORE}/{path}?gracePeriodSeconds=0")


ENDS = ("account", "token", "token without its account", "gone", "Pod", "key")


@pytest.mark.parametrize("end", ENDS)
async def test_a_request_of_an_account_ends_with_what_sent_it(
    server: Api, clock: MovingClock, end: str
) -> None:
    """Before its approval, and between approval and certificate; a later request is for a new
    credential. It can still be denied.
    """
    how, jti = await by_account(server, bound=end == "Pod")
    ends = {
        "account": revoking(account=ROBOT),
        "token": revoking(token={"jti": jti, **ROBOT}),
        "token without its account": revoking(token={"jti": jti}),
        "gone": deleting("serviceaccounts/robot"),
        "Pod": deleting("pods/p"),
        "key": revoking(key={"name": "tokens-1"}),
    }
    await server.make(KEYS, {"metadata": {"name": "tokens-2"}, "spec": {"algorithm": "ES256"}})
    before = await waiting(server, "before", **how)
    assert (await approve(server, "before")).status == 200
    assert (await sign(server, "before", before)).status == 200
    await waiting(server, "undecided", **how)
    approved = await waiting(server, "approved", **how)
    assert (await approve(server, "approved")).status == 200

    await ends[end](server)
    clock.ahead += timedelta(seconds=2)

    refused = await approve(server, "undecided"), await sign(server, "approved", approved)
    assert [answer.status for answer in refused] == [403, 403], [one.text for one in refused]
    assert all(SINCE in answer.json["message"] for answer in refused)
    assert refused[0].json["details"]["causes"][0]["reason"] == "RequesterRevoked"
    assert (await approve(server, "undecided", "Denied")).status == 200
    if end in ("account", "token", "key"):
        again = {"token": await server.token("robot")}
        certified = await waiting(server, "again", **again)
        assert (await approve(server, "again")).status == 200
        assert (await sign(server, "again", certified)).status == 200


async def test_a_request_of_a_user_ends_with_the_user(server: Api, clock: MovingClock) -> None:
    """Those of others go on, and those that wait are valid again if the user may come back."""
    for user, token in (("alice", ALICE), ("bob", BOB)):
        await may_request(server, user)
        await waiting(server, user, token=token)

    await revoked(server, "stolen", user={"username": "alice"})
    refused, other = await approve(server, "alice"), await approve(server, "bob")
    await server.call("DELETE", "/apis/identity.orch.io/v1alpha1/credentialrevocations/stolen")

    assert (refused.status, other.status) == (403, 200)
    assert (await approve(server, "alice")).status == 200


async def test_a_request_ends_with_the_certificate_that_sent_it(
    server: Api, clock: MovingClock
) -> None:
    """Another certificate of the same user is not affected."""
    await may_request(server, "jane")
    authority = cluster_authority(server.server.files.path)
    stolen, other = issued(authority, "jane"), issued(authority, "jane")
    for name, certified in (("stolen", stolen), ("other", other)):
        await waiting(server, name, peer=certified.peer, token=None)
    fingerprint = hashlib.sha256(stolen.der).hexdigest()

    await revoked(server, "lost", certificate={"sha256": fingerprint}, reason="keyCompromise")

    assert (await approve(server, "stolen")).status == 403
    assert (await approve(server, "other")).status == 200


async def test_a_request_by_impersonation_ends_with_the_impersonator(
    server: Api, clock: MovingClock
) -> None:
    """It was their credential that sent it."""
    await may_request(server, "alice")
    await grant(server, "bob", allowed("users", "impersonate", names=("alice",)))
    await waiting(server, "asked", token=BOB, headers={"impersonate-user": "alice"})

    await revoked(server, "stolen", user={"username": "bob"})

    assert (await approve(server, "asked")).status == 403


@pytest.mark.parametrize("end", ["token", "key"])
async def test_a_request_by_impersonation_ends_with_the_token_that_sent_it(
    server: Api, clock: MovingClock, end: str
) -> None:
    """The token of the impersonator, and the key that signed it; the requester goes on."""
    how, jti = await by_account(server)
    await may_request(server, "alice")
    robot = "system:serviceaccount:default:robot"
    await grant(server, robot, allowed("users", "impersonate", names=("alice",)))
    await waiting(server, "asked", **how, headers={"impersonate-user": "alice"})
    await waiting(server, "own", token=ALICE)

    ends = {"token": {"token": {"jti": jti, **ROBOT}}, "key": {"key": {"name": "tokens-1"}}}
    await revoked(server, "stolen", **ends[end])

    assert (await approve(server, "asked")).status == 403
    assert (await approve(server, "own")).status == 200
