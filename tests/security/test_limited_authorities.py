"""The attack: a client certificate by an authority that is limited to certificates of servers.

With an intermediate for servers under the root of client certificates, an attacker could issue a
certificate for `system:masters`, because the limit of the intermediate was not checked.
"""

import datetime
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from orchid.kernel.http.messages import Peer
from tests.api.world import Api
from tests.security.certified import cluster_authority

SELF = "/apis/authentication.orch.io/v1/selfsubjectreviews"
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
PEM = serialization.Encoding.PEM


def attack(data: Path, limit: ObjectIdentifier) -> tuple[x509.Certificate, x509.Certificate]:
    """Make an intermediate of the cluster CA with a limit, and an administrator by it."""
    root = cluster_authority(data)
    root_key = serialization.load_pem_private_key(root.key_pem().reveal().encode(), None)
    assert isinstance(root_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web servers")])
    middle = (
        certificate(name, root.certificate.subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([limit]), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    masters = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")
    mallory = x509.NameAttribute(NameOID.COMMON_NAME, "mallory")
    leaf = (
        certificate(x509.Name([masters, mallory]), name, ec.generate_private_key(ec.SECP256R1()))
        .add_extension(x509.ExtendedKeyUsage([CLIENT]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return leaf, middle


def certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )


def openssl_accepts(
    root: Path, leaf: x509.Certificate, middle: x509.Certificate, directory: Path
) -> bool:
    (directory / "leaf.pem").write_bytes(leaf.public_bytes(PEM))
    (directory / "middle.pem").write_bytes(middle.public_bytes(PEM))
    command = ["openssl", "verify", "-purpose", "sslclient", "-CAfile", str(root)]
    files = ["-untrusted", str(directory / "middle.pem"), str(directory / "leaf.pem")]
    return subprocess.run([*command, *files], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("limit", "status"), [(CLIENT, 201), (SERVER, 401)])
async def test_an_authority_for_servers_makes_no_clients(
    server: Api, tmp_path: Path, limit: ObjectIdentifier, status: int
) -> None:
    """Limited to servers, an intermediate proves nobody to us; OpenSSL judges the same."""
    data = server.server.files.path
    leaf, middle = attack(data, limit)
    encoded = (link.public_bytes(serialization.Encoding.DER) for link in (leaf, middle))
    peer = Peer("", next(encoded), chain=tuple(encoded))

    answer = await server.call("POST", SELF, {}, token=None, peer=peer)

    assert answer.status == status
    assert openssl_accepts(data / "ca.crt", leaf, middle, tmp_path) == (status == 201)
