"""The commands of kubectl that take files, for every kind, in both namings.

Objects are those of test_kubectl.py and of the pages; a kind without one fails the test. One call
of kubectl takes all of them together.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchid.kernel.credentials.x509 import pem
from tests.e2e import test_kubectl
from tests.e2e.kubectl import Kubectl
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server

pytestmark = pytest.mark.system_package("kubectl")

DOCS = Path(__file__).resolve().parents[2] / "docs"
REQUEST = base64.b64encode(
    pem.encode(pem.CERTIFICATE_REQUEST, base64.b64decode(test_kubectl.STUB))
).decode()
# What `kubectl create` has words for, and so is not in OTHERS.
USUAL = f"""
{{apiVersion: v1, kind: Namespace, metadata: {{name: every}}}}
---
{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: it, namespace: every}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: it, namespace: every}}, stringData: {{a: b}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: it, namespace: every}}, data: {{a: b}}}}
---
apiVersion: events.k8s.io/v1
kind: Event
metadata: {{name: newer, namespace: every}}
reason: Tried
action: Try
type: Normal
eventTime: "2026-01-02T03:04:05.000000Z"
reportingController: example.com/tester
reportingInstance: it
regarding: {{apiVersion: v1, kind: ServiceAccount, name: it, namespace: every}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: it, namespace: every}}
rules: [{{apiGroups: [""], resources: [pods], verbs: [get]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: every}}
rules: [{{nonResourceURLs: [/metrics], verbs: [get]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: it, namespace: every}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: it}}
subjects: [{{kind: ServiceAccount, name: it, namespace: every}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: every}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: every}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}}]
---
apiVersion: identity.orch.io/v1beta1
kind: SigningKey
metadata: {{name: tokens-3}}
spec: {{algorithm: ES256, state: Published}}
---
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: every}}
spec:
  signerName: example.com/every
  usages: [client auth]
  request: {REQUEST}
"""
REVIEWS = """
{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview}
---
{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {token: a.b.c}}
---
apiVersion: authorization.k8s.io/v1
kind: SubjectAccessReview
spec: {user: jane, resourceAttributes: {verb: get, resource: pods}}
---
apiVersion: authorization.k8s.io/v1
kind: LocalSubjectAccessReview
metadata: {namespace: every}
spec: {user: jane, resourceAttributes: {namespace: every, verb: get, resource: pods}}
---
apiVersion: authorization.k8s.io/v1
kind: SelfSubjectAccessReview
spec: {resourceAttributes: {verb: get, resource: pods}}
---
{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, spec: {namespace: every}}
---
{apiVersion: identity.orch.io/v1, kind: ApprovalReview, spec: {requestName: every}}
---
apiVersion: identity.orch.io/v1alpha1
kind: TokenExchangeReview
metadata: {namespace: every}
spec: {issuer: https://login.corp.example, claims: {sub: jane}}
"""
EXCHANGE = """apiVersion: identity.orch.io/v1alpha1
kind: TokenExchangeConfiguration
issuers: [{url: https://login.corp.example, audiences: [orchid]}]
"""
GROUPS = re.compile(r"\b(authentication|authorization|certificates|coordination|events)\.k8s\.io")


@pytest.fixture(scope="module", params=["orch", "kubernetes"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("kubectl")
    (place / "exchange.yaml").write_text(EXCHANGE)
    flags = ("--naming", request.param, "--token-exchange-config", str(place / "exchange.yaml"))
    with running_server(place / "data", *flags) as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(server: Server) -> Kubectl:
    return Kubectl(server.kubeconfig, server.data_dir.parent)


def named(text: str, kubectl: Kubectl) -> str:
    """A text in the naming of the server."""
    is_own = "certificates.orch.io" in kubectl("api-versions").out
    plain = yaml.safe_dump_all(yaml.safe_load_all(text))  # kubectl takes `{a: b}` for JSON
    return GROUPS.sub(r"\1.orch.io", plain) if is_own else plain


def stored(server: Server, kubectl: Kubectl) -> str:
    anchor = json.dumps((server.data_dir / "ca.crt").read_text())
    others = test_kubectl.OTHERS.format(
        name="every", anchor=anchor, stub=test_kubectl.STUB, digest=test_kubectl.DIGEST
    )
    bundle = "kind: ClusterTrustBundle"
    newest = others.replace(f"v1beta1\n{bundle}", f"v1\n{bundle}")  # the other naming has no beta
    return named(f"{USUAL}---{newest}", kubectl)


def documented() -> list[str]:
    """The objects in the pages."""
    blocks = [
        block
        for page in sorted(DOCS.rglob("*.md"))
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    documents = [text for block in blocks for text in re.split(r"^---$", block, flags=re.M)]
    return [text for text in documents if re.search(r"^kind: ", text, re.M)]


def kinds_of_server(kubectl: Kubectl, *verbs: str) -> dict[tuple[str, str], tuple[str, str]]:
    """The resources that have all these verbs, with their version, by group and kind."""
    found = {}
    for line in kubectl("api-resources", f"--verbs={','.join(verbs)}", "--no-headers").lines:
        name, *_, version, _, kind = line.split()
        found[version.rpartition("/")[0], kind] = (name, version)
    return found


def kinds_in(text: str) -> set[tuple[str, str]]:
    return {(one["apiVersion"].rpartition("/")[0], one["kind"]) for one in yaml.safe_load_all(text)}


def test_every_kind_is_created_and_written_again(server: Server, kubectl: Kubectl) -> None:
    """By create, by apply of what get prints, and by the server; then diff finds nothing."""
    objects = stored(server, kubectl)
    kubectl("wait", "--for=create", "--timeout=30s", "signingkeys/tokens-2")  # by the server
    kubectl("create", "-f", "-", stdin=objects)
    kubectl("wait", "--for=jsonpath={.metadata.uid}", "--timeout=20s", "-f", "-", stdin=objects)

    for apply in (("apply",), ("apply", "--server-side", "--force-conflicts")):
        for _ in range(20):  # a controller may write in between
            printed = kubectl("get", "-o", "yaml", "-f", "-", stdin=objects).out
            applied = kubectl.run(*apply, "-f", "-", stdin=printed)
            if "the object has been modified" not in applied.err:
                break
        assert applied.code == 0, str(applied)
    printed = kubectl("get", "-o", "yaml", "-f", "-", stdin=objects).out
    kubectl("diff", "-f", "-", stdin=printed)

    there = kinds_of_server(kubectl, "create", "patch").keys()
    assert there == kinds_in(objects), "give each an object in USUAL, or in OTHERS of test_kubectl"


def test_every_kind_that_is_only_created_is_created(kubectl: Kubectl) -> None:
    """kubectl looks among the custom resources for each of them before it sends it."""
    pages = [text for text in documented() if re.search("kind: (CertificateSear|TokenRe)", text)]
    reviews = named("---\n".join((REVIEWS, *pages)), kubectl)
    changed = kinds_of_server(kubectl, "create", "patch")
    only_created = {
        kind: name
        for kind, name in kinds_of_server(kubectl, "create").items()
        if kind not in changed
    }

    created = kubectl("create", "-f", "-", stdin=reviews)

    written = {kind for kind in only_created if kind[1] == "IssuedCertificate"}  # by the server
    assert kinds_in(reviews) == only_created.keys() - written
    assert len(created.lines) == len(kinds_in(reviews))


def test_every_object_in_the_pages_is_accepted(server: Server, kubectl: Kubectl) -> None:
    """Strictly validated by kubectl and by the server."""
    served = kinds_of_server(kubectl, "create")
    objects = [text for text in documented() if kinds_in(named(text, kubectl)) <= served.keys()]
    assert len(objects) > 10
    person = Person(server.data_dir.parent, server.kubeconfig)
    for action in ("new", "approve", "fetch"):  # a page revokes it
        person.types("csr", action, "alice")

    kubectl("create", "--dry-run=server", "-f", "-", stdin=named("---\n".join(objects), kubectl))


def test_every_kind_is_explained(kubectl: Kubectl) -> None:
    for (group, kind), (name, version) in kinds_of_server(kubectl, "create").items():
        explained = kubectl("explain", name, f"--api-version={version}")
        explained.says(f"KIND:       {kind}\n", f"GROUP:      {group}\n" if group else "")
