"""Client libraries work unchanged: the official Python client, typed and dynamic, and lightkube.

They find the server by its kubeconfig, trust its authority, and know nothing of this project.
"""

import base64
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import lightkube
import pytest
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from lightkube.models.authentication_v1 import TokenReviewSpec
from lightkube.models.certificates_v1 import CertificateSigningRequestSpec
from lightkube.models.core_v1 import LocalObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.authentication_v1 import TokenReview
from lightkube.resources.certificates_v1 import CertificateSigningRequest
from lightkube.resources.core_v1 import Secret, ServiceAccount, ServiceAccountToken
from lightkube.types import PatchType

from tests.e2e.issuing import new_request
from tests.e2e.serving import Server, running_server

SIGNER = "kubernetes.io/kube-apiserver-client"
WATCH_SECONDS = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with its controllers; each test has a namespace of its own."""
    place = tmp_path_factory.mktemp("libraries") / "data"
    with running_server(place, "--naming", "kubernetes") as server:
        yield server


@pytest.fixture(scope="module")
def official(server: Server) -> Iterator[Any]:
    """The official client, as the administrator."""
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        yield client


@pytest.fixture(scope="module")
def light(server: Server) -> Iterator[lightkube.Client]:
    config = lightkube.KubeConfig.from_file(server.kubeconfig)
    with lightkube.Client(config=config, field_manager="light") as client:
        yield client


def account(name: str, **labels: str) -> Any:
    metadata = kubernetes.client.V1ObjectMeta(name=name, labels=labels or None)
    return kubernetes.client.V1ServiceAccount(metadata=metadata)


# The official client, typed


def test_typed_objects_go_through_their_life(official: Any) -> None:
    """Create, read, replace, patch, delete; refusals carry their Status."""
    core = kubernetes.client.CoreV1Api(official)

    made = core.create_namespaced_service_account("typed", account("app", team="blue"))
    made.automount_service_account_token = False
    replaced = core.replace_namespaced_service_account("app", "typed", made)
    patched = core.patch_namespaced_service_account("app", "typed", {"secrets": [{"name": "one"}]})
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_service_account("app", "typed", made)
    core.delete_namespaced_service_account("app", "typed")
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_service_account("app", "typed")

    assert replaced.automount_service_account_token is False
    assert patched.secrets[0].name == "one"
    assert patched.metadata.creation_timestamp.tzinfo is not None
    assert (stale.value.status, json.loads(stale.value.body)["reason"]) == (409, "Conflict")
    assert (gone.value.status, json.loads(gone.value.body)["reason"]) == (404, "NotFound")


def test_typed_lists_come_in_pages(official: Any) -> None:
    """Pages with a continue token add up to the list; selectors choose."""
    core = kubernetes.client.CoreV1Api(official)
    for number in range(5):
        core.create_namespaced_service_account(
            "pages", account(f"app-{number}", odd=str(number % 2))
        )

    names, token = [], None
    while True:
        page = core.list_namespaced_service_account(
            "pages", limit=2, _continue=token, label_selector="odd"
        )
        names += [item.metadata.name for item in page.items]
        if not (token := page.metadata._continue):
            break
    odd = core.list_namespaced_service_account("pages", label_selector="odd=1")
    one = core.list_service_account_for_all_namespaces(field_selector="metadata.name=app-3")

    assert names == [f"app-{number}" for number in range(5)]
    assert [item.metadata.name for item in odd.items] == ["app-1", "app-3"]
    assert [item.metadata.name for item in one.items] == ["app-3"]


def test_watch_starts_again_after_410(official: Any) -> None:
    """A version from before history is Gone; listing again leads back into the stream."""
    core = kubernetes.client.CoreV1Api(official)
    core.create_namespaced_service_account("watched", account("first", mine="yes"))
    stream, ours = kubernetes.watch.Watch(), {"label_selector": "mine"}

    with pytest.raises(ApiException) as expired:
        next(stream.stream(core.list_namespaced_service_account, "watched", resource_version="1"))
    listed = core.list_namespaced_service_account("watched", **ours)
    core.create_namespaced_service_account("watched", account("second", mine="yes"))
    core.delete_namespaced_service_account("first", "watched")
    seen = []
    for event in stream.stream(
        core.list_namespaced_service_account,
        "watched",
        resource_version=listed.metadata.resource_version,
        timeout_seconds=WATCH_SECONDS,
        **ours,
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            stream.stop()

    assert expired.value.status == 410
    assert seen == [("ADDED", "second"), ("DELETED", "first")]


def test_tokens(official: Any, server: Server) -> None:
    """A token is requested, reviewed, and used by a client that has nothing else."""
    core = kubernetes.client.CoreV1Api(official)
    core.create_namespaced_service_account("tokens", account("app"))
    wanted = kubernetes.client.AuthenticationV1TokenRequest(
        spec=kubernetes.client.V1TokenRequestSpec(audiences=["vault"], expiration_seconds=1200)
    )
    plain = kubernetes.client.AuthenticationV1TokenRequest(
        spec=kubernetes.client.V1TokenRequestSpec(audiences=[])
    )

    for_vault = core.create_namespaced_service_account_token("app", "tokens", wanted)
    for_us = core.create_namespaced_service_account_token("app", "tokens", plain)
    review = kubernetes.client.V1TokenReview(
        spec=kubernetes.client.V1TokenReviewSpec(
            token=for_vault.status.token, audiences=["vault", "other"]
        )
    )
    verdict = kubernetes.client.AuthenticationV1Api(official).create_token_review(review)
    workload = kubernetes.client.Configuration(host=server.url)
    workload.ssl_ca_cert = str(server.data_dir / "ca.crt")
    workload.api_key = {"authorization": f"Bearer {for_us.status.token}"}
    with kubernetes.client.ApiClient(workload) as client:
        myself = kubernetes.client.AuthenticationV1Api(client).create_self_subject_review(
            kubernetes.client.V1SelfSubjectReview()
        )
        with pytest.raises(ApiException) as refused:
            kubernetes.client.CoreV1Api(client).list_namespaced_secret("tokens")

    assert verdict.status.authenticated
    assert verdict.status.audiences == ["vault"]
    assert myself.status.user_info.username == "system:serviceaccount:tokens:app"
    assert refused.value.status == 403


@pytest.mark.system_package("openssl")
def test_certificate_requests(official: Any, tmp_path: Path) -> None:
    """A request is made, approved and watched until its certificate comes."""
    certificates = kubernetes.client.CertificatesV1Api(official)
    request = base64.b64encode(new_request(tmp_path / "key", "/CN=jane")).decode()
    made = certificates.create_certificate_signing_request(
        kubernetes.client.V1CertificateSigningRequest(
            metadata=kubernetes.client.V1ObjectMeta(generate_name="typed-"),
            spec=kubernetes.client.V1CertificateSigningRequestSpec(
                request=request, signer_name=SIGNER, usages=["client auth"]
            ),
        )
    )
    name = made.metadata.name
    made.status = kubernetes.client.V1CertificateSigningRequestStatus(
        conditions=[
            kubernetes.client.V1CertificateSigningRequestCondition(
                type="Approved", status="True", reason="Known", message="I know her."
            )
        ]
    )

    certificates.replace_certificate_signing_request_approval(name, made)
    stream = kubernetes.watch.Watch()
    certificate = b""
    for event in stream.stream(
        certificates.list_certificate_signing_request,
        field_selector=f"metadata.name={name}",
        timeout_seconds=WATCH_SECONDS,
    ):
        if found := event["object"].status.certificate:
            certificate = base64.b64decode(found)
            stream.stop()

    assert certificate.startswith(b"-----BEGIN CERTIFICATE-----")
    assert certificates.read_certificate_signing_request_status(name).status.conditions


# The official client, dynamic


@pytest.fixture(scope="module")
def dynamic(official: Any) -> DynamicClient:
    """Knows no kind: everything it does comes from discovery."""
    with tempfile.TemporaryDirectory() as cache:
        return DynamicClient(official, cache_file=str(Path(cache) / "discovery"))


def test_dynamic_finds_kinds_by_discovery(dynamic: DynamicClient) -> None:
    """Kinds are found by name, group and short name; an object lives through its life."""
    accounts = dynamic.resources.get(api_version="v1", kind="ServiceAccount")
    bundles = dynamic.resources.get(
        group="certificates.k8s.io", api_version="v1", kind="ClusterTrustBundle"
    )
    body = {"metadata": {"name": "app", "labels": {"a": "b"}}}

    made = accounts.create(body=body, namespace="dynamic")
    patched = accounts.patch(
        name="app",
        namespace="dynamic",
        body={"metadata": {"labels": {"a": None}}},
        content_type="application/merge-patch+json",
    )
    listed = accounts.get(namespace="dynamic")
    accounts.delete(name="app", namespace="dynamic")

    assert made.metadata.labels.a == "b"
    assert not patched.metadata.labels
    assert "app" in [item.metadata.name for item in listed.items]
    assert bundles.get().kind == "ClusterTrustBundleList"
    with pytest.raises(NotFoundError):
        accounts.get(name="app", namespace="dynamic")


def test_dynamic_applies_and_meets_conflicts(dynamic: DynamicClient) -> None:
    """Server-side apply through the dynamic client."""
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")

    def apply(manager: str, value: str, **more: Any) -> Any:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it"}}
        return maps.server_side_apply(
            body=body | {"data": {"key": value}},
            name="it",
            namespace="applied",
            field_manager=manager,
            **more,
        )

    first = apply("one", "a")
    with pytest.raises(ConflictError) as conflict:
        apply("two", "b")
    forced = apply("two", "b", force_conflicts=True)

    assert first.data.key == "a"
    assert 'conflict with \\"one\\": .data.key' in conflict.value.body
    assert forced.data.key == "b"


def test_dynamic_watches(dynamic: DynamicClient) -> None:
    """A watch gives what is there, then what happens."""
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    maps.create(body={"metadata": {"name": "first", "labels": {"w": "y"}}}, namespace="dynamic-w")
    watcher, seen = kubernetes.watch.Watch(), []

    for event in maps.watch(
        namespace="dynamic-w", label_selector="w", timeout=WATCH_SECONDS, watcher=watcher
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            maps.delete(name="first", namespace="dynamic-w")
        else:
            watcher.stop()

    assert seen == [("ADDED", "first"), ("DELETED", "first")]


# lightkube


def test_lightkube_goes_through_a_life(light: lightkube.Client) -> None:
    """Create, get, list, patch of every type, apply, delete."""
    new = ServiceAccount(metadata=ObjectMeta(name="app", namespace="light", labels={"a": "b"}))

    light.create(new)
    light.patch(ServiceAccount, "app", {"secrets": [{"name": "one"}]}, namespace="light")
    light.patch(
        ServiceAccount,
        "app",
        {"metadata": {"labels": {"a": "c"}}},
        namespace="light",
        patch_type=PatchType.MERGE,
    )
    light.patch(
        ServiceAccount,
        "app",
        [{"op": "add", "path": "/automountServiceAccountToken", "value": False}],
        namespace="light",
        patch_type=PatchType.JSON,
    )
    applied = light.apply(
        ServiceAccount(
            metadata=ObjectMeta(name="app", namespace="light"),
            imagePullSecrets=[LocalObjectReference(name="pull")],
        )
    )
    listed = light.list(ServiceAccount, namespace="light", labels={"a": "c"}, chunk_size=1)
    names = [item.metadata.name for item in listed if item.metadata]
    light.delete(ServiceAccount, "app", namespace="light")

    assert [secret.name for secret in applied.secrets or ()] == ["one"]
    assert applied.automountServiceAccountToken is False
    assert names == ["app"]
    with pytest.raises(lightkube.ApiError) as gone:
        light.get(ServiceAccount, "app", namespace="light")
    assert gone.value.status.reason == "NotFound"


def test_lightkube_watches_and_waits(light: lightkube.Client) -> None:
    """A watch from a version, and the end of it."""
    light.create(Secret(metadata=ObjectMeta(name="one", namespace="light-w")))
    listed = light.list(Secret, namespace="light-w")
    _ = list(listed)
    light.create(Secret(metadata=ObjectMeta(name="two", namespace="light-w")))
    light.delete(Secret, "one", namespace="light-w")

    seen = []
    for kind, secret in light.watch(
        Secret, namespace="light-w", resource_version=listed.resourceVersion
    ):
        seen.append((kind, secret.metadata.name if secret.metadata else ""))
        if len(seen) == 2:
            break

    assert seen == [("ADDED", "two"), ("DELETED", "one")]


@pytest.mark.system_package("openssl")
def test_lightkube_asks_for_tokens_and_certificates(
    light: lightkube.Client, tmp_path: Path
) -> None:
    """The token subresource, a review, and a request that is approved and issued."""
    light.create(ServiceAccount(metadata=ObjectMeta(name="app", namespace="light-t")))
    token = light.create(ServiceAccountToken(metadata=ObjectMeta()), "app", namespace="light-t")
    review = light.create(
        TokenReview(metadata=ObjectMeta(), spec=TokenReviewSpec(token=token.status.token))
    )
    request = base64.b64encode(new_request(tmp_path / "key", "/CN=jane")).decode()
    spec = CertificateSigningRequestSpec(request=request, signerName=SIGNER, usages=["client auth"])
    light.create(CertificateSigningRequest(metadata=ObjectMeta(name="light"), spec=spec))
    light.patch(
        CertificateSigningRequest.Approval,
        "light",
        {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Known"}]}},
    )
    issued = next(
        found.status.certificate
        for _, found in light.watch(
            CertificateSigningRequest, fields={"metadata.name": "light"}, server_timeout=30
        )
        if found.status and found.status.certificate
    )

    assert review.status.user.username == "system:serviceaccount:light-t:app"
    assert ssl.PEM_cert_to_DER_cert(base64.b64decode(issued).decode())
