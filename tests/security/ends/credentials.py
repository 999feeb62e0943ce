"""How each credential of the table is obtained, and how it ends in each of its ways."""

import base64
import hashlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.wire.naming import ORCH
from tests.api import clusters
from tests.api.world import BOB
from tests.e2e.outside_issuer import AUDIENCE
from tests.security.certified import END, Certified, issued
from tests.security.ends.stage import CORE, ISSUER, KNOWN, NAMESPACE, Browser, Stage
from tests.security.ends.table import (
    ACCOUNT,
    BOUND,
    DEACTIVATED,
    DELETED,
    ITSELF,
    LIST,
    ORDER,
    ORIGIN,
    PERSON,
    POLICY,
    PROXY,
    REGISTRATION,
    SIGNER,
    USER,
    WEBHOOK,
    End,
)
from tests.security.ends.uses import (
    Action,
    Held,
    approve,
    certificate_of,
    signing_request,
    until,
)
from tests.security.exchanging import POLICIES, exchange, make_policy
from tests.security.signing_in import CLIENT, SESSIONS
from tests.security.test_revocations import REQUESTS, jti_of, revoked
from tests.unit.features.acme.acme_client import AcmeClient
from tests.unit.features.acme.conftest import KEY_TYPE, SECRET
from tests.unit.kernel.credentials import samples

POD = {"containers": [{"name": "c", "image": "i"}]}
ACCOUNTS = "system:serviceaccount"
SYSTEM = f"/api/v1/namespaces/{ORCH.system_namespace}/secrets"
POD_REQUESTS = f"/apis/{ORCH.certificates}/v1/namespaces/{NAMESPACE}/podcertificaterequests"
HOST_USAGES = ("digital signature", "client auth")
Maker = Callable[[Stage], Awaitable[Held]]


# -- ends ------------------------------------------------------------------------------------


def revoking(stage: Stage, **spec: Any) -> Action:
    return lambda: revoked(stage, stage.name(), **spec)


def deleting(stage: Stage, path: str) -> Action:
    async def delete() -> None:
        answer = await stage.call("DELETE", f"{path}?gracePeriodSeconds=0")
        assert answer.status in (200, 202), answer.text

    return delete


def of_account(stage: Stage, name: str, token: str = "") -> dict[End, Action]:
    """The ends of a credential of an account; with a token also those of the token."""
    account = {"namespace": NAMESPACE, "name": name}
    ends = {
        ACCOUNT: revoking(stage, account=account),
        DELETED: deleting(stage, f"{CORE}/serviceaccounts/{name}"),
    }
    if token:
        ends[ITSELF] = revoking(stage, token={"jti": jti_of(token), **account})
    return ends


def of_certificate(stage: Stage, chain: bytes, signer: str) -> dict[End, Action]:
    return {
        ITSELF: revoking(stage, certificate={"sha256": fingerprint(chain)}),
        SIGNER: revoking(stage, authority={"signerName": signer}),
    }


def fingerprint(chain: bytes) -> str:
    leaf = chain.decode().partition(END)[0] + END
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(leaf)).hexdigest()


# -- tokens of accounts ----------------------------------------------------------------------


async def account_token(stage: Stage) -> Held:
    name = stage.name()
    await stage.account(name, NAMESPACE)
    token = await stage.token(name, NAMESPACE)
    return Held(of_account(stage, name, token), token)


def bound(kind: str, place: str = CORE, **body: Any) -> Maker:
    """A token that is bound to an object."""

    async def make(stage: Stage) -> Held:
        name, path = stage.name(), f"{place}/{kind.lower()}s"
        await stage.account(name, NAMESPACE)
        filled = {key: {**value, "serviceAccountName": name} for key, value in body.items()}
        await stage.make(path, {"metadata": {"name": name}, **filled})
        reference = {"kind": kind, "apiVersion": "v1", "name": name}
        token = await stage.token(name, NAMESPACE, boundObjectRef=reference)
        ends = of_account(stage, name, token)
        ends[BOUND] = deleting(stage, f"{path}/{name}")
        return Held(ends, token)

    return make


async def secret_token(stage: Stage) -> Held:
    name, path = stage.name(), f"{CORE}/secrets"
    await stage.account(name, NAMESPACE)
    meta = {"name": name, "annotations": {ORCH.account_name_annotation: name}}
    await stage.make(path, {"metadata": meta, "type": ORCH.token_secret_type})
    token = ""

    async def is_filled() -> bool:
        nonlocal token
        data = (await stage.call("GET", f"{path}/{name}")).json.get("data") or {}
        token = base64.b64decode(data.get("token", "")).decode()
        return bool(token)

    assert await until(is_filled)
    return Held({**of_account(stage, name), BOUND: deleting(stage, f"{path}/{name}")}, token)


async def exchanged_token(stage: Stage) -> Held:
    """A token of an account that a person or a job got for a token of their issuer."""
    name, job = stage.name(), stage.name()
    await stage.account(name, NAMESPACE, annotations={"identity.orch.io/token-exchange": "outside"})
    await make_policy(
        stage,
        stage.provider,
        name,
        NAMESPACE,
        claims={"sub": job},
        account=name,
        audiences=[ISSUER],
    )
    outside = stage.provider.token(sub=job)
    answer = await exchange(stage, outside, account=f"{NAMESPACE}/{name}")
    assert answer.status == 200, answer.text
    token = answer.json["access_token"]
    return Held(
        {
            **of_account(stage, name, token),
            ORIGIN: revoking(stage, token={"jti": jti_of(outside), "issuer": stage.provider.url}),
            PERSON: revoking(stage, user={"username": f"oidc:{job}"}),
            POLICY: deleting(stage, f"{POLICIES.format(NAMESPACE)}/{name}"),
        },
        token,
    )


# -- certificates ----------------------------------------------------------------------------


async def signed(
    stage: Stage, name: str, user: str, *groups: str, **more: Any
) -> tuple[Certified, bytes]:
    """A client certificate, by a request that the administrator approves."""
    key = ec.generate_private_key(ec.SECP256R1())
    await stage.make(REQUESTS, signing_request(name, user, *groups, key=key, **more))
    answer = await approve(stage, name)
    assert answer.status in (200, 409), answer.text  # 409: the server was faster, for a host
    chain = await certificate_of(stage, f"{REQUESTS}/{name}")
    return Certified(chain, private(key)), chain


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


async def client_certificate(stage: Stage) -> Held:
    name = stage.name()
    certified, _ = await signed(stage, name, name)
    return Held(
        {
            ITSELF: revoking(stage, certificate={"requestName": name}),
            USER: revoking(stage, user={"username": name}),
            SIGNER: revoking(stage, authority={"signerName": ORCH.client_signer}),
        },
        identity=stage.identity(name, certified),
    )


async def account_certificate(stage: Stage) -> Held:
    name = stage.name()
    await stage.account(name, NAMESPACE)
    certified, chain = await signed(stage, name, f"{ACCOUNTS}:{NAMESPACE}:{name}")
    ends = {**of_account(stage, name), **of_certificate(stage, chain, ORCH.client_signer)}
    return Held(ends, identity=stage.identity(name, certified))


async def host_certificate(stage: Stage) -> Held:
    name, nodes = stage.name(), "/api/v1/nodes"
    user = f"system:node:{name}"
    await stage.make(nodes, {"metadata": {"name": name}})
    more = {"signer": ORCH.node_client_signer, "usages": HOST_USAGES}
    certified, chain = await signed(stage, name, user, "system:nodes", **more)
    ends = {
        **of_certificate(stage, chain, ORCH.node_client_signer),
        USER: revoking(stage, user={"username": user}),
        BOUND: deleting(stage, f"{nodes}/{name}"),
    }
    return Held(ends, identity=stage.identity(name, certified), user=user)


async def pod_certificate(stage: Stage) -> Held:
    name, key = stage.name(), ec.generate_private_key(ec.SECP256R1())
    account = await stage.account(name, NAMESPACE)
    node = await stage.make("/api/v1/nodes", {"metadata": {"name": name}})
    spec = {**POD, "serviceAccountName": name, "nodeName": name}
    pod = await stage.make(f"{CORE}/pods", {"metadata": {"name": name}, "spec": spec})
    spec = {
        "signerName": ORCH.pod_client_signer,
        "podName": name,
        "podUID": pod["metadata"]["uid"],
        "serviceAccountName": name,
        "serviceAccountUID": account["metadata"]["uid"],
        "nodeName": name,
        "nodeUID": node["metadata"]["uid"],
        "maxExpirationSeconds": 86400,
        "stubPKCS10Request": samples.stub_text(key),
    }
    await stage.make(POD_REQUESTS, {"metadata": {"name": name}, "spec": spec})
    chain = await certificate_of(stage, f"{POD_REQUESTS}/{name}", "certificateChain")
    ends = {
        **of_account(stage, name),
        **of_certificate(stage, chain, ORCH.pod_client_signer),
        BOUND: deleting(stage, f"{CORE}/pods/{name}"),
    }
    return Held(ends, identity=stage.identity(name, Certified(chain, private(key))))


async def svid(stage: Stage) -> Held:
    """It is for other programs, which read the revocation list."""
    name, signer = stage.name(), "example.com/mesh"
    await stage.account(name, NAMESPACE)
    token = await stage.token(name, NAMESPACE)
    uri = x509.UniformResourceIdentifier(f"spiffe://example.org/ns/{NAMESPACE}/sa/{name}")
    usages = ("digital signature", "client auth", "server auth")
    more: dict[str, Any] = {"signer": signer, "usages": usages, "alternative_names": (uri,)}
    await stage.make(REQUESTS, signing_request(name, "", **more), token=token)
    chain = await certificate_of(stage, f"{REQUESTS}/{name}")
    serial = x509.load_pem_x509_certificate(chain).serial_number

    async def is_unlisted() -> bool:
        answer = await stage.call("GET", "/crl/mesh.crl", token=None)
        if answer.status != 200:
            return True
        found = x509.load_der_x509_crl(answer.body)
        return found.get_revoked_certificate_by_serial_number(serial) is None

    ends = {**of_certificate(stage, chain, signer), ACCOUNT: of_account(stage, name)[ACCOUNT]}
    return Held(ends, uses={LIST: is_unlisted})


# -- people and other users ------------------------------------------------------------------


async def join_token(stage: Stage) -> Held:
    number = f"{stage.name():0>6}"[-6:]
    name, secret = f"bootstrap-token-{number}", "0123456789abcdef"
    data = {
        "token-id": number,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:hosts",
        "expiration": "2100-01-01T00:00:00Z",
    }
    body = {"metadata": {"name": name}, "type": ORCH.bootstrap_token_type, "stringData": data}
    await stage.make(SYSTEM, body)
    ends = {
        USER: revoking(stage, user={"username": f"system:bootstrap:{number}"}),
        BOUND: deleting(stage, f"{SYSTEM}/{name}"),
    }
    return Held(ends, f"{number}.{secret}")


async def id_token(stage: Stage) -> Held:
    user = stage.name()
    claims, audiences = {"sub": user}, ["https://vault.example"]
    await make_policy(
        stage,
        stage.provider,
        user,
        NAMESPACE,
        claims=claims,
        account="deployer",
        audiences=audiences,
    )
    token = stage.provider.token(sub=user, aud=[CLIENT, AUDIENCE])
    ends = {
        ITSELF: revoking(stage, token={"jti": jti_of(token), "issuer": stage.provider.url}),
        USER: revoking(stage, user={"username": f"oidc:{user}"}),
    }
    return Held(ends, token)


async def console_session(stage: Stage) -> Held:
    user = stage.name()
    browser = Browser(stage, user)
    found = (await stage.call("GET", SESSIONS)).json["items"]
    [name] = [one["metadata"]["name"] for one in found if one["spec"]["username"] == f"oidc:{user}"]
    ends = {
        BOUND: deleting(stage, f"{SESSIONS}/{name}"),
        USER: revoking(stage, user={"username": f"oidc:{user}"}),
    }
    return Held(ends, browser=browser)


async def static_token(stage: Stage) -> Held:
    return Held({USER: revoking(stage, user={"username": "bob"})}, BOB)


async def front_proxy_user(stage: Stage) -> Held:
    name, user = stage.name(), stage.name()
    certified = issued(stage.proxies, "front-proxy")
    ends = {
        USER: revoking(stage, user={"username": user}),
        PROXY: revoking(stage, certificate={"sha256": fingerprint(certified.chain)}),
    }
    return Held(ends, identity=stage.identity(name, certified), headers={"X-Remote-User": user})


async def webhook_token(stage: Stage) -> Held:
    user = stage.name()
    token = f"{KNOWN}{user}"
    ends = {
        ITSELF: revoking(stage, token={"jti": token}),
        USER: revoking(stage, user={"username": user}),
    }
    return Held(ends, token)


# -- ACME and clusters -----------------------------------------------------------------------


async def external_account_key(stage: Stage) -> tuple[Held, str]:
    """The key, and its name, which is that of its account."""
    name = stage.name()
    account = await stage.account(name, NAMESPACE)
    notes = {
        ORCH.account_name_annotation: name,
        ORCH.account_uid_annotation: account["metadata"]["uid"],
    }
    body = {
        "metadata": {"name": name, "annotations": notes},
        "type": KEY_TYPE,
        "data": {"key": base64.b64encode(SECRET).decode()},
        "stringData": {"expiration": "2100-01-01T00:00:00Z"},
    }
    await stage.make(f"{CORE}/secrets", body)

    async def registers() -> bool:
        return (await AcmeClient(stage).register(f"{NAMESPACE}.{name}", SECRET)).status == 201

    ends = {**of_account(stage, name), BOUND: deleting(stage, f"{CORE}/secrets/{name}")}
    return Held(ends, uses={REGISTRATION: registers}), name


async def acme_key(stage: Stage) -> Held:
    return (await external_account_key(stage))[0]


async def acme_account(stage: Stage) -> Held:
    _, name = await external_account_key(stage)
    client = AcmeClient(stage)
    answer = await client.register(f"{NAMESPACE}.{name}", SECRET)
    assert answer.status == 201, answer.text
    path = f"/apis/identity.orch.io/v1alpha1/namespaces/{NAMESPACE}/acmeaccounts"

    async def orders() -> bool:
        return (await client.order("web-1.example.com")).status == 201

    async def deactivate() -> None:
        answer = await client.post(client.kid, {"status": "deactivated"})
        assert answer.status == 200, answer.text

    ends = {
        **of_account(stage, name),
        BOUND: deleting(stage, f"{path}/{client.kid.rpartition('/')[2]}"),
        DEACTIVATED: deactivate,
    }
    return Held(ends, uses={ORDER: orders})


def in_cluster(stage: Stage, **spec: Any) -> Action:
    return lambda: clusters.revoked(stage, stage.name(), **spec)


def accepted(stage: Stage, user: str, credential_id: str) -> dict[Any, Any]:
    async def has_no_opinion() -> bool:
        return bool(await clusters.asked(stage, user, credential_id) == clusters.NO_OPINION)

    return {WEBHOOK: has_no_opinion}


async def cluster_token(stage: Stage) -> Held:
    name, jti = stage.name(), stage.name()
    account, user = {"namespace": "ci", "name": name}, f"{ACCOUNTS}:ci:{name}"
    ends = {
        ITSELF: in_cluster(stage, token={"jti": jti}),
        ACCOUNT: in_cluster(stage, account=account),
    }
    return Held(ends, uses=accepted(stage, user, f"JTI={jti}"))


async def cluster_certificate(stage: Stage) -> Held:
    user = stage.name()
    sha256 = hashlib.sha256(user.encode()).hexdigest()
    ends = {
        ITSELF: in_cluster(stage, certificate={"sha256": sha256}),
        USER: in_cluster(stage, user={"username": user}),
    }
    return Held(ends, uses=accepted(stage, user, f"X509SHA256={sha256}"))


MAKERS: dict[str, Maker] = {
    "token of an account": account_token,
    "token bound to a Pod": bound("Pod", spec=POD),
    "token bound to a Secret": bound("Secret"),
    "token bound to a Node": bound("Node", "/api/v1"),
    "token in a Secret": secret_token,
    "exchanged token": exchanged_token,
    "client certificate of a user": client_certificate,
    "client certificate of an account": account_certificate,
    "client certificate of a host": host_certificate,
    "certificate of a Pod": pod_certificate,
    "X.509-SVID": svid,
    "join token": join_token,
    "ID token of a person": id_token,
    "console session": console_session,
    "ACME account": acme_account,
    "external account key": acme_key,
    "static token": static_token,
    "user of a front proxy": front_proxy_user,
    "token that a webhook knows": webhook_token,
    "token of a cluster": cluster_token,
    "certificate of a cluster": cluster_certificate,
}
