"""The attack: to go on with the certificate of a Pod that is gone, or to forge one."""

import datetime
import ssl
from typing import Any

import pytest

from orchid.features.approval.platform_signers import pod_profiles
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.credentials.x509.names import account_subject
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from tests.api.world import Answer, Api
from tests.security.certified import END, cluster_authority
from tests.security.test_revocations import known, revoked
from tests.security.test_revoked_users import allowed, grant
from tests.security.test_waiting_requests import ROBOT, by_account
from tests.unit.kernel.credentials import samples

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REQUESTS = "/apis/certificates.orch.io/v1/namespaces/default/podcertificaterequests"
ISSUED = "/apis/identity.orch.io/v1alpha1/issuedcertificates"
USER = "system:serviceaccount:default:app"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:default")


def shown(chain: bytes) -> Peer:
    der = ssl.PEM_cert_to_DER_cert(chain.decode().partition(END)[0] + END)
    return Peer("127.0.0.1:1", der)


def signed(server: Api, uid: str, name: str = USER) -> bytes:
    """A certificate as the signer of Pods makes it."""
    return cluster_authority(server.server.files.path).sign_for_pod(
        signing_request.parse_der(samples.stub()),
        account_subject(name, GROUPS, uid),
        datetime.timedelta(hours=1),
        profile=pod_profiles(ORCH)[ORCH.pod_client_signer],
        now=datetime.datetime.now(datetime.UTC),
    )


async def a_pod(server: Api) -> tuple[str, str]:
    """The uids of an account and of its Pod."""
    account = await server.account("app")
    spec = {"serviceAccountName": "app", "nodeName": "n1"}
    pod = await server.make(PODS, {"metadata": {"name": "web"}, "spec": spec})
    return account["metadata"]["uid"], pod["metadata"]["uid"]


async def on_record(server: Api) -> tuple[bytes, Peer]:
    """A Pod's certificate, handed out by way of a request."""
    chain = await requested(server)
    answer = await issue(server, chain)
    assert answer.status == 200, answer.text
    await server.server.feed.fresh()
    return chain, shown(chain)


async def requested(server: Api, **how: Any) -> bytes:
    """Request a certificate for a Pod, and make it as its signer would."""
    account, pod = await a_pod(server)
    spec = {
        "signerName": ORCH.pod_client_signer,
        "podName": "web",
        "podUID": pod,
        "serviceAccountName": "app",
        "serviceAccountUID": account,
        "nodeName": "n1",
        "nodeUID": "n",
        "stubPKCS10Request": samples.stub_text(),
    }
    await server.make(REQUESTS, {"metadata": {"name": "req-1"}, "spec": spec}, **how)
    return signed(server, account)


async def issue(server: Api, chain: bytes) -> Answer:
    """Write the certificate into its request."""
    leaf = samples.x509.load_pem_x509_certificate(chain)
    begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc

    def text(moment: datetime.datetime) -> str:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    condition = {"type": "Issued", "status": "True", "reason": "Test"}
    condition["lastTransitionTime"] = text(begins)
    status = {
        "conditions": [condition],
        "certificateChain": chain.decode(),
        "notBefore": text(begins),
        "beginRefreshAt": text(begins + datetime.timedelta(minutes=30)),
        "notAfter": text(ends),
    }
    merge = {"content-type": "application/merge-patch+json"}
    path = f"{REQUESTS}/req-1/status"
    return await server.call("PATCH", path, {"status": status}, headers=merge)


async def test_it_ends_with_the_pod(server: Api) -> None:
    """On the same connection, in the next request."""
    _, peer = await on_record(server)
    before = await known(server, peer=peer)
    await server.call("DELETE", f"{PODS}/web")

    assert (before, await known(server, peer=peer)) == (201, 401)


async def test_it_ends_with_the_account(server: Api) -> None:
    """A new account of the same name is another one."""
    _, peer = await on_record(server)
    await server.call("DELETE", f"{ACCOUNTS}/app")
    gone = await known(server, peer=peer)
    await server.account("app")

    assert (gone, await known(server, peer=peer)) == (401, 401)


async def test_a_new_pod_of_the_same_name_does_not_revive_it(server: Api) -> None:
    """The uid decides."""
    _, peer = await on_record(server)
    await server.call("DELETE", f"{PODS}/web")
    spec = {"serviceAccountName": "app", "nodeName": "n1"}
    await server.make(PODS, {"metadata": {"name": "web"}, "spec": spec})

    assert await known(server, peer=peer) == 401


async def test_it_is_revoked_like_any_other(server: Api) -> None:
    """By its serial number, and with all credentials of its account."""
    chain, peer = await on_record(server)
    serial = f"{samples.x509.load_pem_x509_certificate(chain).serial_number:x}"
    target = {"signerName": ORCH.pod_client_signer, "serialNumber": serial}
    before = await known(server, peer=peer)
    await revoked(server, "r", certificate=target, reason="keyCompromise")

    assert (before, await known(server, peer=peer)) == (201, 401)


async def test_a_revocation_of_the_account_covers_it(server: Api) -> None:
    """Every credential of the account that was issued until then."""
    _, peer = await on_record(server)
    before = await known(server, peer=peer)
    await revoked(server, "r", account={"namespace": "default", "name": "app"})

    assert (before, await known(server, peer=peer)) == (201, 401)


async def test_one_without_a_record_proves_nothing(server: Api) -> None:
    """A certificate signed with the stolen key of the authority is refused."""
    account, _ = await a_pod(server)

    assert await known(server, peer=shown(signed(server, account))) == 401


async def test_who_it_is(server: Api) -> None:
    """The same user as by a token of the account."""
    _, peer = await on_record(server)
    path = "/apis/authentication.orch.io/v1/selfsubjectreviews"
    answer = await server.call("POST", path, {}, token=None, peer=peer)
    user = answer.json["status"]["userInfo"]
    record = (await server.call("GET", ISSUED)).json["items"][-1]["spec"]

    assert user["username"] == USER
    assert set(user["groups"]) == {*GROUPS, "system:authenticated"}
    assert record["pod"]["name"] == "web"


@pytest.mark.parametrize("end", ["token", "key", "account", "another"])
async def test_a_request_for_a_pod_ends_with_the_token_that_sent_it(server: Api, end: str) -> None:
    """Not only nodes request them: users with the right may do so with a token."""
    how, jti = await by_account(server)
    rule = allowed("podcertificaterequests", "create", group=ORCH.certificates)
    await grant(server, "system:serviceaccount:default:robot", rule)
    chain = await requested(server, **how)
    ends: dict[str, dict[str, Any]] = {
        "token": {"token": {"jti": jti, **ROBOT}},
        "key": {"key": {"name": "tokens-1"}},
        "account": {"account": ROBOT},
        "another": {"token": {"jti": "another", **ROBOT}},
    }

    await revoked(server, "stolen", **ends[end])
    answer = await issue(server, chain)

    refused = answer.status == 403 and "RequesterRevoked" in answer.text
    assert refused is (end != "another"), answer.text
    assert answer.status in (200, 403)
