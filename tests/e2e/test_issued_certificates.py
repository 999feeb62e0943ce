"""Contents of a certificate of each platform signer, and which programs accept it.

signer                  subject                            names     purpose      good for
orch-apiserver-client   as asked: C ST L O OU CN ...       as asked  client auth  the front door
...-client-orchlet      O=system:nodes, CN=system:node:..  none      client auth  the front door
orchlet-serving         O=system:nodes, CN=system:node:..  DNS, IP   server auth  a TLS server
legacy-unknown          not to be had through v1: see tests/unit/kernel/credentials/test_lint.py

All of them: version 3, CA:false (critical), key usage (critical) as asked, of digital signature and
key encipherment; key ids of subject and authority, a positive random serial number, back-dated by
five minutes, at most a year long, the public key of the request and none of its other extensions.
`TABLE` is this table as data. OpenSSL, Python's ssl, the server's own front door and an outside
linter each judge every certificate, for three kinds of keys.
"""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from tests.e2e.handshake import shaken
from tests.e2e.https import Https
from tests.e2e.issuing import CLIENT, NODE_CLIENT, NODE_SERVING, Requester, openssl
from tests.e2e.serving import Server, running_server
from tests.linting import unexplained
from tests.unit.kernel.credentials import samples

pytestmark = pytest.mark.system_package("openssl")

ADMIN = "admin-token"
SERVER_NAME = "n1.example"
CA_TRUE = "basicConstraints=critical,CA:true"  # asked for every time, granted never
KEYS = {
    "p256": ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "rsa": ("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "ed25519": ("genpkey", "-algorithm", "ED25519"),
}


@dataclass(frozen=True)
class Row:
    """One signer: what is asked for, and what is in the certificate."""

    asked_subject: str
    asked_names: str
    subject: str  # RFC 4514, most special first
    names: tuple[str, ...]
    usage: str
    purpose: x509.ObjectIdentifier
    verifies_as: str
    never_as: str
    groups: tuple[str, ...] = ()


TABLE = {
    CLIENT: Row(
        asked_subject="/DC=stranger/O=ops/O=dev/OU=unit/CN=ann/emailAddress=a@b.example",
        asked_names="DNS:ann.example,IP:10.0.0.1,email:ann@b.example,URI:spiffe://a.example/ann",
        subject="CN=ann,OU=unit,O=dev+O=ops",
        names=("ann.example", "ann@b.example", "10.0.0.1", "spiffe://a.example/ann"),
        usage="client auth",
        purpose=ExtendedKeyUsageOID.CLIENT_AUTH,
        verifies_as="sslclient",
        never_as="sslserver",
        groups=("dev", "ops"),
    ),
    NODE_CLIENT: Row(
        asked_subject="/O=system:nodes/CN=system:node:n1",
        asked_names="",
        subject="CN=system:node:n1,O=system:nodes",
        names=(),
        usage="client auth",
        purpose=ExtendedKeyUsageOID.CLIENT_AUTH,
        verifies_as="sslclient",
        never_as="sslserver",
        groups=("system:nodes",),
    ),
    NODE_SERVING: Row(
        asked_subject="/O=system:nodes/CN=system:node:n1",
        asked_names=f"DNS:{SERVER_NAME},IP:127.0.0.1",
        subject="CN=system:node:n1,O=system:nodes",
        names=(SERVER_NAME, "127.0.0.1"),
        usage="server auth",
        purpose=ExtendedKeyUsageOID.SERVER_AUTH,
        verifies_as="sslserver",
        never_as="sslclient",
    ),
}
CLIENTS = (CLIENT, NODE_CLIENT)


@dataclass(frozen=True)
class Issued:
    row: Row
    key: str
    path: Path  # certificate and key in one file
    leaf: x509.Certificate
    anchors: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("issued")
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{ADMIN},admin,uid-admin,"system:masters"\n')
    with running_server(directory / "data", "--token-auth-file", str(tokens)) as started:
        yield started


@pytest.fixture(scope="module")
def issued(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Issued]:
    """A certificate from every signer for every kind of key."""
    directory = tmp_path_factory.mktemp("keys")
    admin = Requester(server.port, token=ADMIN)
    made = {}
    for number, (signer, row) in enumerate(TABLE.items()):
        for kind in KEYS:
            name = f"{kind}-{number}"
            request = new_request(directory / f"{name}.key", kind, row)
            assert admin.ask(name, signer, request, usages(kind, row)).status == 201
            assert admin.approve(name).status == 200
            pem = admin.certificate(name)
            path = directory / f"{name}.pem"
            path.write_bytes(pem + (directory / f"{name}.key").read_bytes())
            trusted = admin.anchors(signer, directory / f"anchors-{number}.pem")
            leaf = x509.load_pem_x509_certificate(pem)
            made[signer, kind] = Issued(row, kind, path, leaf, trusted)
    return made


def new_request(key: Path, kind: str, row: Row) -> bytes:
    openssl(*KEYS[kind], "-out", key)
    added = ["-addext", CA_TRUE]
    if row.asked_names:
        added += ["-addext", f"subjectAltName={row.asked_names}"]
    words = ("req", "-new", "-key", key, "-subj", row.asked_subject, *added)
    return openssl(*words).encode()


def usages(kind: str, row: Row) -> tuple[str, ...]:
    asked = ("digital signature", row.usage)
    return (*asked, "key encipherment") if kind == "rsa" else asked


every_signer = pytest.mark.parametrize("signer", TABLE, ids=lambda name: name.partition("/")[2])
every_key = pytest.mark.parametrize("key", KEYS)


@every_signer
@every_key
def test_certificate_holds_what_the_table_says(
    issued: dict[tuple[str, str], Issued], signer: str, key: str
) -> None:
    """Subject, names, usages, times and key ids; nothing that was smuggled into the request."""
    one = issued[signer, key]
    leaf, row = one.leaf, one.row
    root = x509.load_pem_x509_certificate(one.anchors.read_bytes())
    found = {entry.oid: entry for entry in leaf.extensions}

    assert leaf.version is x509.Version.v3
    assert 0 < leaf.serial_number < 2**159
    assert leaf.subject.rfc4514_string() == row.subject
    assert leaf.issuer == root.subject
    names = found.pop(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, None)
    assert tuple(str(name.value) for name in (names.value if names else ())) == row.names
    constraints = found.pop(ExtensionOID.BASIC_CONSTRAINTS)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=False, path_length=None)
    usage = found.pop(ExtensionOID.KEY_USAGE)
    assert usage.critical
    assert usage.value == x509.KeyUsage(
        True, False, key == "rsa", False, False, False, False, False, False
    )
    assert list(found.pop(ExtensionOID.EXTENDED_KEY_USAGE).value) == [row.purpose]
    assert found.pop(ExtensionOID.AUTHORITY_KEY_IDENTIFIER).value.key_identifier == (
        root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    )
    assert found.pop(ExtensionOID.SUBJECT_KEY_IDENTIFIER)
    assert not found
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == timedelta(days=365)


@every_signer
@every_key
def test_openssl_accepts_it_for_its_purpose_alone(
    issued: dict[tuple[str, str], Issued], signer: str, key: str
) -> None:
    """`openssl verify` with the published anchors: good for one purpose, refused for the other."""
    one = issued[signer, key]
    strict = ("verify", "-x509_strict", "-CAfile", one.anchors, "-purpose")

    assert openssl(*strict, one.row.verifies_as, one.path).endswith(": OK\n")
    with pytest.raises(AssertionError, match=r"[Uu]nsuitable certificate purpose"):
        openssl(*strict, one.row.never_as, one.path)


@every_signer
@every_key
def test_linter_finds_nothing_that_is_not_explained(
    issued: dict[tuple[str, str], Issued], signer: str, key: str
) -> None:
    """Deliberate differences from the profile are in tests/linting.py, with the reason."""
    assert not unexplained(issued[signer, key].leaf)


@every_key
def test_pythons_ssl_accepts_the_serving_certificate(
    issued: dict[tuple[str, str], Issued], key: str
) -> None:
    """A client who trusts the signer's bundle shakes hands with a server that shows it."""
    one = issued[NODE_SERVING, key]
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    accepting.load_cert_chain(one.path)
    calling = ssl.create_default_context(cafile=str(one.anchors))

    seen, _ = shaken(accepting, calling, SERVER_NAME)

    assert ("DNS", SERVER_NAME) in seen["subjectAltName"]


@every_key
@pytest.mark.parametrize("signer", CLIENTS)
def test_pythons_ssl_accepts_the_client_certificate(
    issued: dict[tuple[str, str], Issued], signer: str, key: str
) -> None:
    """A server that demands client certificates of the signer's bundle lets its holder in."""
    one, serving = issued[signer, key], issued[NODE_SERVING, "p256"]
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(one.anchors))
    accepting.verify_mode = ssl.CERT_REQUIRED
    accepting.load_cert_chain(serving.path)
    calling = ssl.create_default_context(cafile=str(serving.anchors))
    calling.load_cert_chain(one.path)

    _, client = shaken(accepting, calling, SERVER_NAME)

    assert client == one.leaf.public_bytes(serialization.Encoding.DER)


@every_key
@pytest.mark.parametrize("signer", CLIENTS)
def test_front_door_knows_its_holder(
    server: Server, issued: dict[tuple[str, str], Issued], signer: str, key: str
) -> None:
    """The user is the common name, the groups are the organizations."""
    one = issued[signer, key]

    known = who(server, one.path)

    assert known["username"] == one.row.subject.partition(",")[0].removeprefix("CN=")
    assert known["groups"] == [*one.row.groups, "system:authenticated"]


@every_key
def test_front_door_does_not_know_a_serving_certificate(
    server: Server, issued: dict[tuple[str, str], Issued], key: str
) -> None:
    """A serving certificate of a node does not authenticate the node."""
    with Https(server.port, issued[NODE_SERVING, key].path) as holder:
        answer = holder.send("GET", "/api/v1/nodes")

    assert answer.status in (401, 403)
    assert "system:node" not in answer.body.decode()


def test_certificate_of_an_intermediate_is_accepted_with_its_chain(tmp_path: Path) -> None:
    """With only the root trusted, OpenSSL and the server verify the issued chain."""
    chain, key, root = samples.intermediate_authority(datetime.now(UTC))
    (tmp_path / "root.crt").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "signing.crt").write_bytes(chain)
    (tmp_path / "signing.key").write_bytes(key)
    (tmp_path / "signing.key").chmod(0o600)
    (tmp_path / "tokens.csv").write_text(f'{ADMIN},admin,uid-admin,"system:masters"\n')
    flags = {
        "token-auth-file": "tokens.csv",
        "client-ca-file": "root.crt",
        "cluster-signing-cert-file": "signing.crt",
        "cluster-signing-key-file": "signing.key",
    }
    given = (word for flag, name in flags.items() for word in (f"--{flag}", str(tmp_path / name)))
    with running_server(tmp_path / "data", *given) as server:
        admin = Requester(server.port, token=ADMIN)
        request = new_request(tmp_path / "ann.key", "p256", TABLE[CLIENT])
        assert admin.ask("ann", CLIENT, request, usages("p256", TABLE[CLIENT])).status == 201
        assert admin.approve("ann").status == 200
        holder = tmp_path / "ann.pem"
        holder.write_bytes(admin.certificate("ann") + (tmp_path / "ann.key").read_bytes())

        assert who(server, holder)["username"] == "ann"

    trusted = ("verify", "-CAfile", tmp_path / "root.crt", "-purpose", "sslclient")
    assert openssl(*trusted, "-untrusted", holder, holder).endswith(": OK\n")


def who(server: Server, holder: Path) -> dict[str, Any]:
    """Whom the front door takes the holder of a certificate for."""
    with Https(server.port, holder) as caller:
        review = caller.send("POST", "/apis/authentication.orch.io/v1/selfsubjectreviews", {})
        known: dict[str, Any] = review.json["status"]["userInfo"]
        return known
