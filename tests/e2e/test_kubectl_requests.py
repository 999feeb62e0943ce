"""The requests of a newer kubectl than the operating system has, sent as that program sends them.

A current kubectl sends typed commands in protobuf and reads what is aggregated or published as
OpenAPI v3. Each test is one command: its requests in their order, with their query, body and
Accept header.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jwt
import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.kinds.token_request import (
    BoundObjectReference,
    TokenRequest,
    TokenRequestSpec,
)
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.rights.kinds.role import Role
from orchid.features.rights.kinds.self_subject_rules_review import (
    SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
)
from orchid.features.rights.kinds.subject_access_review import (
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
)
from orchid.features.sign_in.kinds.self_subject_review import SelfSubjectReview
from orchid.kernel.wire.codec.protobuf import message_of, opened, sealed
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.policy_rules import PolicyRule
from orchid.kernel.wire.request_conditions import CertificateSigningRequestCondition
from orchid.kernel.wire.status import Status
from orchid.kernel.wire.struct import replace
from tests.conformance.exchanges import TOKENS
from tests.e2e.https import Https, Reply
from tests.e2e.issuing import new_request
from tests.e2e.serving import running_server

PROTOBUF = "application/vnd.kubernetes.protobuf"
EITHER = f"{PROTOBUF},application/json"
TABLE = ",".join(
    (
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        "application/json",
    )
)
AGGREGATED = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)
AUTHENTICATION = "authentication.k8s.io/v1"
AUTHORIZATION = "authorization.k8s.io/v1"
CERTIFICATES = "certificates.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"
REQUESTS = f"/apis/{CERTIFICATES}/certificatesigningrequests"
STRICT = "fieldValidation=Strict"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass
class Current:
    """Speaks as a current kubectl does, with the flags --as, --as-group and --as-uid."""

    https: Https
    acting: dict[str, str] = field(default_factory=dict)

    def get(self, target: str, accept: str = "application/json") -> Reply:
        return self.send("GET", target, accept=accept)

    def send(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Reply:
        headers = {"Accept": accept, "Content-Type": content_type, **self.acting}
        return self.https.send(method, target, body, token="admin-token-0001", headers=headers)

    def typed(self, method: str, target: str, new: Any, api_version: str) -> Any:
        """A typed command: protobuf there, protobuf back; a refusal comes back as a Status."""
        message = sealed(api_version, type(new).__name__, message_of(type(new)).encode(new))
        reply = self.send(method, target, message, accept=EITHER, content_type=PROTOBUF)
        assert reply.headers["Content-Type"] == PROTOBUF
        return decoded(reply.body, type(new))

    def acting_as(self, **headers: str) -> "Current":
        named = {f"Impersonate-{name.title()}": value for name, value in headers.items()}
        return Current(self.https, named)


def decoded(body: bytes, type_: type[Any]) -> Any:
    said, message = opened(body)
    answered = Status if said.kind == "Status" else type_
    return message_of(answered).decode(message, kind=said.kind, api_version=said.api_version)


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Current]:
    """One server in the names that kubectl knows."""
    place = tmp_path_factory.mktemp("current") / "data"
    flags = ("--naming", "kubernetes", "--token-auth-file", str(TOKENS))
    with running_server(place, *flags) as server, Https(server.port) as https:
        yield Current(https)


def accounts(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts"


def create_account(current: Current, namespace: str, name: str) -> ServiceAccount:
    """kubectl create serviceaccount NAME"""
    target = f"{accounts(namespace)}?fieldManager=kubectl-create&{STRICT}"
    new = ServiceAccount(metadata=ObjectMeta(name=name, namespace=namespace))
    made: ServiceAccount = current.typed("POST", target, new, "v1")
    assert made.metadata.uid, made
    return made


def test_discovery(current: Current) -> None:
    """Whatever is typed first: both roots, aggregated."""
    core, groups = current.get("/api", AGGREGATED), current.get("/apis", AGGREGATED)

    assert "as=APIGroupDiscoveryList" in core.headers["Content-Type"]
    assert core.json["kind"] == groups.json["kind"] == "APIGroupDiscoveryList"
    names = {group["metadata"]["name"] for group in groups.json["items"]}
    assert {"authentication.k8s.io", "certificates.k8s.io"} <= names


def test_create(current: Current) -> None:
    """create serviceaccount, create role: the answer says who manages what."""
    made = create_account(current, "created", "app")
    role = Role(
        metadata=ObjectMeta(name="app", namespace="created"),
        rules=(PolicyRule(verbs=("get",), api_groups=("",), resources=("pods",)),),
    )
    target = f"/apis/{RBAC}/namespaces/created/roles?fieldManager=kubectl-create&{STRICT}"
    kept = current.typed("POST", target, role, RBAC)

    again = current.typed("POST", target, role, RBAC)

    assert made.metadata.uid
    assert kept.metadata.managed_fields[0].manager == "kubectl-create"
    assert kept.rules == role.rules
    assert (again.code, again.reason) == (409, "AlreadyExists")


def test_create_token(current: Current) -> None:
    """create token, with --audience, --duration and --bound-object-kind Secret."""
    create_account(current, "tokens", "app")
    secret = {"metadata": {"name": "bound"}, "type": "Opaque"}
    uid = current.send("POST", "/api/v1/namespaces/tokens/secrets", secret).json["metadata"]["uid"]
    wanted = TokenRequest(
        spec=TokenRequestSpec(
            audiences=("vault",),
            expiration_seconds=1800,
            bound_object_ref=BoundObjectReference(
                kind="Secret", api_version="v1", name="bound", uid=uid
            ),
        )
    )

    given = current.typed("POST", f"{accounts('tokens')}/app/token", wanted, AUTHENTICATION)
    plain = current.typed("POST", f"{accounts('tokens')}/app/token", TokenRequest(), AUTHENTICATION)
    nobody = current.typed(
        "POST", f"{accounts('tokens')}/nobody/token", TokenRequest(), AUTHENTICATION
    )

    claims = jwt.decode(given.status.token, options={"verify_signature": False})
    assert claims["aud"] == ["vault"]
    assert claims["exp"] - claims["iat"] == 1800
    assert claims["kubernetes.io"]["secret"] == {"name": "bound", "uid": uid}
    assert plain.status.token
    assert (nobody.code, nobody.reason) == (404, "NotFound")


def test_whoami(current: Current) -> None:
    """auth whoami, as oneself and with --as, --as-group and --as-uid."""
    target = f"/apis/{AUTHENTICATION}/selfsubjectreviews"
    jane = current.acting_as(user="jane", group="devs", uid="jane-uid")

    myself = current.typed("POST", target, SelfSubjectReview(), AUTHENTICATION)
    other = jane.typed("POST", target, SelfSubjectReview(), AUTHENTICATION)
    nameless = current.acting_as(uid="jane-uid").get("/api/v1/namespaces")

    assert myself.status.user_info.username == "admin"
    assert other.status.user_info.username == "jane"
    assert other.status.user_info.uid == "jane-uid"
    assert set(other.status.user_info.groups) == {"devs", "system:authenticated"}
    assert nameless.status != 200, "--as-uid needs --as"


def test_can_i(current: Current) -> None:
    """auth can-i and auth can-i --list."""
    asked = SelfSubjectAccessReview(
        spec=SelfSubjectAccessReviewSpec(
            resource_attributes=ResourceAttributes(
                namespace="default", verb="create", resource="serviceaccounts", subresource="token"
            )
        )
    )
    rules = SelfSubjectRulesReview(spec=SelfSubjectRulesReviewSpec(namespace="default"))
    jane = current.acting_as(user="jane")

    assert current.get("/api/v1").json["kind"] == "APIResourceList"
    access = f"/apis/{AUTHORIZATION}/selfsubjectaccessreviews"
    assert current.typed("POST", access, asked, AUTHORIZATION).status.allowed
    assert not jane.typed("POST", access, asked, AUTHORIZATION).status.allowed
    listed = jane.typed("POST", access.replace("access", "rules"), rules, AUTHORIZATION)
    assert any("create" in rule.verbs for rule in listed.status.resource_rules)


def test_get_in_pages(current: Current) -> None:
    """get: tables by the page, each with its continue token, all together everything."""
    target = f"/apis/{RBAC}/clusterroles"
    whole = current.get(f"{target}?limit=500", TABLE).json
    rows, continued = [], ""
    while True:
        more = f"&continue={quote(continued)}" if continued else ""
        page = current.get(f"{target}?limit=10{more}", TABLE).json
        assert page["kind"] == "Table"
        rows += page["rows"]
        if not (continued := page["metadata"].get("continue", "")):
            break

    assert [row["cells"][0] for row in rows] == [row["cells"][0] for row in whole["rows"]]
    assert len(rows) > 10


def openapi(current: Current, place: str) -> Any:
    """The document of a group and version, by the address that the index gives."""
    index = current.get("/openapi/v3").json
    address = index["paths"][place]["serverRelativeURL"]
    assert "?hash=" in address
    return current.get(address).json


def test_apply(current: Current) -> None:
    """apply: the document, the object, then POST; and the second time a strategic merge patch."""
    document = openapi(current, "api/v1")
    target = f"{accounts('applied')}/app"
    body = {"apiVersion": "v1", "kind": "ServiceAccount"}
    said = body | {"metadata": {"name": "app", "namespace": "applied"}, "secrets": [{"name": "a"}]}
    manager = f"?fieldManager=kubectl-client-side-apply&{STRICT}"
    last = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(said)}
    said["metadata"] |= {"annotations": last}

    before = current.get(target)
    made = current.send("POST", f"{accounts('applied')}{manager}", said)
    change = {
        "secrets": [{"name": "b"}],
        "$setElementOrder/secrets": [{"name": "a"}, {"name": "b"}],
    }
    changed = current.send("PATCH", target + manager, change, content_type=STRATEGIC)
    wrong = current.send("PATCH", target + manager, {"secretz": []}, content_type=STRATEGIC)

    assert "io.k8s.api.core.v1.ServiceAccount" in document["components"]["schemas"]
    assert (before.status, made.status, changed.status) == (404, 201, 200)
    assert changed.json["secrets"] == [{"name": "a"}, {"name": "b"}]
    assert wrong.status in {400, 422}
    assert 'unknown field "secretz"' in wrong.json["message"]


def test_server_side_apply_takes_over_from_the_client(current: Current) -> None:
    """apply --server-side: the patches with which a client's fields come under the server."""
    target = f"{accounts('taken')}/app"
    last_applied = "kubectl.kubernetes.io/last-applied-configuration"
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount"}
    body |= {"metadata": {"name": "app", "namespace": "taken", "labels": {"team": "blue"}}}
    note = {"annotations": {last_applied: json.dumps(body)}}
    current.send(
        "POST",
        f"{accounts('taken')}?fieldManager=kubectl-client-side-apply&{STRICT}",
        body | {"metadata": body["metadata"] | note},
    )

    def apply(manager: str, said: Any) -> Reply:
        query = urlencode({"fieldManager": manager, "fieldValidation": "Strict", "force": "false"})
        return current.send("PATCH", f"{target}?{query}", said, content_type=APPLY)

    applied = apply("kubectl", body)
    assert applied.status == 200, applied.body
    fields = applied.json["metadata"]["managedFields"]
    kept = [entry for entry in fields if entry["manager"] != "kubectl-client-side-apply"]
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": applied.json["metadata"]["resourceVersion"],
        },
    ]
    moved = current.send("PATCH", target, patch, content_type="application/json-patch+json")
    alone = {"name": "app", "namespace": "taken"} | note
    noted = apply("kubectl-last-applied", body | {"metadata": alone})
    other = apply("other", body | {"metadata": body["metadata"] | {"labels": {"team": "red"}}})

    assert moved.status == 200, moved.body
    assert [entry["manager"] for entry in moved.json["metadata"]["managedFields"]] == ["kubectl"]
    assert noted.status == 200, noted.body
    assert other.status == 409
    assert 'conflict with "kubectl"' in other.json["message"]


def test_diff(current: Current) -> None:
    """diff: a dry run of the change, of which nothing stays."""
    create_account(current, "differs", "app")
    target = f"{accounts('differs')}/app"
    query = f"?dryRun=All&fieldManager=kubectl-client-side-apply&{STRICT}"

    tried = current.send(
        "PATCH", target + query, {"metadata": {"labels": {"a": "b"}}}, content_type=STRATEGIC
    )

    assert tried.json["metadata"]["labels"] == {"a": "b"}
    assert "labels" not in current.get(target).json["metadata"]


def test_label(current: Current) -> None:
    """label: a merge patch."""
    create_account(current, "labelled", "app")

    patched = current.send(
        "PATCH",
        f"{accounts('labelled')}/app?fieldManager=kubectl-label",
        {"metadata": {"labels": {"a": "b"}}},
        content_type="application/merge-patch+json",
    )

    assert patched.json["metadata"]["labels"] == {"a": "b"}


@pytest.mark.system_package("openssl")
def test_certificate_approve_and_describe(current: Current, tmp_path: Path) -> None:
    """certificate approve: GET and PUT in protobuf; then wait for it, and describe csr."""
    asked = CertificateSigningRequest(
        metadata=ObjectMeta(name="wanted"),
        spec=CertificateSigningRequestSpec(
            request=new_request(tmp_path / "key", "/CN=jane"),
            signer_name="kubernetes.io/kube-apiserver-client",
            usages=("client auth",),
        ),
    )
    made = current.typed("POST", f"{REQUESTS}?fieldManager=kubectl-create", asked, CERTIFICATES)
    condition = CertificateSigningRequestCondition(
        type="Approved",
        status="True",
        reason="KubectlApprove",
        message="This CSR was approved by kubectl certificate approve.",
    )
    approved = replace(made, status=replace(made.status, conditions=(condition,)))

    answer = current.typed("PUT", f"{REQUESTS}/wanted/approval", approved, CERTIFICATES)
    selector = quote("metadata.name=wanted")
    waited = (
        f"{REQUESTS}?allowWatchBookmarks=true&fieldSelector={selector}&watch=true&timeoutSeconds=20"
        "&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&resourceVersion="
    )
    for event in current.https.events(waited, token="admin-token-0001"):
        if event["type"] != "BOOKMARK" and event["object"]["status"].get("certificate"):
            break
    shown = decoded(current.get(f"{REQUESTS}/wanted", EITHER).body, CertificateSigningRequest)
    about = ",".join(
        f"involvedObject.{part}={value}"
        for part, value in (("name", "wanted"), ("kind", "CertificateSigningRequest"))
    )
    events = current.get(f"/api/v1/events?fieldSelector={quote(about)}&limit=500", EITHER)

    assert answer.status.conditions[0].reason == "KubectlApprove"
    assert shown.status.certificate.startswith(b"-----BEGIN CERTIFICATE-----")
    assert events.status == 200


def test_wait_sees_the_present_and_its_end(current: Current) -> None:
    """wait: initial events, the bookmark that ends them, then what happens."""
    create_account(current, "waits", "app")
    query = (
        "?allowWatchBookmarks=true&fieldSelector=metadata.name%3Dapp&watch=true&timeoutSeconds=20"
        "&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&resourceVersion="
    )

    events = current.https.events(accounts("waits") + query, token="admin-token-0001")
    first, mark = next(events), next(events)
    events.close()

    assert (first["type"], mark["type"]) == ("ADDED", "BOOKMARK")
    assert mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"


def test_delete(current: Current) -> None:
    """delete: options in the body, then GET until it is gone."""
    made = create_account(current, "deleted", "app")
    target = f"{accounts('deleted')}/app"

    answer = current.send("DELETE", target, {"propagationPolicy": "Background"})
    gone = current.get(target)

    assert answer.json["metadata"]["uid"] == made.metadata.uid
    assert gone.status == 404


def test_explain(current: Current) -> None:
    """explain: the document of the group, with a description and the kinds of each path."""
    document = openapi(current, "apis/certificates.k8s.io/v1")

    schema = document["components"]["schemas"][
        "io.k8s.api.certificates.v1.CertificateSigningRequest"
    ]
    assert schema["description"]
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": "certificates.k8s.io", "kind": "CertificateSigningRequest", "version": "v1"}
    ]
