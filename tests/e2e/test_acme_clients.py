"""ACME clients as they are: certbot, lego, dehydrated and uacme get, renew and revoke."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server

POLICY = """
apiVersion: identity.orch.io/v1alpha1
kind: ApprovalPolicy
metadata: {name: web}
spec:
  signerNames: [example.com/servers]
  requesters: {serviceAccounts: [web/frontend]}
  allows:
    commonName: "*.web.example.com"
    dnsNames: ["*.web.example.com"]
    usages: [digital signature, key encipherment, server auth]
    keys: [ECDSA-P256, ECDSA-P384, RSA-2048]
    maxDuration: 2160h
---
apiVersion: rbac.authorization.orch.io/v1
kind: ClusterRole
metadata: {name: use-web}
rules:
- apiGroups: [identity.orch.io]
  resources: [approvalpolicies]
  resourceNames: [web]
  verbs: [use]
"""
DEHYDRATED = """
CA="{server}"
EAB_KID="{kid}"
EAB_HMAC_KEY="{key}"
CURL_OPTS="--cacert {ca}"
BASEDIR={place}
WELLKNOWN={place}/challenges
KEY_ALGO=prime256v1
KEYSIZE=2048
"""
# uacme takes the CAs of the system only: it sees a file of its own in their place.
UACME = """
mount --bind {ca} /etc/ssl/certs/ca-certificates.crt
uacme --confdir {place} --acme-url {server} --eab {kid}:{key} --yes new
uacme --confdir {place} --acme-url {server} --hook /bin/true issue {name}
"""


class Acme(NamedTuple):
    """A server with an authority, a policy, and the external key of an account."""

    server: Server
    operator: Person
    url: str
    kid: str
    key: str

    @property
    def ca(self) -> Path:
        return self.server.data_dir / "ca.crt"

    def environment(self) -> dict[str, str]:
        ca = str(self.ca)
        return {**os.environ, "REQUESTS_CA_BUNDLE": ca, "LEGO_CA_CERTIFICATES": ca}


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acme]:
    place = tmp_path_factory.mktemp("acme")
    with running_server(place / "data") as server:
        operator = Person(place, server.kubeconfig)
        operator.types("ca", "new", "servers", "--signer", "example.com/servers", "--acme")
        operator.types("account", "new", "web/frontend")
        (place / "policy.yaml").write_text(POLICY)
        kubectl = ["kubectl", "--kubeconfig", str(server.kubeconfig), "apply", "-f", "policy.yaml"]
        subprocess.run(kubectl, cwd=place, check=True, capture_output=True)
        operator.types("grant", "use-web", "--account", "web/frontend")
        made = operator.gets("acme", "key", "web/frontend")
        yield Acme(server, operator, made["server"], made["kid"], made["hmacKey"])


class Certbot:
    """certbot with its own directories."""

    def __init__(self, acme: Acme, place: Path) -> None:
        self._acme = acme
        self._place = place

    def __call__(self, *words: str, code: int = 0) -> str:
        program = Path(sys.executable).with_name("certbot")
        folders = [f"--{name}-dir={self._place}" for name in ("config", "work", "logs")]
        command = [str(program), "-n", *folders, "--no-random-sleep-on-renew", *words]
        done = subprocess.run(
            command,
            env=self._acme.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def get(self, name: str, *words: str, code: int = 0) -> str:
        binding = ["--eab-kid", self._acme.kid, "--eab-hmac-key", self._acme.key]
        common = ["--standalone", "--agree-tos", "--register-unsafely-without-email"]
        server = ["--server", self._acme.url]
        return self("certonly", *common, *server, *binding, "-d", name, *words, code=code)

    def serial(self, name: str) -> str:
        file = self._place / "live" / name / "cert.pem"
        return f"{x509.load_pem_x509_certificate(file.read_bytes()).serial_number:x}"


@pytest.mark.system_package("kubectl")
def test_certbot_gets_renews_and_revokes(acme: Acme, tmp_path: Path) -> None:
    """`orchid revoke` alone makes it renew; a person's approval is kept for its next run."""
    certbot, name = Certbot(acme, tmp_path), "web-1.web.example.com"
    certbot.get(name)
    first = certbot.serial(name)
    acme.operator.types("revoke", f"cert/{first}", "--yes")
    certbot("renew")
    second = certbot.serial(name)
    certbot("revoke", "--cert-name", name, "--no-delete-after-revoke", "--server", acme.url)

    other = "db.example.org"  # no policy selects it: a person decides
    left = certbot.get(other, "--issuance-timeout", "1", code=1)
    requests = acme.operator.gets("csr", "list")
    waiting = [one for one in requests if not one["status"].get("conditions")]
    acme.operator.types("csr", "approve", waiting[0]["metadata"]["name"])
    certbot.get(other)

    assert first != second
    assert "Timeout" in left
    listed = acme.operator.gets("issued", "--name", "*")
    live = {
        one["metadata"]["name"]
        for one in listed
        if one["spec"]["signerName"] == "example.com/servers"
        and not one.get("status", {}).get("revoked")
    }
    assert certbot.serial(other) in live
    assert not live & {first, second}


@pytest.mark.system_package("kubectl", "lego", "dehydrated", "uacme")
def test_other_clients_get_certificates(acme: Acme, tmp_path: Path) -> None:
    """With the lines of docs/acme.md; they run at the same time."""
    values = {"server": acme.url, "kid": acme.kid, "key": acme.key, "ca": acme.ca}
    names = {client: f"{client}.web.example.com" for client in ("lego", "dehydrated", "uacme")}
    for client in names:
        (tmp_path / client).mkdir()
    config, script = tmp_path / "dehydrated" / "config", tmp_path / "uacme.sh"
    config.write_text(DEHYDRATED.format(place=tmp_path / "dehydrated", **values))
    (tmp_path / "dehydrated" / "challenges").mkdir()
    script.write_text(UACME.format(place=tmp_path / "uacme", name=names["uacme"], **values))
    registered = f"dehydrated --config {config} --register --accept-terms"
    commands = {
        "lego": [
            *("lego", "--path", str(tmp_path / "lego"), "--accept-tos"),
            *("--email", "a@example.com", "--http", "--server", acme.url, "--eab"),
            *("--kid", acme.kid, "--hmac", acme.key, "-d", names["lego"], "run"),
        ],
        "dehydrated": [
            *("sh", "-ec"),
            f"{registered}; dehydrated --config {config} --cron --domain {names['dehydrated']}",
        ],
        "uacme": ["unshare", "--mount", "sh", "-e", str(script)],
    }
    started = {
        client: subprocess.Popen(
            command,
            env=acme.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for client, command in commands.items()
    }

    said = {client: process.communicate(timeout=120)[0] for client, process in started.items()}

    failed = {client: said[client] for client in started if started[client].returncode}
    assert not failed
    files = {
        "lego": tmp_path / "lego" / "certificates" / f"{names['lego']}.crt",
        "dehydrated": tmp_path / "dehydrated" / "certs" / names["dehydrated"] / "fullchain.pem",
        "uacme": tmp_path / "uacme" / names["uacme"] / "cert.pem",
    }
    for client, file in files.items():
        leaf, authority = x509.load_pem_x509_certificates(file.read_bytes())
        leaf.verify_directly_issued_by(authority)
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert found.get_values_for_type(x509.DNSName) == [names[client]]
