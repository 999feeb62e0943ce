"""A host joins with kubectl, openssl and curl alone, gets credentials of an account, is revoked."""

import base64
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.issuing import openssl
from tests.e2e.kubectl import Kubectl
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server

pytestmark = pytest.mark.system_package("openssl", "curl", "kubectl")

HOST = "web-1.example.com"
SIGNER = "kubernetes.io/kube-apiserver-client"
REQUEST = """
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {name}}}
spec:
  request: {request}
  signerName: {signer}-kubelet
  usages: [digital signature, client auth]
"""
POD_REQUEST = """
apiVersion: certificates.k8s.io/v1
kind: PodCertificateRequest
metadata: {{name: req-1, namespace: web}}
spec:
  signerName: {signer}-pod
  podName: frontend-{host}
  podUID: {pod}
  serviceAccountName: frontend
  serviceAccountUID: {account}
  nodeName: {host}
  nodeUID: {node}
  stubPKCS10Request: {stub}
"""
TOKEN_REQUEST = """
apiVersion: authentication.k8s.io/v1
kind: TokenRequest
spec:
  audiences: [{audience}]
  boundObjectRef: {{apiVersion: v1, kind: Pod, name: frontend-{host}, uid: {pod}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("hosts")
    with running_server(place / "data", "--naming", "kubernetes") as started:
        yield started


@pytest.fixture
def operator(server: Server, tmp_path: Path) -> Person:
    return Person(tmp_path, server.kubeconfig)


@pytest.fixture
def admin(server: Server, tmp_path: Path) -> Kubectl:
    return Kubectl(server.kubeconfig, tmp_path)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def new_key(path: Path) -> None:
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def first_line(kubectl: Kubectl, *words: str) -> str:
    """The first line with text that a watching command prints."""
    with kubectl.started(*words) as watching:
        giving_up = threading.Timer(60, watching.kill)
        giving_up.start()
        assert watching.stdout is not None
        found = next((line.strip() for line in watching.stdout if line.strip()), "")
        giving_up.cancel()
    assert found, words
    return found


class Joining:
    """A machine with a join file: kubectl as the token, then as the certificate."""

    def __init__(self, home: Path, join_file: Path) -> None:
        home.mkdir(exist_ok=True)
        self.home, self.key = home, home / "node.key"
        self._token = Kubectl(join_file, home)
        new_key(self.key)

    def request(self, name: str, host: str = HOST) -> None:
        subject = f"/O=system:nodes/CN=system:node:{host}"
        request = openssl("req", "-new", "-key", self.key, "-subj", subject)
        body = REQUEST.format(name=name, request=encoded(request), signer=SIGNER)
        self._token("create", "-f", "-", stdin=body)

    def wait(self, name: str) -> Kubectl:
        """kubectl with the certificate."""
        shown = r'jsonpath={.status.certificate}{"\n"}'
        certificate = first_line(self._token, "get", "csr", name, "-w", "-o", shown)
        (self.home / "node.crt").write_bytes(base64.b64decode(certificate))
        joined = yaml.safe_load(self._token.kubeconfig.read_text())
        files = {"client-certificate": str(self.home / "node.crt"), "client-key": str(self.key)}
        joined["users"][0]["user"] = files
        config = self.home / "kubeconfig"
        config.write_text(yaml.safe_dump(joined))
        return Kubectl(config, self.home)


def curl(server: Server, target: str, certificate: Path, key: Path) -> str:
    """The status of a request with a client certificate."""
    words = ["curl", "-s", "-o", "-", "-w", "\n%{http_code}", "--cacert"]
    words += [str(server.data_dir / "ca.crt"), "--cert", str(certificate), "--key", str(key)]
    words += ["-X", "POST", "-H", "content-type: application/json", "-d", "{}"]
    done = subprocess.run(
        [*words, f"{server.url}{target}"], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


def test_from_the_join_file_to_the_revocation(
    server: Server, operator: Person, admin: Kubectl, tmp_path: Path
) -> None:
    """The steps of docs/hosts.md, with programs that every machine has."""
    join_file = tmp_path / "join.kubeconfig"
    operator.types("host", "new", HOST, "--for", "1h", "--out", str(join_file))
    host = Joining(tmp_path / "host", join_file)
    host.request("first")
    node = host.wait("first")
    node("create", "-f", "-", stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {HOST}}}\n")

    admin("create", "namespace", "web")
    operator.types("account", "new", "web/frontend")
    placed = ("host", "place", HOST, "web/frontend", "--audience", "https://vault.example")
    operator.types(*placed, "--api", "--signer", f"{SIGNER}-pod")
    pod = json.loads(node("-n", "web", "get", "pod", f"frontend-{HOST}", "-o", "json").out)
    account = json.loads(node("-n", "web", "get", "sa", "frontend", "-o", "json").out)
    own = json.loads(node("get", "node", HOST, "-o", "json").out)
    tokens = "/api/v1/namespaces/web/serviceaccounts/frontend/token"
    wanted = {"host": HOST, "pod": pod["metadata"]["uid"]}
    asking = ("create", "--raw", tokens, "-f", "-")
    vault = TOKEN_REQUEST.format(audience="https://vault.example", **wanted)
    other = TOKEN_REQUEST.format(audience="https://elsewhere.example", **wanted)
    node(*asking, stdin=_json(vault)).says('"token":')
    node.fails(*asking, stdin=_json(other)).says("not found in pod spec volume")

    workload = tmp_path / "workload.key"
    new_key(workload)
    openssl(
        "req", "-new", "-key", workload, "-subj", "/", "-outform", "DER", "-out", tmp_path / "s"
    )
    body = POD_REQUEST.format(
        signer=SIGNER,
        account=account["metadata"]["uid"],
        node=own["metadata"]["uid"],
        stub=base64.b64encode((tmp_path / "s").read_bytes()).decode(),
        **wanted,
    )
    node("create", "-f", "-", stdin=body)
    requests = ("-n", "web", "get", "podcertificaterequests")
    own_only = f"--field-selector=spec.nodeName={HOST}"
    state = r'jsonpath={.status.conditions[0].type}{"\n"}'
    assert first_line(node, *requests, own_only, "-w", "-o", state) == "Issued"
    chain = node(*requests, "req-1", "-o", "jsonpath={.status.certificateChain}").out
    (tmp_path / "workload.crt").write_text(chain)
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    before = curl(server, who, tmp_path / "workload.crt", workload)
    operator.types("host", "list").stdout.index(HOST)
    assert "web/frontend" in operator.types("host", "show", HOST).stdout
    serial = as_account(node, admin, tmp_path / "account", wanted)

    operator.types("host", "revoke", HOST, "--yes", "--reason", "keyCompromise")

    assert "system:serviceaccount:web:frontend" in before
    assert before.endswith("201")
    assert curl(server, who, tmp_path / "workload.crt", workload).endswith("401")
    node.fails("get", "node", HOST).says("Unauthorized")
    gone = admin.fails("-n", "web", "get", "pod", f"frontend-{HOST}")
    gone.says("NotFound")
    revoked = admin("get", "ic", serial, "-o", "jsonpath={.status.revoked.reason}").out
    assert revoked == "keyCompromise"


def as_account(node: Kubectl, admin: Kubectl, home: Path, wanted: dict[str, str]) -> str:
    """The serial number of a certificate that the host requests with the account's token."""
    asked = yaml.safe_load(TOKEN_REQUEST.format(audience="", **wanted))
    del asked["spec"]["audiences"]
    tokens = "/api/v1/namespaces/web/serviceaccounts/frontend/token"
    answer = node("create", "--raw", tokens, "-f", "-", stdin=json.dumps(asked)).out
    config = yaml.safe_load(node.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": json.loads(answer)["status"]["token"]}
    home.mkdir()
    (home / "kubeconfig").write_text(yaml.safe_dump(config))
    new_key(home / "key")
    request = openssl("req", "-new", "-key", home / "key", "-subj", "/CN=frontend")
    body = REQUEST.format(name="account", request=encoded(request), signer=SIGNER)
    role = ("--clusterrole", "system:node-bootstrapper", "--serviceaccount", "web:frontend")
    admin("create", "clusterrolebinding", "frontend", *role)
    Kubectl(home / "kubeconfig", home)(
        "create", "-f", "-", stdin=body.replace(f"{SIGNER}-kubelet", SIGNER)
    )
    admin("certificate", "approve", "account")
    shown = r'jsonpath={.metadata.name}{"\n"}'
    selector = f"--field-selector=spec.requester.nodeName={HOST}"
    return first_line(admin, "get", "ic", selector, "-w", "-o", shown)


def _json(text: str) -> str:
    return json.dumps(yaml.safe_load(text))


def test_a_copied_join_file_is_worthless_after_the_join(
    operator: Person, admin: Kubectl, tmp_path: Path
) -> None:
    """The second machine waits, with an event that names the certificate.

    --replace ends its request and its file; a machine with the new file joins.
    """
    name = "db-1.example.com"
    join_file = tmp_path / "join.kubeconfig"
    operator.types("host", "new", name, "--out", str(join_file))
    first = Joining(tmp_path / "first", join_file)
    copy = Joining(tmp_path / "copy", join_file)
    first.request("db-first", name)
    first.wait("db-first")
    copy.request("db-copy", name)
    about = "--field-selector=involvedObject.name=db-copy"
    shown = r'jsonpath={.reason}: {.message}{"\n"}'
    event = first_line(admin, "get", "events", about, "-w", "-o", shown)
    undecided = json.loads(admin("get", "csr", "db-copy", "-o", "json").out)["status"]
    copy.request("db-other", "other.example.com")
    about = "--field-selector=involvedObject.name=db-other"
    other_event = first_line(admin, "get", "events", about, "-w", "-o", shown)
    other = json.loads(admin("get", "csr", "db-other", "-o", "json").out)["status"]

    new_file = tmp_path / "again"
    again = operator.types("host", "new", name, "--replace", "--out", str(new_file))
    new = Joining(tmp_path / "new", new_file)
    new.request("db-new", name)
    new.wait("db-new")
    left = admin("get", "csr", "-o", "name").out

    assert event.startswith(f"HostHasCertificate: system:node:{name} has the certificate ")
    assert undecided.get("conditions") is None
    assert "can join" in again.stderr
    assert "db-copy" not in left
    assert other_event.startswith("OtherHost: ")
    assert other.get("conditions") is None


def test_a_copied_join_file_is_worthless_after_the_revocation(
    operator: Person, admin: Kubectl, tmp_path: Path
) -> None:
    """Its request has waited for the end of the certificate: it must not take its place."""
    name = "db-2.example.com"
    join_file = tmp_path / "join.kubeconfig"
    operator.types("host", "new", name, "--out", str(join_file))
    first = Joining(tmp_path / "first", join_file)
    first.request("db2-first", name)
    first.wait("db2-first")
    Joining(tmp_path / "copy", join_file).request("db2-copy", name)

    operator.types("host", "revoke", name, "--yes")

    again = operator.types("host", "new", name, "--out", str(tmp_path / "again"))
    left = admin("get", "csr", "-o", "name").out
    assert "db2-first" in left
    assert "db2-copy" not in left
    assert "has the certificate" not in again.stderr


def test_mistakes_are_explained(operator: Person) -> None:
    """A wrong name, nothing to place, and a host that is not there."""
    bad = operator.types("host", "new", "Web_1", code=2)
    empty = operator.types("host", "place", "x", "web/frontend", code=2)
    nobody = operator.types("host", "show", "nobody", code=1)

    assert "is no name for a host" in bad.stderr
    assert "--audience, --api or --signer" in empty.stderr
    assert "there is no host nobody" in nobody.stderr
