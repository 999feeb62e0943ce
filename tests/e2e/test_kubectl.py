"""A walk through everything that people do with kubectl, in the names that it knows.

The program is the one of the operating system, or the one that ORCHID_KUBECTL names. What only a
newer one can do is in test_kubectl_current.py, and what it sends in test_kubectl_requests.py; what
cannot work is listed, with the reason, in docs/clients.md.
"""

import base64
import json
import re
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.issuing import new_request
from tests.e2e.kubectl import Kubectl
from tests.e2e.serving import Server, running_server
from tests.unit.kernel.credentials import samples

pytestmark = [pytest.mark.system_package("kubectl"), pytest.mark.system_package("openssl")]

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 'reader-token,reader,reader-uid,"readers"\n'

CERTIFICATE_REQUEST = """
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {name}}}
spec:
  signerName: kubernetes.io/kube-apiserver-client
  usages: [client auth]
  expirationSeconds: 3600
  request: {request}
"""

# One object of every kind that `kubectl create` has no word for.
DIGEST = "a" * 64
OTHERS = """
apiVersion: v1
kind: Pod
metadata: {{name: it, namespace: {name}}}
spec: {{containers: [{{name: main, image: example.test/main}}], nodeName: {name}}}
---
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
---
apiVersion: v1
kind: Event
metadata: {{name: it, namespace: {name}}}
involvedObject: {{apiVersion: v1, kind: ServiceAccount, name: it, namespace: {name}}}
reason: Tried
message: it was tried
type: Normal
source: {{component: tester}}
firstTimestamp: "2026-01-02T03:04:05Z"
lastTimestamp: "2026-01-02T03:04:05Z"
count: 1
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: it, namespace: {name}}}
spec: {{holderIdentity: me}}
---
apiVersion: certificates.k8s.io/v1beta1
kind: ClusterTrustBundle
metadata: {{name: {name}}}
spec: {{trustBundle: {anchor}}}
---
apiVersion: certificates.k8s.io/v1
kind: PodCertificateRequest
metadata: {{name: it, namespace: {name}}}
spec:
  signerName: example.com/tables
  podName: it
  podUID: a
  serviceAccountName: it
  serviceAccountUID: b
  nodeName: {name}
  nodeUID: c
  stubPKCS10Request: {stub}
---
apiVersion: identity.orch.io/v1alpha1
kind: ApprovalPolicy
metadata: {{name: {name}}}
spec: {{signerNames: [example.com/tables], allows: {{commonName: "*.example.com"}}}}
---
apiVersion: identity.orch.io/v1alpha1
kind: PublishedBundle
metadata: {{name: {name}-bundle}}
spec: {{sources: [{{name: {name}}}]}}
---
apiVersion: identity.orch.io/v1alpha1
kind: CertificateAuthority
metadata: {{name: {name}}}
spec:
  signerName: example.com/{name}
  key: {{algorithm: ECDSA-P256}}
  subject: {{commonName: Tables}}
  duration: 720h
  issues:
    usages: [server auth]
    names: [dns]
    keys: [ECDSA-P256]
    maxDuration: 24h
    defaultDuration: 1h
---
apiVersion: identity.orch.io/v1alpha1
kind: CredentialRevocation
metadata: {{name: {name}}}
spec: {{token: {{jti: token-of-{name}}}, reason: keyCompromise}}
---
apiVersion: identity.orch.io/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec: {{issuer: https://{name}.example}}
---
apiVersion: identity.orch.io/v1alpha1
kind: AcmeAccount
metadata: {{name: it, namespace: {name}}}
spec:
  serviceAccountName: it
  serviceAccountUID: a
  authority: {name}
  authorityUID: b
  jwk: '{{"crv":"Ed25519","kty":"OKP","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}'
  thumbprint: kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k
---
apiVersion: identity.orch.io/v1alpha1
kind: AcmeOrder
metadata: {{name: it, namespace: {name}}}
spec:
  account: it
  identifiers: [{{type: dns, value: it.example.com}}]
  expires: "2040-01-01T00:00:00Z"
---
apiVersion: identity.orch.io/v1alpha1
kind: TokenExchangePolicy
metadata: {{name: it, namespace: {name}}}
spec:
  issuer: https://{name}.example
  claims: {{project: "1"}}
  account: it
  audiences: [https://vault.example]
---
apiVersion: identity.orch.io/v1alpha1
kind: ConsoleSession
metadata: {{name: {digest}}}
spec: {{username: jane, address: "192.0.2.1:50000", expires: "2040-01-01T00:00:00Z"}}
"""

STUB = samples.stub_text()
COLUMNS = {
    "acmeaccounts": "NAME SERVICEACCOUNT AUTHORITY STATE AGE",
    "acmeorders": "NAME ACCOUNT NAMES FETCHED AGE",
    "approvalpolicies": "NAME SIGNERS OTHERWISE READY AGE",
    "certificateauthorities": "NAME SIGNER KEY READY EXPIRES AGE",
    "consolesessions": "NAME USER ADDRESS LAST SEEN AGE",
    "credentialrevocations": "NAME REVOKES REASON EFFECTIVE AGE",
    "clusters": "NAME ISSUER CONNECTED LAST CALL CALLS DENIALS AGE",
    "issuedcertificates": "NAME SIGNER SUBJECT REQUESTER EXPIRES REVOKED AGE",
    "certificatesigningrequests": "NAME AGE SIGNERNAME REQUESTOR REQUESTEDDURATION CONDITION",
    "clusterrolebindings": "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS",
    "clusterroles": "NAME CREATED AT",
    "clustertrustbundles": "NAME SIGNERNAME",
    "configmaps": "NAME DATA AGE",
    "events": "LAST SEEN TYPE REASON OBJECT SUBOBJECT SOURCE MESSAGE FIRST SEEN COUNT NAME",
    "leases": "NAME HOLDER AGE",
    "namespaces": "NAME STATUS AGE",
    "nodes": "NAME STATUS AGE",
    "podcertificaterequests": "NAME PODNAME SERVICEACCOUNTNAME NODENAME SIGNERNAME STATE "
    "UNVERIFIEDUSERANNOTATIONS",
    "pods": "NAME ACCOUNT NODE AGE",
    "publishedbundles": "NAME CERTIFICATES SEQUENCE BEHIND READY AGE",
    "rolebindings": "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS",
    "roles": "NAME CREATED AT",
    "secrets": "NAME TYPE DATA AGE",
    "serviceaccounts": "NAME AGE",
    "tokenexchangepolicies": "NAME ISSUER ACCOUNT READY LAST USED AGE",
    "signingkeys": "NAME FOR STATE ALGORITHM LIVE UNTIL AGE",
}
A_MOMENT = re.compile(r"^\d+s$|^1m\d*s?$")  # how old this test's objects can be


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with its controllers; each test has a namespace of its own."""
    place = tmp_path_factory.mktemp("kubectl")
    tokens = place / "tokens.csv"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    flags = ("--naming", "kubernetes", "--token-auth-file", str(tokens))
    with running_server(place / "data", *flags) as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(server: Server) -> Kubectl:
    """The administrator at the keyboard."""
    return Kubectl(server.kubeconfig, server.data_dir.parent)


def account(namespace: str, team: str = "blue", name: str = "app") -> str:
    labels = f"{{team: {team}}}"
    return (
        "apiVersion: v1\nkind: ServiceAccount\n"
        f"metadata: {{name: {name}, namespace: {namespace}, labels: {labels}}}\n"
        "secrets: [{name: one}]\n"
    )


def secret_names(kubectl: Kubectl, namespace: str) -> list[str]:
    said = kubectl("-n", namespace, "get", "sa", "app", "-o", "jsonpath={.secrets[*].name}")
    return said.out.split()


def ask_for_certificate(kubectl: Kubectl, place: Path, name: str) -> None:
    request = base64.b64encode(new_request(place / f"{name}.key", "/O=devs/CN=jane")).decode()
    kubectl("create", "-f", "-", stdin=CERTIFICATE_REQUEST.format(name=name, request=request))


def test_get_prints_what_is_asked_for(kubectl: Kubectl) -> None:
    """Tables, labels, selectors, sorting, and objects in every form."""
    for name, team in (("a", "blue"), ("b", "green"), ("c", "green")):
        kubectl("create", "-f", "-", stdin=account("gets", team, name))
    get = ("-n", "gets", "get", "sa")

    assert kubectl(*get, "-L", "team", "-l", "team").rows[0][::2] == ["a", "blue"]
    kubectl(*get, "b", "--show-labels").says("team=green")
    assert kubectl(*get, "-l", "team=green", "-o", "name").lines == [
        "serviceaccount/b",
        "serviceaccount/c",
    ]
    kubectl(*get, "-l", "team in (blue),!other", "-o", "name").says("serviceaccount/a")
    chosen = kubectl(*get, "--field-selector", "metadata.name=c", "-o", "json")
    assert [item["metadata"]["name"] for item in json.loads(chosen.out)["items"]] == ["c"]
    assert yaml.safe_load(kubectl(*get, "a", "-o", "yaml").out)["metadata"]["name"] == "a"
    sorted_names = kubectl(*get, "-l", "team", "--sort-by=.metadata.labels.team", "--no-headers")
    assert sorted_names.lines[0].split()[0] == "a"
    kubectl(*get, "-o", "custom-columns=N:.metadata.name,T:.metadata.labels.team").says("green")
    kubectl(*get, "-o", "go-template={{range .items}}{{.metadata.name}} {{end}}").says("a b c")
    kubectl("get", "sa", "-A").says("NAMESPACE", "kube-system", "gets")
    kubectl.fails(*get, "nobody").says('serviceaccounts "nobody" not found')
    kubectl(*get, "-l", "team=none").says("No resources found in gets namespace")


def test_get_reads_in_chunks(kubectl: Kubectl) -> None:
    """A small chunk changes the number of requests and nothing else."""
    whole = kubectl("get", "clusterroles", "-o", "name")
    pages = kubectl("get", "clusterroles", "-o", "name", "--chunk-size=7", "-v=6")
    table = kubectl("get", "clusterroles", "--chunk-size=7", "--no-headers")

    assert pages.out == whole.out
    assert len(table.lines) == len(whole.lines) > 14
    assert pages.err.count("&limit=7") >= 2, str(pages)


def test_get_follows_what_happens(kubectl: Kubectl) -> None:
    """-w prints what is there, then every change, with the events when asked for."""
    kubectl("create", "ns", "follow")
    kubectl("-n", "follow", "create", "sa", "first")
    words = ("-n", "follow", "get", "sa", "--field-selector", "metadata.name!=default")

    with kubectl.started(*words, "-w", "--output-watch-events") as watch:
        assert watch.stdout is not None
        giving_up = threading.Timer(30, watch.kill)
        giving_up.start()
        seen = [watch.stdout.readline().split()[:2] for _ in range(2)]
        kubectl("-n", "follow", "create", "sa", "second")
        kubectl("-n", "follow", "label", "sa", "second", "a=b")
        kubectl("-n", "follow", "delete", "sa", "second")
        seen += [watch.stdout.readline().split()[:2] for _ in range(3)]
        giving_up.cancel()

    assert seen == [
        ["EVENT", "NAME"],
        ["ADDED", "first"],
        ["ADDED", "second"],
        ["MODIFIED", "second"],
        ["DELETED", "second"],
    ]


def test_every_kind_has_a_table(kubectl: Kubectl, server: Server, tmp_path: Path) -> None:
    """Each kind is created, printed without an unknown cell, and described."""
    anchor = json.dumps((server.data_dir / "ca.crt").read_text())
    here = ("-n", "kinds", "create")
    kubectl("create", "ns", "kinds")
    kubectl(
        "create",
        "-f",
        "-",
        stdin=OTHERS.format(name="kinds", anchor=anchor, stub=STUB, digest=DIGEST),
    )
    kubectl(*here, "serviceaccount", "it")
    kubectl(*here, "role", "it", "--verb=get,list", "--resource=pods")
    kubectl(*here, "rolebinding", "it", "--role=it", "--serviceaccount=kinds:it")
    kubectl("create", "clusterrole", "kinds", "--verb=get", "--non-resource-url=/metrics")
    kubectl("create", "clusterrolebinding", "kinds", "--clusterrole=kinds", "--group=readers")
    kubectl(*here, "secret", "generic", "it", "--from-literal=word=hidden")
    kubectl(*here, "configmap", "it", "--from-literal=word=shown")
    ask_for_certificate(kubectl, tmp_path, "kinds")
    kubectl("certificate", "approve", "kinds")
    issued = ("get", "issuedcertificates", "-w", "-o", r'jsonpath={.metadata.name}{"\n"}')
    serial = first_line(kubectl, *issued)
    kinds_of_server = ("api-resources", "--verbs=list", "-o", "name")
    listed = kubectl(*kinds_of_server).lines
    namespaced = kubectl(*kinds_of_server, "--namespaced=true").lines

    kinds = {name.partition(".")[0] for name in listed}
    missing = sorted(kinds - COLUMNS.keys())
    assert not missing, f"give {missing} a row in COLUMNS and an object in OTHERS of this file"
    assert kinds == COLUMNS.keys()
    for resource in listed:
        kind = resource.partition(".")[0]
        table = kubectl("-n", "kinds", "get", resource, "-o", "wide")
        assert re.sub(r"\s+", " ", table.lines[0]).strip() == COLUMNS[kind]
        assert "<unknown>" not in table.out, str(table)
        assert_ages(table.lines, {"it", "kinds"})
        name = "it" if resource in namespaced else "kinds"
        named = {
            "issuedcertificates": serial,
            "signingkeys": "tokens-1",
            "consolesessions": DIGEST,
            "publishedbundles": "kinds-bundle",
        }
        name = named.get(kind, name)
        there = [line.split()[0] for line in table.lines[1:]]
        assert kind == "events" or name in there, f"put a {kind} named {name} into OTHERS"
        described = kubectl("-n", "kinds", "describe", resource, name)
        described.says("Name:")
        assert "<unknown>" not in described.out, str(described)
        assert "hidden" not in described.out


def assert_ages(lines: list[str], names: set[str]) -> None:
    """The age of what this test made is that of a moment."""
    header = lines[0]
    if (start := header.find(" AGE")) < 0:
        return
    for line in lines[1:]:
        if line.split()[0] in names:
            assert A_MOMENT.match(line[start:].split()[0]), line


def test_describe_shows_the_fields_of_each_kind(kubectl: Kubectl) -> None:
    """describe joins what belongs together: tokens, events, subjects, rules."""
    here = ("-n", "described")
    kubectl(*here, "create", "sa", "app")
    kubectl(*here, "apply", "-f", "-", stdin=TOKEN_SECRET)
    filled = ("get", "secret", "app-token", "-w", "-o", r'jsonpath={.data.token}{"\n"}')
    assert first_line(kubectl, *here, *filled)

    described = kubectl(*here, "describe", "sa", "app").says("Secret app-token filled.")
    if kubectl.release < (1, 36):  # newer ones leave the tokens out
        described.says("Tokens:", "app-token")
    kubectl("describe", "clusterrole", "view").says("PolicyRule", "[get list watch]")
    kubectl("describe", "ns", "described").says("Status:", "Active")


TOKEN_SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: app-token, annotations: {kubernetes.io/service-account.name: app}}
type: kubernetes.io/service-account-token
"""


def test_create_makes_what_it_has_words_for(kubectl: Kubectl, server: Server) -> None:
    """The typed forms of create, dry runs, and a second time."""
    here = ("-n", "makes", "create")
    certificate, key = server.data_dir / "serving.crt", server.data_dir / "serving.key"

    kubectl("create", "namespace", "makes").says("namespace/makes created")
    kubectl(*here, "sa", "app").says("serviceaccount/app created")
    kubectl(*here, "secret", "tls", "tls", f"--cert={certificate}", f"--key={key}")
    registry = ("--docker-server=x", "--docker-username=u", "--docker-password=p")
    kubectl(*here, "secret", "docker-registry", "pull", *registry)
    kubectl(*here, "role", "app", "--verb=get", "--resource=pods,secrets", "--resource-name=one")
    kubectl(*here, "clusterrole", "makes", "--verb=get,watch", "--resource=csr")
    kubectl(*here, "rolebinding", "app", "--clusterrole=view", "--user=jane", "--group=devs")
    kubectl(*here, "configmap", "app", f"--from-file=ca={server.data_dir / 'ca.crt'}")
    kubectl("-n", "makes", "run", "app", "--image=example.test/app").says("pod/app created")
    kubectl.fails(*here, "sa", "app").says('serviceaccounts "app" already exists')
    dry = kubectl(*here, "sa", "dry", "--dry-run=server", "-o", "yaml")
    kubectl(*here, "sa", "dry", "--dry-run=client").says("created (dry run)")

    assert yaml.safe_load(dry.out)["metadata"]["uid"]
    kubectl.fails("-n", "makes", "get", "sa", "dry").says("(NotFound)")
    kubectl("-n", "makes", "get", "role", "app", "-o", "yaml").says("resourceNames:", "- one")
    types = kubectl("-n", "makes", "get", "secrets", "--no-headers").out
    assert "kubernetes.io/tls" in types
    assert "kubernetes.io/dockerconfigjson" in types


def test_apply_by_the_client(kubectl: Kubectl) -> None:
    """apply creates, changes, leaves alone, removes what is no longer said, and prunes."""
    apply = ("apply", "-f", "-")

    kubectl(*apply, stdin=account("client")).says("created")
    kubectl(*apply, stdin=account("client")).says("unchanged")
    kubectl("diff", "-f", "-", stdin=account("client"))
    changed = kubectl.fails("diff", "-f", "-", stdin=account("client", "green"))
    kubectl(*apply, "--dry-run=server", stdin=account("client", "green")).says("server dry run")
    kubectl(*apply, stdin=account("client", "green")).says("configured")
    kubectl("-n", "client", "apply", "view-last-applied", "sa/app").says("team: green")
    kubectl(*apply, stdin=account("client").replace("secrets", "imagePullSecrets"))
    left = secret_names(kubectl, "client")
    more = account("client", "pruned", "other")
    kubectl(*apply, stdin=more)
    only = "--prune-allowlist" if kubectl.release >= (1, 26) else "--prune-whitelist"
    some = ("--prune", "-l", "team=pruned", f"{only}=core/v1/ServiceAccount")
    prune = (*apply, "-n", "client", *some)
    kubectl(*prune, stdin=account("client", "pruned", "kept")).says("other pruned")

    changed.says("-    team: blue", "+    team: green")
    assert left == []


def test_apply_by_the_server(kubectl: Kubectl) -> None:
    """A second manager meets a conflict, by name, and may insist."""
    apply = ("apply", "--server-side", "-f", "-")

    kubectl(*apply, stdin=account("managed")).says("serverside-applied")
    other = kubectl.fails(*apply, "--field-manager=other", stdin=account("managed", "green"))
    forced = (*apply, "--field-manager=other", "--force-conflicts")
    kubectl(*forced, stdin=account("managed", "green"))
    shown = ("--show-managed-fields",) if kubectl.release >= (1, 21) else ()
    fields = kubectl("-n", "managed", "get", "sa", "app", "-o", "json", *shown)

    other.says('conflict with "kubectl": .metadata.labels.team')
    managers = json.loads(fields.out)["metadata"]["managedFields"]
    assert {entry["manager"] for entry in managers} == {"kubectl", "other"}


def test_replace_and_edit(kubectl: Kubectl) -> None:
    """replace updates the object, --force recreates it, edit sends the change of an editor."""
    kubectl("create", "-f", "-", stdin=account("whole"))
    first = kubectl("-n", "whole", "get", "sa", "app", "-o", "jsonpath={.metadata.uid}").out

    kubectl("replace", "-f", "-", stdin=account("whole", "green")).says("replaced")
    stale = account("whole").replace("name: app", 'resourceVersion: "1", name: app')
    kubectl.fails("replace", "-f", "-", stdin=stale).says("(Conflict)")
    editor = "sed -i s/green/edited/"
    kubectl("-n", "whole", "edit", "sa", "app", KUBE_EDITOR=editor).says("app edited")
    kubectl("-n", "whole", "get", "sa", "app", "--show-labels").says("team=edited")
    kubectl("replace", "--force", "-f", "-", stdin=account("whole")).says("deleted", "replaced")
    second = kubectl("-n", "whole", "get", "sa", "app", "-o", "jsonpath={.metadata.uid}").out

    assert first != second


def test_patch_of_every_type(kubectl: Kubectl) -> None:
    """The strategic patch joins lists by name, the merge patch replaces, the JSON patch points."""
    kubectl("create", "-f", "-", stdin=account("patched"))
    patch = ("-n", "patched", "patch", "sa", "app")

    kubectl(*patch, "-p", '{"secrets":[{"name":"two"}]}').says("app patched")
    joined = secret_names(kubectl, "patched")
    kubectl(*patch, "--type=merge", "-p", '{"secrets":[{"name":"three"}]}')
    replaced = secret_names(kubectl, "patched")
    kubectl(*patch, "--type=json", "-p", '[{"op":"remove","path":"/secrets/0"}]')
    nothing = kubectl(*patch, "-p", '{"secrets":[]}')
    bad = kubectl.fails(*patch, "--type=json", "-p", '[{"op":"remove","path":"/no/where"}]')

    assert sorted(joined) == ["one", "two"]
    assert replaced == ["three"]
    assert secret_names(kubectl, "patched") == []
    nothing.says("no change")
    bad.says("The request is invalid")


def test_label_and_annotate(kubectl: Kubectl) -> None:
    """Labels and annotations are set, kept from being overwritten, replaced and removed."""
    kubectl("create", "-f", "-", stdin=account("marked"))
    label = ("-n", "marked", "label", "sa", "app")

    kubectl(*label, "a=1").says("labeled")
    kubectl.fails(*label, "a=2").says("already has a value")
    kubectl(*label, "--overwrite", "a=2")
    kubectl(*label, "team-")
    kubectl("-n", "marked", "label", "sa", "--all", "all=yes")
    kubectl("-n", "marked", "annotate", "sa", "app", "note=read me").says("annotate")  # 1.27: so
    kubectl.fails(*label, "bad=not/a/value").says("invalid label value")

    meta = json.loads(kubectl("-n", "marked", "get", "sa", "app", "-o", "json").out)["metadata"]
    assert meta["labels"] == {"a": "2", "all": "yes"}
    assert meta["annotations"]["note"] == "read me"


OWNED = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: {namespace}
  ownerReferences:
  - {{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}, blockOwnerDeletion: true}}
"""


@pytest.mark.parametrize(
    ("cascade", "kept"), [("background", False), ("foreground", False), ("orphan", True)]
)
def test_delete_in_every_mode(kubectl: Kubectl, cascade: str, kept: bool) -> None:
    """Dependents are deleted with their owner, before it, or stay as orphans."""
    here = ("-n", f"cascade-{cascade}")
    kubectl(*here, "create", "configmap", "owner")
    uid = kubectl(*here, "get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}").out
    owned = OWNED.format(name="owned", namespace=here[1], uid=uid)
    kubectl("create", "-f", "-", stdin=owned)

    kubectl(*here, "delete", "configmap", "owner", f"--cascade={cascade}").says("deleted")
    if not kept:  # this kubectl fails when it has gone already
        kubectl.run(*here, "wait", "--for=delete", "configmap/owned", "--timeout=20s")
    left = kubectl(*here, "get", "configmap", "owned", "-o", "json", "--ignore-not-found").out

    assert bool(left) is kept
    if kept:
        assert "ownerReferences" not in json.loads(left)["metadata"]


def test_delete_of_many(kubectl: Kubectl) -> None:
    """By selector, all at once, with a whole namespace, and not there at all."""
    here = ("-n", "many")
    kubectl("create", "ns", "many")
    for name in ("a", "b", "c"):
        kubectl(*here, "create", "configmap", name)
    kubectl(*here, "label", "configmap", "a", "team=blue")

    kubectl(*here, "delete", "configmap", "-l", "team=blue").says('"a" deleted')
    kubectl(*here, "delete", "configmap", "b", "--now").says('"b" deleted')
    kubectl(*here, "delete", "configmaps", "--all", "--wait=false").says('"c" deleted')
    kubectl.fails(*here, "delete", "configmap", "c").says("(NotFound)")
    kubectl(*here, "delete", "configmap", "c", "--ignore-not-found")
    kubectl("delete", "ns", "many").says('namespace "many" deleted')
    kubectl.fails("get", "ns", "many").says('namespaces "many" not found')


def test_wait(kubectl: Kubectl, tmp_path: Path) -> None:
    """wait returns when a condition comes, when an object goes, and when time is up."""
    ask_for_certificate(kubectl, tmp_path, "awaited")
    kubectl("-n", "awaits", "create", "configmap", "going")
    words = ("wait", "--for=condition=Approved", "csr/awaited", "--timeout=30s")

    with kubectl.started(*words) as waiting:
        kubectl("certificate", "approve", "awaited")
        approved = waiting.communicate(timeout=30)[0]
    going = ("-n", "awaits", "wait", "--for=delete", "configmap/going", "--timeout=30s", "-v=6")
    with kubectl.started(*going) as waiting:
        assert waiting.stdout is not None
        assert any("watch=true" in line for line in waiting.stdout)  # it has seen the object
        kubectl("-n", "awaits", "delete", "configmap", "going")
        gone = waiting.communicate(timeout=30)[0]
    late = kubectl.fails("wait", "--for=condition=Denied", "csr/awaited", "--timeout=1s")

    assert "condition met" in approved
    assert "condition met" in gone
    late.says("timed out waiting for the condition")


def test_what_the_server_has(kubectl: Kubectl, server: Server) -> None:
    """api-resources, api-versions, explain, version and raw pages."""
    wide = kubectl("api-resources", "-o", "wide", "--api-group=certificates.k8s.io")
    versions = kubectl("api-versions").lines

    wide.says("csr", "CertificateSigningRequest")
    assert re.search(r"create.delete.deletecollection.get.list.patch.update.watch", wide.out)
    kubectl("api-resources", "--namespaced=false", "-o", "name").says("nodes", "namespaces")
    assert "certificates.k8s.io/v1" in versions
    assert "v1" in versions
    kubectl("explain", "csr.spec.usages").says("FIELD:", "usages <[]string>", "DESCRIPTION:")
    kubectl("explain", "sa", "--recursive").says("automountServiceAccountToken\t<boolean>")
    # A program built from source has no version to compare, and says so by its exit code.
    version = json.loads(kubectl.run("version", "-o", "json").out)["serverVersion"]
    assert (version["major"], version["gitVersion"][:2]) == ("1", "v1")
    assert kubectl("get", "--raw", "/readyz").out == "ok"
    keys = kubectl("get", "--raw", "/openid/v1/jwks")
    assert json.loads(keys.out)["keys"]
    kubectl("get", "all", "-A")


def test_who_may_do_what(kubectl: Kubectl) -> None:
    """can-i answers for the caller and for other users; --list lists all rights."""
    binding = ("create", "clusterrolebinding", "may", "--clusterrole=view", "--user=may")
    kubectl(*binding)

    kubectl("auth", "can-i", "create", "sa").says("yes")
    kubectl("auth", "can-i", "*", "*").says("yes")
    kubectl("--as=may", "auth", "can-i", "list", "pods", "-n", "default").says("yes")
    assert kubectl.fails("--as=may", "auth", "can-i", "create", "sa").out == "no\n"
    assert kubectl.fails("--as=may", "auth", "can-i", "get", "secrets").out == "no\n"
    kubectl("--as=may", "auth", "can-i", "get", "/version").says("yes")
    kubectl.fails("--as=may", "auth", "can-i", "create", "sa", "--subresource=token").says("no")
    kubectl("--as=may", "auth", "can-i", "--list").says("Non-Resource URLs", "[get list watch]")


def test_acting_as_another(kubectl: Kubectl, server: Server, tmp_path: Path) -> None:
    """--as and --as-group take the rights of another, for those who may."""
    kubectl("-n", "acting", "create", "sa", "app")
    reader = config_with(kubectl, tmp_path, {"token": "reader-token"})

    kubectl("--as=jane", "--as-group=system:masters", "-n", "acting", "get", "sa").says("app")
    kubectl.fails("--as=jane", "--as-group=devs", "get", "sa").says(
        '(Forbidden): serviceaccounts is forbidden: User "jane" cannot list'
    )
    kubectl.fails("--as=system:serviceaccount:acting:app", "-n", "acting", "get", "pods").says(
        'User "system:serviceaccount:acting:app" cannot list resource "pods"'
    )
    reader.fails("--as=jane", "get", "--raw", "/api/v1/namespaces").says(
        'User "reader" cannot impersonate resource "users"'
    )


def config_with(kubectl: Kubectl, place: Path, user: object) -> Kubectl:
    """The same server with another user."""
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    config["users"][0]["user"] = user
    path = place / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return Kubectl(path, place)


def test_certificates_are_approved_and_denied(
    kubectl: Kubectl, server: Server, tmp_path: Path
) -> None:
    """An approved request brings a certificate that kubectl then speaks with."""
    for name in ("wanted", "unwanted"):
        ask_for_certificate(kubectl, tmp_path, name)

    kubectl("certificate", "approve", "wanted").says("wanted approved")
    kubectl("certificate", "deny", "unwanted").says("unwanted denied")
    certificate = issued(kubectl, "wanted")
    table = {row[0]: row[-1] for row in kubectl("get", "csr").rows}
    jane = config_with(
        kubectl,
        tmp_path,
        {"client-certificate-data": certificate, "client-key": str(tmp_path / "wanted.key")},
    )

    approver = "jsonpath={.items[?(@.spec.request.name=='wanted')].spec.approver.username}"

    assert table["wanted"] == "Approved,Issued"
    assert table["unwanted"] == "Denied"
    assert kubectl("get", "issuedcertificates", "-o", approver).out == "orchid-admin"
    kubectl("describe", "csr", "wanted").says("Common Name:", "jane", "devs", "Approved,Issued")
    jane.fails("get", "sa").says('User "jane" cannot list')


def issued(kubectl: Kubectl, name: str) -> str:
    """The certificate of an approved request, as soon as it is there."""
    wanted = r'jsonpath={.status.certificate}{"\n"}'
    return first_line(kubectl, "get", "csr", name, "-w", "-o", wanted)


def first_line(kubectl: Kubectl, *words: str) -> str:
    """Wait for the first line, of a command that watches, that is not empty."""
    with kubectl.started(*words) as watch:
        assert watch.stdout is not None
        giving_up = threading.Timer(30, watch.kill)
        giving_up.start()
        found = next((line for line in watch.stdout if line.strip()), "")
        giving_up.cancel()
    return found.strip()


EXEC_PLUGIN = """\
import json
said = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}
print(json.dumps(said | {"status": {"token": "reader-token"}}))
"""


def test_credentials_of_a_program(kubectl: Kubectl, tmp_path: Path) -> None:
    """A kubeconfig may name a program that gives the token."""
    plugin = tmp_path / "credentials.py"
    plugin.write_text(EXEC_PLUGIN)
    reader = config_with(
        kubectl,
        tmp_path,
        {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": sys.executable,
                "args": [str(plugin)],
            }
        },
    )

    reader.fails("get", "secrets").says('User "reader" cannot list resource "secrets"')
    reader("config", "view", "--minify").says("client.authentication.k8s.io/v1beta1")


RULES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: app, namespace: rules}
rules: [{apiGroups: [""], resources: [pods], verbs: [VERBS]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: app, namespace: rules}
subjects: [{kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: app}
"""


def test_rules_are_reconciled(kubectl: Kubectl) -> None:
    """auth reconcile adds what is missing and says so; set subject changes a binding."""
    reconcile = ("auth", "reconcile", "-f", "-")

    kubectl(*reconcile, stdin=RULES.replace("VERBS", "get")).says("reconciliation required create")
    again = kubectl(*reconcile, stdin=RULES.replace("VERBS", "get"))
    kubectl(*reconcile, stdin=RULES.replace("VERBS", "get, list")).says("missing rules added")
    kubectl("-n", "rules", "set", "subject", "rolebinding", "app", "--user=joe").says("updated")

    assert "required" not in again.out
    kubectl("--as=joe", "-n", "rules", "auth", "can-i", "list", "pods").says("yes")


def test_nodes_are_marked_and_drained(kubectl: Kubectl, server: Server) -> None:
    """cordon, taint and drain change Nodes and Pods as objects."""
    anchor = json.dumps((server.data_dir / "ca.crt").read_text())
    kubectl(
        "create",
        "-f",
        "-",
        stdin=OTHERS.format(name="drained", anchor=anchor, stub=STUB, digest="b" * 64),
    )

    kubectl("cordon", "drained").says("cordoned")
    kubectl("taint", "nodes", "drained", "a=b:NoSchedule").says("tainted")
    kubectl("uncordon", "drained").says("uncordoned")
    kubectl("drain", "drained", "--force").says("pod/it deleted")

    node = json.loads(kubectl("get", "node", "drained", "-o", "json").out)
    assert node["spec"]["unschedulable"] is True
    assert {"key": "a", "value": "b", "effect": "NoSchedule"} in node["spec"]["taints"]
    kubectl.fails("-n", "drained", "get", "pod", "it").says("(NotFound)")


def test_proxy_passes_requests_on(kubectl: Kubectl) -> None:
    """proxy speaks plain HTTP on this side, and stays who started it on the other."""
    with kubectl.started("proxy", "--port=0") as proxy:
        assert proxy.stdout is not None
        address = proxy.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"http://{address}/api/v1/namespaces/default") as answer:
            found = json.load(answer)

    assert found["metadata"]["name"] == "default"


CANNOT = {
    "cluster-info": 'the server doesn\'t have a resource type "services"',
    "rollout status deployment/app": 'doesn\'t have a resource type "deployment"',
    "top nodes": "Metrics API not available",
    "get componentstatuses": 'doesn\'t have a resource type "componentstatuses"',
    "logs app": "the server could not find the requested resource",
    "exec app -- ls": "the server could not find the requested resource",
    "port-forward pod/app 8080": "unable to forward port because pod is not running",
    "expose pod app --port=80": 'no matches for kind "Service"',
}


def test_what_cannot_work_says_so(kubectl: Kubectl) -> None:
    """Commands that need a missing feature fail immediately; each is listed with the reason."""
    listed = (ROOT / "docs" / "clients.md").read_text()
    kubectl("-n", "cannot", "run", "app", "--image=example.test/app")

    for words, complaint in CANNOT.items():
        kubectl.fails("-n", "cannot", *words.split()).says(complaint)
        assert f"`kubectl {words.split()[0]}" in listed, words
