"""Objects and credentials that a server has before an upgrade, and what must be true after it.

`fill` makes them over the API of any version, as users would. `problems` asks another server, of
this version or of an earlier one, and names everything that is lost or refused.
"""

import base64
import json
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchid.kernel.credentials.authorities.authority import Authority
from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https

ADMIN = tokens_by_user()["admin"]
ISSUER = "https://orchid.test"
FLAGS = (
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", ISSUER),
    *("--api-audiences", ISSUER),
)
LONG = 30 * 365 * 86_400  # seconds: a recording is read for years
SIGNING = ("--cluster-signing-duration", f"{LONG // 3600}h")
PATIENCE = 60.0

CORE = "/api/v1/namespaces"
RBAC = "/apis/rbac.authorization.orch.io/v1"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
BUNDLES = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
IDENTITY = "/apis/identity.orch.io/v1alpha1"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
JWKS = "/openid/v1/jwks"

# Written by servers after the object was made, or another for each version of the store.
CHANGING = ("resourceVersion", "managedFields", "generation")


class Population(msgspec.Struct):
    """What `fill` has made."""

    objects: dict[str, Any] = {}  # by path
    token: str = ""
    revoked_token: str = ""
    secret_token: str = ""
    key_id: str = ""
    certificate: str = ""  # of the user carol, with its key


def fill(server: Https) -> Population:
    """Make an object of every kind that a team uses, and credentials of every sort."""
    made = Population()
    for collection, name, body in manifests():
        _created(server, collection, body)
        made.objects[f"{collection}/{name}"] = {}
    account = f"{CORE}/team/serviceaccounts/builder/token"
    made.token, made.revoked_token = (
        _created(server, account, {"spec": {"expirationSeconds": LONG}})["status"]["token"]
        for _ in range(2)
    )
    made.key_id = json.loads(decoded(made.token.split(".")[0]))["kid"]
    made.certificate = _certificate(server, "carol")
    jti = json.loads(decoded(made.revoked_token.split(".")[1]))["jti"]
    spec = {"token": {"jti": jti}, "reason": "keyCompromise"}
    _created(server, f"{IDENTITY}/credentialrevocations", named("stolen", {"spec": spec}))
    made.secret_token = decoded(
        _awaited(server, f"{CORE}/team/secrets/robot", lambda one: one["data"]["token"])
    ).decode()
    _awaited(
        server,
        f"{IDENTITY}/certificateauthorities/web",
        lambda one: one["status"]["certificate"],
    )
    made.objects[f"{REQUESTS}/carol"] = {}
    made.objects[f"{IDENTITY}/credentialrevocations/stolen"] = {}
    for issued in _got(server, f"{IDENTITY}/issuedcertificates")["items"]:
        if issued["spec"]["request"].get("name") == "carol":
            made.objects[f"{IDENTITY}/issuedcertificates/{issued['metadata']['name']}"] = {}
    for path in made.objects:
        made.objects[path] = _got(server, path)
    return made


def manifests() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The collection, name and body of each object."""
    team, group = f"{CORE}/team", "rbac.authorization.orch.io"
    yield CORE, "team", named("team")
    yield f"{team}/serviceaccounts", "builder", named("builder")
    yield f"{team}/configmaps", "plain", named("plain", {"data": {"a": "b"}})
    yield f"{team}/secrets", "sealed", named("sealed", {"data": {"key": "c2VjcmV0"}})
    robot = named("robot", {"type": "orch.io/service-account-token"})
    robot["metadata"]["annotations"] = {"orch.io/service-account.name": "builder"}
    yield f"{team}/secrets", "robot", robot
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
    rights = f"{RBAC}/namespaces/team"
    yield f"{rights}/roles", "reader", named("reader", {"rules": [rule]})
    binding = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [
            {"kind": "ServiceAccount", "namespace": "team", "name": "builder"},
            {"kind": "User", "apiGroup": group, "name": "carol"},
        ],
    }
    yield f"{rights}/rolebindings", "readers", named("readers", binding)
    terms = {"signerNames": ["example.com/web"], "allows": {"dnsNames": ["*.example.com"]}}
    yield f"{IDENTITY}/approvalpolicies", "web", named("web", {"spec": terms})
    authority = {"signerName": "example.com/web", "key": {"algorithm": "ECDSA-P256"}}
    authority["subject"] = {"commonName": "Web"}
    yield f"{IDENTITY}/certificateauthorities", "web", named("web", {"spec": authority})
    anchor = Authority.create("anchor", now=datetime.now(UTC)).certificate_pem.decode()
    yield BUNDLES, "anchors", named("anchors", {"spec": {"trustBundle": anchor}})
    yield "/api/v1/nodes", "worker", named("worker")
    lease = {"holderIdentity": "me", "leaseDurationSeconds": 15}
    leases = "/apis/coordination.orch.io/v1/namespaces/team/leases"
    yield leases, "work", named("work", {"spec": lease})


def named(name: str, more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name}, **(more or {})}


def problems(server: Https, port: int, made: Population) -> list[str]:
    """Everything that a server has lost of a population, or refuses; empty if all is well."""
    found = []
    for path, before in made.objects.items():
        reply = server.send("GET", path, token=ADMIN)
        if reply.status != 200:
            found.append(f"{path}: {reply.status} {reply.body[:200]!r}")
        elif lasting(reply.json) != lasting(before):
            found.append(f"{path}: {lasting(before)} has become {lasting(reply.json)}")
    for name, token, valid in (
        ("the token", made.token, True),
        ("the token of the Secret", made.secret_token, True),
        ("the revoked token", made.revoked_token, False),
    ):
        body = {"spec": {"token": token}}
        status = server.send("POST", REVIEWS, body, token=ADMIN).json["status"]
        if status.get("authenticated", False) != valid:
            found.append(f"{name}: {status}")
    if made.key_id not in [key["kid"] for key in _got(server, JWKS)["keys"]]:
        found.append(f"the key {made.key_id} is not published")
    user = _user_of(port, made.certificate)
    if user != "carol":
        found.append(f"the certificate of carol: {user}")
    return found


def lasting(one: dict[str, Any]) -> dict[str, Any]:
    """The parts of an object that no upgrade may change: all but status and counters."""
    meta = {name: value for name, value in one["metadata"].items() if name not in CHANGING}
    labels = {k: v for k, v in meta.pop("labels", {}).items() if not k.endswith("-last-used")}
    meta["labels"] = labels
    return {**{name: one[name] for name in one if name != "status"}, "metadata": meta}


def decoded(text: str) -> bytes:
    """A part of a token, or of a Secret."""
    padded = text + "=" * (-len(text) % 4)
    return base64.urlsafe_b64decode(padded.replace("+", "-").replace("/", "_"))


def _user_of(port: int, certificate: str) -> str:
    """The user that a server sees in a client certificate."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "pair.pem"
        file.touch(mode=0o600)
        file.write_text(certificate)
        with Https(port, file) as server:
            answer = server.send("POST", WHO, {}).json
    status = answer["status"]
    return str(status["userInfo"]["username"] if isinstance(status, dict) else answer)


def _certificate(server: Https, user: str) -> str:
    """A client certificate, requested, approved and signed; with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {
        "request": base64.b64encode(signed).decode(),
        "signerName": "orch.io/orch-apiserver-client",
        "usages": ["client auth", "digital signature"],
    }
    _created(server, REQUESTS, named(user, {"spec": spec}))
    condition = {"type": "Approved", "status": "True", "reason": "Recorded", "message": "yes"}
    approval = named(user, {"status": {"conditions": [condition]}})
    assert server.send("PUT", f"{REQUESTS}/{user}/approval", approval, token=ADMIN).status == 200
    chain = _awaited(server, f"{REQUESTS}/{user}", lambda one: one["status"]["certificate"])
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return base64.b64decode(chain).decode() + private.decode()


def _created(server: Https, collection: str, body: dict[str, Any]) -> Any:
    reply = server.send("POST", collection, body, token=ADMIN)
    assert reply.status == 201, (collection, reply.body)
    return reply.json


def _got(server: Https, path: str) -> Any:
    reply = server.send("GET", path, token=ADMIN)
    assert reply.status == 200, (path, reply.body)
    return reply.json


def _awaited(server: Https, path: str, value: Any) -> str:
    """A value that a controller writes."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return str(value(_got(server, path)))
        except KeyError:
            assert time.monotonic() < deadline, f"{path} was not completed"
            time.sleep(0.05)
