"""Java trust stores and SPIFFE bundles, read back by other programs."""

import base64
import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchid.features.trust_bundles import forms
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import certificates, der, pem
from tests.system_packages import require_program
from tests.unit.kernel.credentials import unusual

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def root(name: str, algorithm: str = "ECDSA-P256") -> bytes:
    return Authority.create(name, now=NOW, algorithm=algorithm).certificate_pem


def same_subject(name: str) -> bytes:
    return root(name) + root(name)


def keytool(file: Path, *flags: str) -> str:
    require_program("keytool")
    command = ["keytool", "-list", "-storetype", "PKCS12", "-keystore", str(file), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, input="\n")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("password", [True, False])
def test_java_loads_every_certificate_although_subjects_are_equal(
    tmp_path: Path, password: bool
) -> None:
    """Of two entries with one alias Java would load one."""
    file = tmp_path / "store.p12"
    file.write_bytes(forms.java_trust_store(same_subject("Example CA"), password=password))

    listed = keytool(file, *(("-storepass", "changeit") if password else ()))

    assert listed.count("trustedCertEntry") == 2
    assert "|cn=example ca" in listed


def named(subject: str) -> bytes:
    """A root with any subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else []
    name = x509.Name(parts)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def test_java_reads_any_subject(tmp_path: Path) -> None:
    """Also characters that PKCS#12 cannot write; one without a subject is left out."""
    subjects = ("", "Zürich CA", "\U0001f512 CA", "x" * 64)
    file = tmp_path / "store.p12"
    file.write_bytes(forms.java_trust_store(b"".join(map(named, subjects)), password=True))

    assert keytool(file, "-storepass", "changeit").count("trustedCertEntry") == 3


@pytest.mark.starts  # a process makes the RSA key
@pytest.mark.parametrize(
    ("algorithm", "members"),
    [
        ("ECDSA-P256", {"kty", "crv", "x", "y"}),
        ("ECDSA-P384", {"kty", "crv", "x", "y"}),
        ("RSA-3072", {"kty", "n", "e"}),
        ("Ed25519", {"kty", "crv", "x"}),
    ],
)
def test_a_spiffe_key_is_an_x509_authority(algorithm: str, members: set[str]) -> None:
    """One certificate in x5c, the members of its key, no kid and no alg."""
    text = root("Example CA", algorithm)

    made = json.loads(forms.spiffe_bundle(text, sequence=7, refresh_seconds=300))

    [key] = made.pop("keys")
    assert made == {"spiffe_sequence": 7, "spiffe_refresh_hint": 300}
    assert key.keys() == members | {"use", "x5c"}
    assert key["use"] == "x509-svid"
    [der] = key["x5c"]
    assert (
        x509.load_der_x509_certificate(base64.b64decode(der)) == certificates.parse_blocks(text)[0]
    )


def test_a_key_without_a_jwk_is_left_out_of_the_spiffe_form() -> None:
    """Clients refuse a bundle with a key that they cannot read."""
    text = root("New", "ML-DSA-65") + root("Old")

    made = json.loads(forms.spiffe_bundle(text, sequence=7, refresh_seconds=300))

    assert [key["kty"] for key in made["keys"]] == ["EC"]


def test_a_root_whose_key_nobody_can_read_is_left_out_of_a_spiffe_bundle() -> None:
    """Such a root may be in a trust bundle; the others go on being served."""
    algorithm = unusual.sequence(der.encode_oid("1.2.3"))
    key = unusual.sequence(algorithm, der.encode_bits(b"x"))
    unknown = pem.encode(pem.CERTIFICATE, unusual.certificate(unusual.AUTHORITY, key=key))

    bundle = json.loads(forms.spiffe_bundle(unknown + root("a"), sequence=1, refresh_seconds=60))

    assert len(bundle["keys"]) == 1
