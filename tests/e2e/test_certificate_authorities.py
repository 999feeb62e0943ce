"""CertificateAuthorities by command, and their chains in other programs."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from orchid.kernel.credentials.authorities.authority import Authority
from tests.e2e.issuing import openssl
from tests.e2e.serving import Server, running_server
from tests.e2e.test_commands import Person
from tests.unit.kernel.credentials.own_authorities import (
    KNOWN_TO_OPENSSL,
    ML_DSA,
    is_ml_dsa_signature,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests; each names its own objects."""
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def admin(server: Server, tmp_path: Path) -> Person:
    return Person(tmp_path, server.data_dir / "admin.kubeconfig")


def certified(admin: Person, name: str, algorithm: str) -> tuple[Path, Path]:
    """A certificate of a new authority, and the bundle that verifies it, each in a file."""
    signer = f"example.com/{name}"
    admin.types("ca", "new", name, "--signer", signer, "--algorithm", algorithm)
    admin.types("csr", "new", name, "--signer", signer, "--dns", "web.example.com")
    admin.types("csr", "approve", name)
    admin.types("csr", "fetch", name)
    bundle = admin.home / f"{name}.pem"
    bundle.write_text(admin.types("bundle", "show", "--signer", signer, "--pem").stdout)
    return admin.home / f"{name}.crt", bundle


@pytest.mark.system_package("openssl")
@pytest.mark.parametrize("algorithm", KNOWN_TO_OPENSSL)
def test_openssl_verifies_a_chain_of_each_algorithm(admin: Person, algorithm: str) -> None:
    """For a TLS server of that name, with the published bundle and nothing else."""
    leaf, bundle = certified(admin, algorithm.lower(), algorithm)

    done = openssl(
        "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "web.example.com",
        "-CAfile", bundle, leaf,
    )  # fmt: skip

    assert done.strip().endswith(": OK")


def test_another_implementation_verifies_a_post_quantum_chain(admin: Person) -> None:
    """dilithium-py, in Python, of the certificate and of the authority itself."""
    leaf_file, bundle = certified(admin, "pq", ML_DSA)
    leaf = x509.load_pem_x509_certificate(leaf_file.read_bytes())
    anchor = x509.load_pem_x509_certificate(bundle.read_bytes())

    for one in (leaf, anchor):
        assert is_ml_dsa_signature(anchor, one.tbs_certificate_bytes, one.signature)


def test_an_authority_that_exists_is_imported(admin: Person) -> None:
    """Its key goes into a Secret; what it issues is verified by its own certificate."""
    made = Authority.create("Imported", now=datetime.now(UTC))
    cert, key = admin.home / "ca.crt", admin.home / "ca.key"
    cert.write_bytes(made.chain_pem)
    key.touch(mode=0o600)
    key.write_text(made.key_pem().reveal())
    words = ("--signer", "example.com/imported", "--cert", str(cert), "--key", str(key))

    admin.types("ca", "import", "imported", *words)

    shown = admin.types("ca", "show", "imported", "--pem").stdout
    assert shown.encode() == made.chain_pem
    assert "imported" in admin.types("ca", "list").stdout
    assert "CN=Imported" in admin.types("ca", "show", "imported").stdout


def test_a_key_of_another_certificate_is_not_imported(admin: Person) -> None:
    """Nothing is sent: neither a Secret nor an authority is made."""
    made, other = (Authority.create(name, now=datetime.now(UTC)) for name in ("a", "b"))
    cert, key = admin.home / "ca.crt", admin.home / "ca.key"
    cert.write_bytes(made.chain_pem)
    key.touch(mode=0o600)
    key.write_text(other.key_pem().reveal())
    words = ("--signer", "example.com/broken", "--cert", str(cert), "--key", str(key))

    done = admin.types("ca", "import", "broken", *words, code=2)

    assert "private key does not match" in done.stderr
    admin.types("ca", "show", "broken", code=1)


DEPENDENTS = "1 live certificate, 0 open requests and 1 trust bundle"


def test_deleting_says_what_depends_on_it(admin: Person) -> None:
    """On the side, where a pipe does not see it; and where nobody can be asked, it takes a flag."""
    certified(admin, "gone", "ECDSA-P256")

    refused = admin.types("ca", "delete", "gone", code=1)
    kept = admin.types("ca", "list").stdout
    done: subprocess.CompletedProcess[str] = admin.types("ca", "delete", "gone", "--yes")

    assert "nothing was changed; on a terminal it asks, elsewhere add --yes" in refused.stderr
    assert DEPENDENTS in refused.stderr
    assert "example.com/gone" in kept
    assert done.stdout == "deleted gone\n"
    assert DEPENDENTS in done.stderr


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_deleting_asks_who_sits_at_a_terminal(admin: Person, answer: str, code: int) -> None:
    """The dependents are printed before the question, once."""
    certified(admin, f"asked-{answer}", "ECDSA-P256")
    words = ("ca", "delete", f"asked-{answer}", "--kubeconfig", str(admin.kubeconfig))

    status, shown = at_terminal(sys.executable, "-m", "orchid", *words, says=f"{answer}\n")

    assert status == code
    assert shown.count(DEPENDENTS) == 1
    assert shown.index(DEPENDENTS) < shown.index("[y/N]")
    admin.types("ca", "show", f"asked-{answer}", code=1 - code)


def at_terminal(*command: str, says: str) -> tuple[int, str]:
    """Run a command on a terminal of its own, answer what it asks, and read all that it shows."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, says.encode())
        shown = b""
        with contextlib.suppress(OSError):  # so ends a terminal that nobody writes to any more
            while read := os.read(ours, 4096):
                shown += read
    os.close(ours)
    return process.returncode, shown.decode()


def test_a_bundle_is_named_or_found_by_its_signer(admin: Person) -> None:
    """The bundle of one of two signers; a signer without a bundle is an error."""
    admin.types("bundle", "show", code=2)
    done = admin.types("bundle", "show", "--signer", "example.com/nobody", code=1)

    assert "has no trust bundle" in done.stderr
