"""An unmodified kube-apiserver with its authority and keys, for as long as a `with` block lasts.

The program is built or downloaded by the user: its path is given. etcd is the one of the tests. Two
API servers may share one etcd and one authority, as the two of `demo_cluster.py` do.
"""

import base64
import contextlib
import datetime
import ipaddress
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from orchid.kernel.credentials.authorities.authority import Authority
from tests.e2e.serving import free_port

DAY = datetime.timedelta(days=1)
START_SECONDS = 90.0
ISSUER = "https://kubernetes.default.svc"


class ApiServerFailed(Exception):
    """The API server did not start; carries the end of its log."""


@dataclass(frozen=True)
class Identity:
    """A client certificate and its key, in one PEM file and apart."""

    chain: bytes
    key: bytes
    file: Path


class ClusterFiles:
    """The authority, the serving certificate and the token key of a cluster."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.create("cluster", now=now())
        serving = self.authority.issue_serving(
            "kube-apiserver",
            lifetime=DAY,
            now=now(),
            ip_addresses=[ipaddress.ip_address("127.0.0.1")],
        )
        self.write("ca.crt", self.authority.certificate_pem)
        self.write("serving.crt", serving.chain)
        self.write("serving.key", serving.key.reveal().encode())
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.write("sa.key", _pem(key))
        self.admin = self.issue("admin", "system:masters")

    def write(self, name: str, data: bytes) -> Path:
        file = self.home / name
        file.touch(mode=0o600)
        file.write_bytes(data)
        return file

    def issue(self, user: str, *groups: str, file: str = "") -> Identity:
        made = self.authority.issue_client(user, lifetime=DAY, now=now(), groups=groups)
        key = made.key.reveal().encode()
        path = self.write(f"{file or user}.pem", made.chain + key)
        return Identity(made.chain, key, path)

    def kubeconfig(self, name: str, port: int, user: dict[str, str]) -> Path:
        authority = base64.b64encode(self.authority.certificate_pem).decode()
        cluster = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority-data": authority,
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "cluster", "user": name}}],
            "current-context": name,
        }
        return self.write(f"{name}-{port}.kubeconfig", yaml.safe_dump(document).encode())

    def of_certificate(self, name: str, port: int, identity: Identity) -> Path:
        user = {
            "client-certificate-data": base64.b64encode(identity.chain).decode(),
            "client-key-data": base64.b64encode(identity.key).decode(),
        }
        return self.kubeconfig(name, port, user)


@dataclass(frozen=True)
class ApiServer:
    """A kube-apiserver process that we started."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    kubeconfig: Path


@contextlib.contextmanager
def running(
    program: Path, files: ClusterFiles, etcd: str, *flags: str, port: int | None = None
) -> Iterator[ApiServer]:
    """Run kube-apiserver until the block ends."""
    port = port or free_port()
    log = files.home / f"kube-apiserver-{port}.log"
    home = files.home
    command = [
        str(program),
        *("--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", str(port)),
        *(
            "--tls-cert-file",
            f"{home}/serving.crt",
            "--tls-private-key-file",
            f"{home}/serving.key",
        ),
        *("--client-ca-file", f"{home}/ca.crt", "--cert-dir", f"{home}/certs"),
        *("--service-account-issuer", ISSUER),
        *("--service-account-key-file", f"{home}/sa.key"),
        *("--service-account-signing-key-file", f"{home}/sa.key"),
        *("--service-cluster-ip-range", "10.96.0.0/16", "--endpoint-reconciler-type", "none"),
        *flags,
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    kubeconfig = files.of_certificate("admin", port, files.admin)
    server = ApiServer(process, port, log, kubeconfig)
    try:
        _wait_until_ready(server, files)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(server: ApiServer, files: ClusterFiles) -> None:
    tls = ssl.create_default_context(cafile=str(files.home / "ca.crt"))
    tls.load_cert_chain(files.admin.file)
    deadline = time.monotonic() + START_SECONDS
    url = f"https://127.0.0.1:{server.port}/readyz"
    while True:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(url, context=tls, timeout=5) as answer,
        ):
            if answer.status == 200:
                return
        if server.process.poll() is not None or time.monotonic() > deadline:
            tail = server.log.read_text(errors="replace")[-4000:]
            raise ApiServerFailed(f"kube-apiserver is not ready; its log ends:\n{tail}")
        time.sleep(0.2)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
