"""Show a revocation at work: three servers over one etcd, refused everywhere, with the times.

    make demo-revocation

A client watches with a certificate, another with a token. `kubectl create` takes both back. The
watches end, the next requests on the same connections are 401, TokenReview says no on all three
servers, and `openssl verify -crl_check_all` and a real nginx with `ssl_crl` refuse the certificate.
Every step that does not come out as it should ends the demonstration with exit code 1.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.https import Https
from tests.e2e.kubectl import Kubectl
from tests.e2e.serving import Server, free_port, running_server, sealing_flags
from tests.system_packages import require_program
from tests.unit.kernel.store import etcd_process

NAMES = ("one", "two", "three")
WATCH = "/api/v1/namespaces/ci/configmaps?watch=1&timeoutSeconds=3600"
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
PATIENCE = 30.0
REVOCATION = {"apiVersion": "identity.orch.io/v1alpha1", "kind": "CredentialRevocation"}

RBAC = "rbac.authorization.orch.io"
BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "watchers", "namespace": "ci"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
    "subjects": [
        {"apiGroup": RBAC, "kind": "Group", "name": "viewers"},
        {"kind": "ServiceAccount", "name": "builder", "namespace": "ci"},
    ],
}


class Unexpected(Exception):
    """Something did not come out as it should."""


def require(condition: object, text: str) -> None:
    if not condition:
        raise Unexpected(text)


@dataclass
class Watcher:
    """A client with an open watch; records when the server ended it."""

    https: Https
    token: str = ""
    ended: float = 0.0
    begun: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "Watcher":
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        require(self.begun.wait(PATIENCE), "the watch did not begin")
        return self

    def wait(self) -> float:
        self._thread.join(PATIENCE)
        require(self.ended, "the watch went on")
        return self.ended

    def _read(self) -> None:
        for _ in self.https.events(WATCH, token=self.token):
            self.begun.set()
        self.ended = time.monotonic()


class Demonstration:
    """Three servers and what happens on them."""

    def __init__(self, home: Path, servers: list[Server], lists: str) -> None:
        self.home, self.servers, self.lists = home, servers, lists
        self.kubectl = Kubectl(servers[0].kubeconfig, home)
        self.admin = home / "admin.pem"
        self.admin.touch(mode=0o600)
        self.admin.write_bytes(_identity(servers[0].kubeconfig))

    def orchid(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "orchid", *words],
            cwd=self.home,
            env={**os.environ, "KUBECONFIG": str(self.servers[0].kubeconfig)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        require(done.returncode == 0, f"orchid {' '.join(words)}: {done.stderr}")
        return done.stdout

    def create(self, **revocation: Any) -> float:
        """Take something back with kubectl; give the moment at which that was acknowledged."""
        name = f"demo-{time.monotonic_ns()}"
        body = {**REVOCATION, "metadata": {"name": name}, "spec": revocation}
        place = self.home / f"{name}.json"
        place.write_text(json.dumps(body))
        self.kubectl("create", "-f", str(place))
        return time.monotonic()

    def prepare(self) -> str:
        """A certificate and an account that may watch; give a token of the account."""
        say("issuing a certificate to alice, and a token to the account ci/builder")
        self.orchid("csr", "new", "alice", "--group", "viewers")
        self.orchid("csr", "approve", "alice")
        self.orchid("csr", "fetch", "alice")
        pair = (self.home / "alice.crt").read_bytes() + (self.home / "alice.key").read_bytes()
        (self.home / "alice.pem").touch(mode=0o600)
        (self.home / "alice.pem").write_bytes(pair)
        self.orchid("account", "new", "ci/builder")
        self.kubectl("-n", "ci", "create", "configmap", "news", "--from-literal=a=b")
        binding = self.home / "binding.json"
        binding.write_text(json.dumps(BINDING))
        self.kubectl("create", "-f", str(binding))
        return self.orchid("token", "ci/builder").strip()

    @contextmanager
    def connections(self, identity: Path | None = None) -> Iterator[list[Https]]:
        """One to each server, kept open."""
        with ExitStack() as opened:
            yield [opened.enter_context(Https(one.port, identity)) for one in self.servers]

    def run(self, rounds: int, others: int = 0) -> None:
        token = self.prepare()
        with (
            self.connections(self.home / "alice.pem") as by_certificate,
            self.connections() as by_token,
        ):
            accepted(by_certificate)
            accepted(by_token, token)
            watches = {
                "certificate": Watcher(
                    Https(self.servers[1].port, self.home / "alice.pem")
                ).start(),
                "token": Watcher(Https(self.servers[2].port), token).start(),
            }
            say("both are accepted by all three servers, and both watch")
            moment = self.create(certificate={"requestName": "alice"}, reason="keyCompromise")
            self._refused("certificate", by_certificate, "", moment)
            since = {"certificate": moment}
            moment = since["token"] = self.create(token=named(token), reason="superseded")
            self._refused("token", by_token, token, moment)
            for word, watch in watches.items():
                seconds = watch.wait() - since[word]
                delay = f"after {seconds * 1000:.0f} ms" if seconds > 0 else "before kubectl did"
                say(f"{word}: the open watch has ended {delay}")
        self._review(token)
        self._list()
        self._nginx()
        if rounds:
            self.measure(rounds, others)

    def _refused(self, word: str, connections: list[Https], token: str, since: float) -> None:
        for name, connection in zip(NAMES, connections, strict=True):
            seconds = until_refused(connection, token) - since
            say(f"{word}: server {name} says 401 on the same connection, {seconds * 1000:.1f} ms")

    def _review(self, token: str) -> None:
        with self.connections(self.admin) as connections:
            for name, connection in zip(NAMES, connections, strict=True):
                answer = connection.send("POST", REVIEWS, {"spec": {"token": token}}).json
                require(not answer["status"].get("authenticated"), f"{name} accepts the token")
                say(f"TokenReview on server {name}: {answer['status']['error']}")

    def _list(self) -> None:
        """The list: the same from all, with alice's certificate in it."""
        begun = time.monotonic()
        issued = json.loads(self.orchid("issued", "--name", "alice", "-o", "json"))
        serial = issued[0]["spec"]["serialNumber"]
        until(lambda: self._verify() != "good", "the certificate did not come into the list")
        say(f"openssl verify -crl_check_all: {self._verify()}")
        found = {self._fetch(server) for server in self.servers}
        require(len(found) == 1, "servers give different lists")
        say(f"the list with {serial} is the same from all servers, and over plain HTTP")
        with urllib.request.urlopen(f"http://{self.lists}/crl/cluster.crl", timeout=10) as plain:
            der = ssl.PEM_cert_to_DER_cert  # the same bytes between other lines
            text = found.pop().replace("X509 CRL", "CERTIFICATE")
            require(plain.read() == der(text), "plain HTTP gives another list")
        say(f"that took {(time.monotonic() - begun) * 1000:.0f} ms more")

    def _fetch(self, server: Server) -> str:
        with Https(server.port) as anybody:
            answer = anybody.send("GET", "/crl/cluster.pem")
        require(answer.status == 200, f"/crl/cluster.pem: {answer.status}")
        return answer.body.decode()

    def _verify(self) -> str:
        (self.home / "crl.pem").write_text(self._fetch(self.servers[0]))
        done = subprocess.run(
            [
                require_program("openssl"), "verify", "-crl_check_all",
                "-CAfile", self.servers[0].data_dir / "ca.crt",
                "-CRLfile", self.home / "crl.pem", self.home / "alice.crt",
            ],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        said = [line for line in done.stderr.splitlines() if "error" in line]
        return "good" if done.returncode == 0 else said[0]

    def _nginx(self) -> None:
        empty = self.home / "other.crt"
        self.orchid("csr", "new", "other")
        self.orchid("csr", "approve", "other")
        self.orchid("csr", "fetch", "other")
        with nginx(self.home, self.servers[0].data_dir) as port:
            good = nginx_says(port, empty, self.home / "other.key")
            bad = nginx_says(port, self.home / "alice.crt", self.home / "alice.key")
        require(good == "hello", f"nginx refuses a good certificate: {good}")
        require("hello" not in bad, "nginx accepts the revoked certificate")
        say(f"nginx with ssl_crl: another certificate gets '{good}', alice's gets '{bad}'")

    def measure(self, rounds: int, others: int = 0) -> list[float]:
        """From each acknowledged revocation to the last of three refusals; the shortest first.

        The same for the end of three watches, one on each server, beside `others` on each.
        """
        say(f"revoking {rounds} tokens more, one after the other, {others} other watches open")
        times, ends = [], []
        with self.connections() as connections, Https(self.servers[0].port, self.admin) as admin:
            token = self._token(admin)
            for server in self.servers:
                for _ in range(others):
                    Watcher(Https(server.port), token).start()
            for number in range(rounds):
                token = self._token(admin)
                accepted(connections, token)
                watches = [Watcher(Https(one.port), token).start() for one in self.servers]
                body = {
                    **REVOCATION,
                    "metadata": {"name": f"round-{number}"},
                    "spec": {"token": named(token)},
                }
                place = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
                answer = admin.send("POST", place, body)
                since = time.monotonic()
                require(answer.status == 201, answer.body.decode())
                times.append(max(until_refused(one, token) for one in connections) - since)
                ends.append(max(watch.wait() for watch in watches) - since)
        say(f"to the last refusal: {summed_up(times)}")
        say(f"to the end of the last watch: {summed_up(ends)}")
        return sorted(times)

    def _token(self, admin: Https) -> str:
        place = "/api/v1/namespaces/ci/serviceaccounts/builder/token"
        token: str = admin.send("POST", place, {"spec": {}}).json["status"]["token"]
        return token


def summed_up(times: list[float]) -> str:
    found = sorted(seconds * 1000 for seconds in times)
    last = found[min(len(found) - 1, int(len(found) * 0.99))]
    return (
        f"median {statistics.median(found):.1f} ms, 99th percentile {last:.1f} ms, "
        f"longest {found[-1]:.1f} ms"
    )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def accepted(connections: list[Https], token: str = "") -> None:
    for connection in connections:
        status = connection.send("POST", WHO, {}, token=token).status
        require(status == 201, f"not accepted: {status}")


def until_refused(connection: Https, token: str) -> float:
    """The moment of the first 401."""
    limit = time.monotonic() + PATIENCE
    while connection.send("POST", WHO, {}, token=token).status != 401:
        require(time.monotonic() < limit, "the revoked credential is accepted")
    return time.monotonic()


def until(condition: Callable[[], bool], text: str) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        require(time.monotonic() < limit, text)
        time.sleep(0.02)


def named(token: str) -> dict[str, str]:
    payload = token.split(".")[1]
    jti = json.loads(base64.urlsafe_b64decode(payload + "=="))["jti"]
    return {"jti": jti, "namespace": "ci", "name": "builder"}


def _identity(kubeconfig: Path) -> bytes:
    """The administrator's certificate and key, as one file has them."""
    import yaml

    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    words = ("client-certificate-data", "client-key-data")
    return b"\n".join(base64.b64decode(user[word]) for word in words)


@contextmanager
def nginx(home: Path, data: Path) -> Iterator[int]:
    """A real nginx that asks for a certificate and knows the list."""
    port = free_port()
    configuration = home / "nginx.conf"
    configuration.write_text(
        f"""
        {"user root;" if os.geteuid() == 0 else ""}
        daemon off; pid {home}/nginx.pid; error_log {home}/nginx.log;
        events {{}}
        http {{
          access_log off;
          client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
          fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi;
          scgi_temp_path {home}/scgi;
          server {{
            listen 127.0.0.1:{port} ssl;
            ssl_certificate {data}/serving.crt; ssl_certificate_key {data}/serving.key;
            ssl_client_certificate {data}/ca.crt; ssl_verify_client on; ssl_crl {home}/crl.pem;
            location / {{ return 200 "hello"; }}
          }}
        }}
        """
    )
    process = subprocess.Popen([require_program("nginx"), "-c", configuration, "-p", home])
    try:
        until(lambda: _listens(port), "nginx does not listen")
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def nginx_says(port: int, certificate: Path, key: Path) -> str:
    tls = ssl._create_unverified_context()  # noqa: S323 -- who answers is not what is shown
    tls.load_cert_chain(certificate, key)
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/", context=tls, timeout=10) as page:
            return str(page.read().decode())
    except urllib.error.HTTPError as refusal:
        title = refusal.read().decode().partition("<title>")[2].partition("</title>")[0]
        return title or str(refusal.code)


@contextmanager
def demonstration(home: Path) -> Iterator[Demonstration]:
    """Three servers over one etcd, in a directory."""
    lists = f"127.0.0.1:{free_port()}"
    with etcd_process.running() as cluster, ExitStack() as running:
        asyncio.run(cluster.wait_healthy())
        servers: list[Server] = []
        for name in NAMES:
            if servers:
                shutil.copytree(servers[0].data_dir, home / name)
            flags = ["--etcd-servers", cluster.urls[0], "--service-account-issuer", "https://demo"]
            flags += sealing_flags(home)
            flags += ["--crl-listen", lists] if not servers else ["--controllers", ""]
            servers.append(running.enter_context(running_server(home / name, *flags)))
        yield Demonstration(home, servers, lists)


def main() -> int:
    parser = argparse.ArgumentParser(description="Show a revocation at work.")
    parser.add_argument("--rounds", type=int, default=50, help="tokens to revoke for the figures")
    parser.add_argument("--watches", type=int, default=0, help="other watches open on each server")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            with demonstration(Path(directory)) as shown:
                shown.run(chosen.rounds, chosen.watches)
        except Unexpected as problem:
            sys.stderr.write(f"not as it should be: {problem}\n")
            return 1
    say("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
