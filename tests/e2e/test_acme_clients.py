"""ACME clients as they are: certbot, lego, dehydrated, uacme and Caddy get, renew and revoke.

ORCHID_APPROVAL_SECONDS=120 ...     a person approves after that time, and certbot waits
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from tests.e2e.person import Person
from tests.e2e.serving import Server, free_port, running_server
from tests.e2e.tls_services import until
from tests.system_packages import require_program

APPROVAL_SECONDS = float(os.environ.get("ORCHID_APPROVAL_SECONDS", "0"))
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
# Each program gets a certificate, gets another one, and revokes that.
SCRIPTS = {
    "lego": """
run() {{ lego --path {place} --accept-tos --email a@example.com --http --server {server} \\
  --eab --kid {kid} --hmac {key} -d {name} "$@"; }}
run run
cp {file} {place}/first
run renew --days 10000 --no-random-sleep
run revoke --keep
""",
    "dehydrated": """
run() {{ dehydrated --config {place}/config "$@"; }}
run --register --accept-terms
run --cron --domain {name}
cp {file} {place}/first
run --cron --domain {name} --force
run --revoke {place}/certs/{name}/cert.pem
""",
    # uacme takes the CAs of the system only: it sees a file of its own in their place.
    "uacme": """
mount --bind {ca} /etc/ssl/certs/ca-certificates.crt
run() {{ uacme --confdir {place} --acme-url {server} --hook /bin/true "$@"; }}
run --eab {kid}:{key} --yes new
run issue {name}
cp {file} {place}/first
run --force issue {name}
cp {file} {place}/second
run revoke {file}
""",
}
FILES = {
    "lego": "certificates/{name}.crt",
    "dehydrated": "certs/{name}/fullchain.pem",
    "uacme": "{name}/cert.pem",
}
CADDYFILE = """
{{
  admin off
  http_port {http}
  https_port {https}
  auto_https disable_redirects
  storage file_system {place}
}}
{name} {{
  tls {{
    issuer acme {server} {{
      eab {kid} {key}
      trusted_roots {ca}
    }}
  }}
}}
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

    def __init__(self, acme: Acme, place: Path, program: Path | None = None) -> None:
        self._acme = acme
        self._place = place
        self._program = program or Path(sys.executable).with_name("certbot")

    def __call__(self, *words: str, code: int = 0) -> str:
        folders = [f"--{name}-dir={self._place}" for name in ("config", "work", "logs")]
        command = [str(self._program), "-n", *folders, "--no-random-sleep-on-renew", *words]
        done = subprocess.run(
            command,
            env=self._acme.environment(),
            capture_output=True,
            text=True,
            timeout=240,
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
    assert len(waiting(acme)) == 1, left
    acme.operator.types("csr", "approve", *waiting(acme))
    certbot.get(other)

    assert first != second
    assert "Timeout" in left
    until(lambda: not live(acme) & {first, second}, "the certificates are not marked as revoked")
    assert certbot.serial(other) in live(acme)


def waiting(acme: Acme) -> list[str]:
    """The names of the requests without a decision."""
    requests = acme.operator.gets("csr", "list")
    return [one["metadata"]["name"] for one in requests if not one["status"].get("conditions")]


def live(acme: Acme) -> set[str]:
    """Serial numbers of the certificates that are not marked as revoked; a controller marks."""
    return {
        one["metadata"]["name"]
        for one in acme.operator.gets("issued", "--name", "*")
        if one["spec"]["signerName"] == "example.com/servers"
        and not one.get("status", {}).get("revoked")
    }


def leaf_of(file: Path, name: str) -> str:
    """The serial number of a certificate for a name, which comes with its authority."""
    leaf, authority = x509.load_pem_x509_certificates(file.read_bytes())
    leaf.verify_directly_issued_by(authority)
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == [name]
    return f"{leaf.serial_number:x}"


@pytest.mark.system_package("kubectl", "lego", "dehydrated", "uacme")
def test_other_clients_get_renew_and_revoke(acme: Acme, tmp_path: Path) -> None:
    """With the lines of docs/acme.md; they run at the same time."""
    values = {"server": acme.url, "kid": acme.kid, "key": acme.key, "ca": acme.ca}
    started, files = {}, {}
    for client, script in SCRIPTS.items():
        name, place = f"{client}.web.example.com", tmp_path / client
        (place / "challenges").mkdir(parents=True)
        (place / "config").write_text(DEHYDRATED.format(place=place, **values))
        files[client] = place / FILES[client].format(name=name)
        text = script.format(place=place, name=name, file=files[client], **values)
        started[client] = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", text],
            env=acme.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    said = {client: process.communicate(timeout=240)[0] for client, process in started.items()}

    failed = {client: said[client] for client in started if started[client].returncode}
    assert not failed
    renewed = set()
    for client in started:
        name, place = f"{client}.web.example.com", tmp_path / client
        second = place / "second" if client == "uacme" else files[client]
        first, last = leaf_of(place / "first", name), leaf_of(second, name)
        assert first != last
        renewed.add(last)
    until(lambda: not live(acme) & renewed, "a certificate is not marked as revoked")


class Caddy:
    """Caddy with its own directory and ports."""

    def __init__(self, acme: Acme, place: Path, name: str) -> None:
        self._acme, self._place, self._log = acme, place, place / "log"
        ports = {"http": free_port(), "https": free_port()}
        values = {"server": acme.url, "kid": acme.kid, "key": acme.key, "ca": acme.ca}
        file = place / "Caddyfile"
        file.write_text(CADDYFILE.format(place=place, name=name, **values, **ports))
        words = [require_program("caddy"), "adapt", "--config", str(file)]
        adapted = subprocess.run(words, capture_output=True, check=True, timeout=60)
        self._configuration = json.loads(adapted.stdout)

    @contextmanager
    def running(self, renews_at_start: float = 0) -> Iterator[None]:
        """Caddy until the block ends; with 1, every certificate is due for renewal."""
        (policy,) = self._configuration["apps"]["tls"]["automation"]["policies"]
        file = self._place / "caddy.json"
        policy["renewal_window_ratio"] = renews_at_start
        file.write_text(json.dumps(self._configuration))
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                [require_program("caddy"), "run", "--config", str(file)],
                env={**self._acme.environment(), "HOME": str(self._place)},
                stdout=output,
                stderr=output,
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def until_another(self, name: str, before: str = "") -> Path:
        """Wait for a certificate other than one; its file, beside that of its key."""
        found: list[Path] = []

        def is_there() -> bool:
            files = self._place.glob("certificates/*/*/*.crt")
            found.extend(file for file in files if leaf_of(file, name) != before)
            return bool(found)

        until(is_there, "Caddy has no other certificate")
        return found[0]


@pytest.mark.system_package("kubectl", "caddy")
def test_caddy_waits_gets_and_renews(acme: Acme, tmp_path: Path) -> None:
    """It has no command to revoke: certbot does, with the key of Caddy's certificate."""
    name = "caddy.example.org"  # no policy selects it: a person decides
    caddy = Caddy(acme, tmp_path, name)
    with caddy.running():
        until(lambda: bool(waiting(acme)), "no request")
        acme.operator.types("csr", "approve", *waiting(acme))
        first = leaf_of(caddy.until_another(name), name)
    with caddy.running(renews_at_start=1):
        until(lambda: bool(waiting(acme)), "no request")
        acme.operator.types("csr", "approve", *waiting(acme))
        file = caddy.until_another(name, first)
    second = leaf_of(file, name)

    pair = ("--cert-path", str(file), "--key-path", str(file.with_suffix(".key")))
    Certbot(acme, tmp_path)("revoke", *pair, "--no-delete-after-revoke", "--server", acme.url)

    until(lambda: second not in live(acme), "the certificate is not marked as revoked")
    assert first in live(acme)


@pytest.mark.system_package("kubectl", "/usr/bin/certbot")
def test_certbot_of_debian_gets_renews_and_revokes(acme: Acme, tmp_path: Path) -> None:
    """An old release, which knows no renewal information; it waits for a person."""
    certbot, name = Certbot(acme, tmp_path, Path("/usr/bin/certbot")), "old.web.example.com"

    with ThreadPoolExecutor() as beside:
        waited = beside.submit(certbot.get, "old.example.org", "--issuance-timeout", "600")
        until(lambda: bool(waiting(acme)), "no request")
        time.sleep(APPROVAL_SECONDS)
        acme.operator.types("csr", "approve", *waiting(acme))
        waited.result()
    certbot.get(name)
    first = certbot.serial(name)
    certbot("renew", "--cert-name", name, "--force-renewal")
    second = certbot.serial(name)
    certbot("revoke", "--cert-name", name, "--no-delete-after-revoke", "--server", acme.url)

    assert first != second
    until(lambda: second not in live(acme), "the certificate is not marked as revoked")
    assert certbot.serial("old.example.org") in live(acme)
