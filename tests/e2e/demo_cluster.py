"""Show a revocation in a Kubernetes cluster: an unmodified kube-apiserver asks two Orchid servers.

    make demo-cluster KUBE_APISERVER=path/to/kube-apiserver

Two tokens of an account and two certificates of a user work, with kubectl and the Python client.
`orchid revoke … --cluster` revokes one of each: they get 403, the others go on, also while one of
the two Orchid servers is killed. Then come the times: from a revocation to 403, and of a request
with and without the webhook, on two API servers over one etcd. Every step that does not come out
as it should ends the demonstration with exit code 1.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import os
import platform
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import kubernetes
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.e2e import kube_apiserver
from tests.e2e.balancer import balancing
from tests.e2e.demo_revocation import Unexpected, require, say, summed_up, until
from tests.e2e.https import Https
from tests.e2e.kube_apiserver import ApiServer, ClusterFiles, Identity
from tests.e2e.kubectl import Kubectl
from tests.e2e.serving import Server, running_server, sealing_flags
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.store import etcd_process

NAME = "demo"
PODS = "/api/v1/namespaces/ci/pods"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
TOKENS = "/api/v1/namespaces/ci/serviceaccounts/builder/token"
FORBIDDEN, OK = 403, 200
PATIENCE = 10.0


class Demonstration:
    """A cluster with an API server that asks, one that does not, and two Orchid servers."""

    def __init__(
        self, home: Path, files: ClusterFiles, servers: list[Server], asked: ApiServer
    ) -> None:
        self.home, self.files, self.servers, self.asked = home, files, servers, asked
        self.admin = home / "orchid-admin.pem"
        self.admin.touch(mode=0o600)
        self.admin.write_bytes(identity_of(servers[1].kubeconfig))

    def orchid(self, *words: str, given: bytes = b"") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "orchid", *words],
            cwd=self.home,
            env={**os.environ, "KUBECONFIG": str(self.servers[1].kubeconfig)},
            input=given, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        require(done.returncode == 0, f"orchid {' '.join(words)}: {done.stderr.decode()}")
        return done.stdout.decode()

    # -- credentials ------------------------------------------------------------------------

    def token(self) -> str:
        with Https(self.asked.port, self.files.admin.file) as client:
            answer = client.send("POST", TOKENS, {"spec": {"expirationSeconds": 3600}})
        require(answer.status == 201, answer.body.decode())
        found: str = answer.json["status"]["token"]
        return found

    def kubectl(self, name: str, user: dict[str, str]) -> Kubectl:
        return Kubectl(self.files.kubeconfig(name, self.asked.port, user), self.home)

    # -- the steps ---------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        tokens = [self.token(), self.token()]
        certificates = [self.files.issue("alice", file=f"alice-{n}") for n in range(2)]
        clients = {
            **{
                f"token {n + 1}": self.kubectl(f"token{n}", {"token": t})
                for n, t in enumerate(tokens)
            },
            **{
                f"certificate {n + 1}": Kubectl(
                    self.files.of_certificate(f"alice{n}", self.asked.port, one), self.home
                )
                for n, one in enumerate(certificates)
            },
        }
        for word, client in clients.items():
            client("-n", "ci", "get", "pods")
            say(f"kubectl with {word}: allowed")
        self.orchid("revoke", "token", "--yes", "--cluster", NAME, given=tokens[0].encode())
        self.orchid(
            "revoke", "certificate", "--yes", "--cluster", NAME, given=certificates[0].chain
        )
        for word in ("token 1", "certificate 1"):
            said = clients[word].fails("-n", "ci", "get", "pods").says("Forbidden", "revoked by")
            say(f"kubectl with {word}: {said.err.strip()}")
        for word in ("token 2", "certificate 2"):
            clients[word]("-n", "ci", "get", "pods")
            say(f"kubectl with {word}: allowed")
        self._python_client(tokens)
        self._inventory()
        self._doctor()
        with self.others(tokens[1], certificates[1]) as counted:
            times = self.measure(rounds)
            say(f"from the acknowledged revocation to 403, {rounds} samples: {summed_up(times)}")
            self.servers[0].kill()
            say("one of two Orchid servers was killed")
            after = self.measure(max(10, rounds // 10))
            say(f"the same with one server left: {summed_up(after)}")
        say(f"meanwhile {counted['allowed']} requests with the other two: none refused")
        require(counted["allowed"] and not counted["refused"], f"valid ones: {counted}")

    def _python_client(self, tokens: list[str]) -> None:
        for number, (token, expected) in enumerate(zip(tokens, (FORBIDDEN, OK), strict=True)):
            configuration = kubernetes.client.Configuration()
            file = self.files.kubeconfig(f"python{number}", self.asked.port, {"token": token})
            kubernetes.config.load_kube_config(str(file), client_configuration=configuration)
            with kubernetes.client.ApiClient(configuration) as client:
                try:
                    kubernetes.client.CoreV1Api(client).list_namespaced_pod("ci")
                    status = OK
                except kubernetes.client.ApiException as refusal:
                    status = refusal.status
            require(status == expected, f"the Python client got {status}")
            say(f"the Python client with token {number + 1}: {status}")

    def _inventory(self) -> None:
        """A certificate that the cluster issued for a request is recorded, and revoked by it."""
        key = ec.generate_private_key(ec.SECP256R1())
        asked = samples.request("alice", key=key)
        chain = samples.certificate_for(self.files.authority, asked)
        with Https(self.asked.port, self.files.admin.file) as client:
            issue(client, asked, chain)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file = self.files.write("recorded.pem", chain + pem)
        words = ("issued", "--cluster", NAME)
        until(lambda: json.loads(self.orchid(*words, "-o", "json")) != [], "nothing is recorded")
        for line in self.orchid(*words).splitlines():
            say(f"  {line}")
        with Https(self.asked.port, file) as client:
            require(client.send("GET", PODS).status == OK, "the certificate does not work")
            self.orchid("revoke", "csr/laptop", "--yes", "--cluster", NAME)
            require(client.send("GET", PODS).status == FORBIDDEN, "the certificate works")
        say("the certificate of the request laptop is recorded, and was revoked by its name")

    def _doctor(self) -> None:
        words = ("cluster", "doctor", NAME, "--kubeconfig", str(self.asked.kubeconfig))
        for line in self.orchid(*words).splitlines():
            say(f"  {line}")

    # -- figures -----------------------------------------------------------------------------

    def measure(self, rounds: int) -> list[float]:
        """Revoke new credentials, a token and a certificate in turn; the times until 403."""
        times = []
        with Https(self.servers[1].port, self.admin) as admin:
            for number in range(rounds):
                if number % 2:
                    one = self.files.issue("alice", file="sample")
                    target = {"certificate": {"sha256": sha256_of(one)}}
                    client, token = Https(self.asked.port, one.file), ""
                else:
                    token = self.token()
                    target, client = {"token": {"jti": jti_of(token)}}, Https(self.asked.port)
                with client:
                    answer = client.send("GET", PODS, token=token)
                    require(answer.status == OK, f"a new credential got {answer.status}")
                    body = {
                        "metadata": {"generateName": "sample-"},
                        "spec": {"cluster": NAME, **target},
                    }
                    made = admin.send("POST", REVOCATIONS, body)
                    since = time.monotonic()
                    require(made.status == 201, made.body.decode())
                    times.append(until_forbidden(client, token) - since)
        return times

    @contextmanager
    def others(self, token: str, identity: Identity) -> Iterator[dict[str, int]]:
        """Use valid credentials all the time; count what happens to them."""
        counted = {"allowed": 0, "refused": 0}
        stop = threading.Event()

        def use(client: Https, bearer: str) -> None:
            with client:
                while not stop.is_set():
                    status = client.send("GET", PODS, token=bearer).status
                    counted["allowed" if status == OK else "refused"] += 1
                    stop.wait(0.01)

        threads = [
            threading.Thread(target=use, args=(Https(self.asked.port), token)),
            threading.Thread(target=use, args=(Https(self.asked.port, identity.file), "")),
        ]
        for thread in threads:
            thread.start()
        try:
            yield counted
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)


def issue(client: Https, asked: bytes, chain: bytes) -> None:
    """Request, approve and sign a certificate, as a person and the cluster's signer do."""
    spec = {
        "request": base64.b64encode(asked).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    made = client.send("POST", REQUESTS, {"metadata": {"name": "laptop"}, "spec": spec})
    require(made.status == 201, made.body.decode())
    body = made.json
    condition = {"type": "Approved", "status": "True", "reason": "Demo", "message": "approved"}
    body["status"] = {"conditions": [condition]}
    approved = client.send("PUT", f"{REQUESTS}/laptop/approval", body)
    require(approved.status == OK, approved.body.decode())
    body = approved.json
    body["status"]["certificate"] = base64.b64encode(chain).decode()
    signed = client.send("PUT", f"{REQUESTS}/laptop/status", body)
    require(signed.status == OK, signed.body.decode())


def latency(demonstration: Demonstration, plain: ApiServer, count: int) -> None:
    """The same request to both API servers in turn, with one token."""
    token = demonstration.token()
    times: dict[str, list[float]] = {"without": [], "with": []}
    with Https(plain.port) as without, Https(demonstration.asked.port) as asked:
        for number in range(count + 100):
            for word, client in (("without", without), ("with", asked)):
                begun = time.monotonic()
                status = client.send("GET", PODS, token=token).status
                took = time.monotonic() - begun
                require(status == OK, f"a valid token got {status}")
                if number >= 100:  # the first ones open connections and fill caches
                    times[word].append(took)
    for word, found in times.items():
        say(f"a request {word} the webhook, {count} samples: {summed_up(found)}")
    added = sorted(b - a for a, b in zip(times["without"], times["with"], strict=True))
    say(f"added by the webhook, request by request: {summed_up(added)}")
    tails = [sorted(found)[int(0.99 * len(found))] for found in times.values()]
    say(f"added to the 99th percentile: {(tails[1] - tails[0]) * 1000:.1f} ms")


def until_forbidden(client: Https, token: str) -> float:
    """The moment of the first 403."""
    limit = time.monotonic() + PATIENCE
    while client.send("GET", PODS, token=token).status != FORBIDDEN:
        require(time.monotonic() < limit, "the revoked credential is accepted")
    return time.monotonic()


def jti_of(token: str) -> str:
    payload = token.split(".")[1]
    found: str = json.loads(base64.urlsafe_b64decode(payload + "=="))["jti"]
    return found


def sha256_of(identity: Identity) -> str:
    first = identity.chain.decode().partition("-----END CERTIFICATE-----\n")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[0] + first[1])).hexdigest()


def identity_of(kubeconfig: Path) -> bytes:
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    words = ("client-certificate-data", "client-key-data")
    return b"\n".join(base64.b64decode(user[word]) for word in words)


@contextmanager
def orchids(home: Path, etcd: str) -> Iterator[list[Server]]:
    """Two Orchid servers over one etcd."""
    with ExitStack() as running:
        servers: list[Server] = []
        for name in ("one", "two"):
            if servers:
                shutil.copytree(servers[0].data_dir, home / name)
            flags = ["--etcd-servers", etcd, "--service-account-issuer", "https://orchid.demo"]
            flags += sealing_flags(home)
            servers.append(running.enter_context(running_server(home / name, *flags)))
        yield servers


def prepare(admin: Kubectl) -> None:
    """An account and a user who may read Pods."""
    admin("create", "namespace", "ci")
    admin("-n", "ci", "create", "serviceaccount", "builder")
    # No controllers run here, so that `view` is an empty role.
    admin("-n", "ci", "create", "role", "readers", "--verb=get,list", "--resource=pods")
    words = ("--role=readers", "--user=alice", "--serviceaccount=ci:builder")
    admin("-n", "ci", "create", "rolebinding", "readers", *words)


@contextmanager
def balanced(home: Path) -> Iterator[tuple[list[Server], int]]:
    """Two servers over one etcd, and the port before them."""
    with etcd_process.running() as etcd:
        asyncio.run(etcd.wait_healthy())
        with (
            orchids(home, etcd.urls[0]) as servers,
            balancing([one.port for one in servers]) as port,
        ):
            yield servers, port


@contextmanager
def single(home: Path) -> Iterator[tuple[list[Server], int]]:
    """One server on its own file, and its port."""
    with running_server(home / "one", "--service-account-issuer", "https://orchid.demo") as server:
        yield [server, server], server.port


@contextmanager
def demonstration(
    home: Path, program: Path, *, one_server: bool
) -> Iterator[tuple[Demonstration, ApiServer]]:
    files = ClusterFiles(home / "cluster")
    with ExitStack() as running:
        etcd = running.enter_context(etcd_process.running())
        asyncio.run(etcd.wait_healthy())
        store = etcd.urls[0]
        flags = ("--authorization-mode", "Node,RBAC")
        plain = running.enter_context(kube_apiserver.running(program, files, store, *flags))
        started = single(home) if one_server else balanced(home)
        servers, port = running.enter_context(started)
        prepare(Kubectl(plain.kubeconfig, home))
        out = str(home / "files")
        url = f"https://127.0.0.1:{port}"
        words = ("cluster", "add", NAME, "--kubeconfig", str(plain.kubeconfig), "--inventory")
        words += ("--out", out, "--directory", out, "--url", url)
        done = subprocess.run(
            [sys.executable, "-m", "orchid", *words],
            env={**os.environ, "KUBECONFIG": str(servers[1].kubeconfig)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        require(done.returncode == 0, done.stderr)
        say(done.stdout.strip())
        flag = ("--authorization-config", f"{out}/authorization.yaml")
        asked = running.enter_context(kube_apiserver.running(program, files, store, *flag))
        yield Demonstration(home, files, servers, asked), plain


def main() -> int:
    parser = argparse.ArgumentParser(description="Show a revocation in a Kubernetes cluster.")
    parser.add_argument("--kube-apiserver", type=Path, required=True, help="the program")
    parser.add_argument("--rounds", type=int, default=200, help="revocations for the figures")
    parser.add_argument("--requests", type=int, default=2000, help="for the latency")
    parser.add_argument(
        "--latency-of-one-server", action="store_true", help="nothing else, on its own file"
    )
    chosen = parser.parse_args()
    if platform.machine() == "aarch64":
        os.environ.setdefault("ETCD_UNSUPPORTED_ARCH", "arm64")  # as Debian's etcd demands
    with tempfile.TemporaryDirectory() as directory:
        try:
            one = chosen.latency_of_one_server
            started = demonstration(Path(directory), chosen.kube_apiserver, one_server=one)
            with started as (shown, plain):
                latency(shown, plain, chosen.requests)
                if not one:
                    shown.run(chosen.rounds)
        except (Unexpected, kube_apiserver.ApiServerFailed) as problem:
            sys.stderr.write(f"not as it should be: {problem}\n")
            return 1
    say("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
