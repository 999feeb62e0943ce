"""The attack: to go on for a day with the X.509-SVID that a stolen token of ten minutes got."""

import base64
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from tests.e2e.https import Https
from tests.e2e.person import Person
from tests.e2e.serving import running_server
from tests.e2e.test_commands import person_of
from tests.unit.kernel.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
SIGNER = "example.com/mesh"
ID = "spiffe://example.org/ns/mesh/sa/{}"
PATIENCE = 30.0


@dataclass(frozen=True)
class Mesh:
    """A server with an authority for SVIDs, its administrator, and a connection to it."""

    admin: Person
    https: Https

    def svid(self, name: str) -> x509.Certificate:
        """The SVID that a token of an account gets if it requests one for a day."""
        self.admin.types("account", "new", f"mesh/{name}")
        token = self.admin.types("token", f"mesh/{name}", "--for", "10m").stdout.strip()
        uri = x509.UniformResourceIdentifier(ID.format(name))
        spec = {
            "request": base64.b64encode(samples.request("", (), alternative_names=(uri,))).decode(),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth", "server auth"],
            "expirationSeconds": 86400,
        }
        body = {"metadata": {"name": name}, "spec": spec}
        reply = self.https.send("POST", REQUESTS, body, token=token)
        assert reply.status == 201, reply.body
        return x509.load_pem_x509_certificate(self._issued(name, token))

    def _issued(self, name: str, token: str) -> bytes:
        deadline = time.monotonic() + PATIENCE
        while True:
            found: Any = self.https.send("GET", f"{REQUESTS}/{name}", token=token).json["status"]
            if found.get("certificate"):
                return base64.b64decode(found["certificate"])
            assert time.monotonic() < deadline, found

    def is_listed(self, certificate: x509.Certificate) -> bool:
        data = self.https.send("GET", "/crl/mesh.crl").body
        found = x509.load_der_x509_crl(data)
        return found.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    place = tmp_path_factory.mktemp("mesh")
    with running_server(place / "data") as server, Https(server.port) as https:
        admin = person_of(server, place)
        admin.types("ca", "new", "mesh", "--signer", SIGNER, "--trust-domain", "example.org")
        admin.types("role", "new", "svid", "--like", "certificate-requester")
        group = "system:serviceaccounts:mesh"
        admin.types("grant", "svid", "--group", group)
        yield Mesh(admin, https)


def test_an_svid_lasts_an_hour_unless_the_authority_permits_more(mesh: Mesh) -> None:
    """The token can be revoked; other programs accept the SVID until it ends."""
    found = mesh.svid("short")

    life = found.not_valid_after_utc - found.not_valid_before_utc
    assert life <= timedelta(hours=1, minutes=10)


def test_the_revocation_of_an_account_puts_its_svids_on_the_list(mesh: Mesh) -> None:
    """If it is to; otherwise it says how many live on. Also after the account was revoked."""
    mine, other = mesh.svid("frontend"), mesh.svid("backend")
    first = mesh.admin.types("revoke", "account/mesh/frontend", "--yes")
    done = mesh.admin.types("revoke", "account/mesh/frontend", "--yes", "--certificates")
    again = mesh.admin.types("revoke", "account/mesh/frontend", "--yes")

    assert "1 valid certificates name or were requested by" in first.stderr
    assert "1 of them X.509-SVIDs" in first.stderr
    assert "add --certificates" in first.stderr
    assert done.stderr.count("will revoke: certificate") == 1
    assert "valid certificates" not in again.stderr
    deadline = time.monotonic() + PATIENCE
    while not mesh.is_listed(mine):
        assert time.monotonic() < deadline
    assert not mesh.is_listed(other)
