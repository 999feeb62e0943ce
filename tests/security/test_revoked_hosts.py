"""The attack: the holder of a stolen host key renews while the host is revoked.

`orchid host revoke` revoked the certificates that it had listed, one after the other, while the
server approved renewals: what was issued meanwhile stayed valid, and could be renewed for ever.
"""

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.wire.naming import ORCH
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.unit.kernel.credentials import samples

HOST = "web-1.example.com"
REQUESTS = f"/apis/{ORCH.certificates}/v1/certificatesigningrequests"
WHO = f"/apis/{ORCH.authentication}/v1/selfsubjectreviews"


class Identity:
    """A private key, and the credential that authenticates its holder."""

    def __init__(self, server: Server, home: Path, name: str) -> None:
        self._server, self.name = server, name
        self._files = home / f"{name}.crt", home / f"{name}.key"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._token = ""
        self._files[1].touch(mode=0o600)
        self._files[1].write_bytes(
            self._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    def body(self) -> dict[str, Any]:
        """The request for a certificate of the host, with the key of this identity."""
        request = samples.request(f"system:node:{HOST}", ("system:nodes",), key=self._key)
        spec = {
            "request": base64.b64encode(request).decode(),
            "signerName": ORCH.node_client_signer,
            "usages": ["digital signature", "client auth"],
        }
        return {"metadata": {"name": self.name}, "spec": spec}

    def has_token(self, token: str) -> None:
        self._token = token

    def has_certificate(self, chain: bytes) -> None:
        self._files[0].write_bytes(chain)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=self._server.data_dir / "ca.crt")
        headers = {"content-type": "application/json"}
        if self._files[0].exists():
            context.load_cert_chain(*self._files)
        else:
            headers["authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._server.port, context=context, timeout=30
        )
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def is_authenticated(self) -> bool:
        return self.call("POST", WHO, {"kind": "SelfSubjectReview"})[0] == http.client.CREATED

    def gets(self, other: "Identity", stopped: threading.Event) -> bool:
        """Request a certificate for another key, and poll until it is issued."""
        status, _ = self.call("POST", REQUESTS, other.body())
        while status < http.client.BAD_REQUEST and not stopped.is_set():
            status, csr = self.call("GET", f"{REQUESTS}/{other.name}")
            if status == http.client.OK and (chain := csr["status"].get("certificate")):
                other.has_certificate(base64.b64decode(chain))
                return True
        return False


class Thief(threading.Thread):
    """Renews with any certificate that works, each time with another key, until stopped."""

    def __init__(self, start: Identity, server: Server, home: Path, stopped: threading.Event):
        super().__init__(daemon=True)
        self.identities = [start]
        self._server, self._home, self._stopped = server, home, stopped
        self.renewed = threading.Event()

    def run(self) -> None:
        count = 0
        while not self._stopped.is_set():
            count += 1
            name = f"{self.identities[0].name}-{id(self)}-{count}"
            following = Identity(self._server, self._home, name)
            if any(one.gets(following, self._stopped) for one in self.identities[-1:-4:-1]):
                self.identities.append(following)
                self.renewed.set()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("hosts") / "data") as started:
        yield started


def joined(server: Server, person: Person, home: Path, name: str, *flags: str) -> Identity:
    """A host with its first certificate, by a join file."""
    join_file = home / f"{name}.kubeconfig"
    person.types("host", "new", HOST, "--for", "1h", *flags, "--out", str(join_file))
    host = Identity(server, home, name)
    host.has_token(yaml.safe_load(join_file.read_text())["users"][0]["user"]["token"])
    assert host.gets(host, threading.Event())
    return host


def test_nothing_that_a_thief_renews_survives_the_revocation(
    server: Server, tmp_path: Path
) -> None:
    """No certificate of the host is valid afterwards, so none can be renewed; it joins again."""
    person = Person(tmp_path, server.kubeconfig)
    stolen = joined(server, person, tmp_path, "stolen")
    stopped = threading.Event()
    thieves = [Thief(stolen, server, tmp_path, stopped) for _ in range(2)]
    for thief in thieves:
        thief.start()
    for thief in thieves:
        assert thief.renewed.wait(30)

    person.types("host", "revoke", HOST, "--yes", "--reason", "keyCompromise")

    stopped.set()
    for thief in thieves:
        thief.join(30)
    held = [one for thief in thieves for one in thief.identities]
    valid = [one.name for one in held if one.is_authenticated()]
    waiting = person.gets("csr", "list", "--pending")
    assert (valid, waiting) == ([], [])
    assert len(held) > len(thieves)
    again = joined(server, person, tmp_path, "again", "--replace")
    assert again.is_authenticated()
