"""The attack: certificates that a stranger sends in the handshake and that cost us much to verify.

OpenSSL verified every link of a chain, however long: twenty with RSA keys of 16,384 bits held the
event loop for 0.13 s. Our own verifier tried intermediates of one name in every order: eight of
them with P-521 keys took 0.15 s.
"""

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchid.kernel.credentials.refusals import CertificateRefused
from orchid.kernel.credentials.x509.trust import certification_path
from orchid.kernel.credentials.x509.trust.certification_path import MAX_CHAIN, ClientVerifier
from orchid.kernel.http.tls.files import TlsFiles, intermediates_of
from tests.security.certified import Certified, other_authority

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime.now(datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate(subject: str, issuer: str, *, authority: bool) -> x509.Certificate:
    """All of them have the same key, so that each could have signed each."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - HOUR)
        .not_valid_after(NOW + HOUR)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(KEY, hashes.SHA256())


def shown(*chain: x509.Certificate) -> Certified:
    pem = serialization.Encoding.PEM
    key = KEY.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certified(b"".join(link.public_bytes(pem) for link in chain), key)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """The server's side of a handshake, made in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in theirs, ours:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours


def test_openssl_verifies_no_link_of_a_strangers_chain(server_files: Path, tmp_path: Path) -> None:
    """All links arrive, and OpenSSL has made no chain of them: the leaf itself proves its key."""
    links = [certificate(f"i{n}", f"i{n + 1}", authority=True) for n in range(20)]
    chain = (certificate("mallory", "i0", authority=False), *links)
    authority = server_files / "ca.crt"
    files = TlsFiles(server_files / "serving.crt", server_files / "serving.key", [authority])

    seen = shaken(files.context, shown(*chain).context(tmp_path, authority))

    assert not files.verifies_clients
    assert len(intermediates_of(seen)) == len(links)
    assert not seen._sslobj.get_verified_chain()


def test_a_chain_has_a_limit_in_bytes(server_files: Path, tmp_path: Path) -> None:
    """Before their keys are read: 250 certificates held the event loop for 70 ms."""
    links = [certificate(f"i{n}", f"i{n + 1}", authority=True) for n in range(150)]
    authority = server_files / "ca.crt"
    files = TlsFiles(server_files / "serving.crt", server_files / "serving.key", [authority])
    client = shown(certificate("mallory", "i0", authority=False), *links)

    with pytest.raises(ssl.SSLError, match=r"(?i)excessive.message.size"):
        shaken(files.context, client.context(tmp_path, authority))


def test_intermediates_of_one_name_are_not_tried_in_every_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The verifier looks at none of them as an issuer, since nobody in the pool has issued one."""
    looked = []
    monkeypatch.setattr(certification_path, "_require_authority", lambda *seen: looked.append(seen))
    verifier = ClientVerifier([other_authority().certificate])
    links = [certificate("again", "again", authority=True) for _ in range(MAX_CHAIN)]
    leaf, *others = (
        link.public_bytes(serialization.Encoding.DER)
        for link in (certificate("mallory", "again", authority=False), *links)
    )

    with pytest.raises(CertificateRefused, match="unknown authority"):
        verifier.verify(leaf, others, NOW)

    assert looked == []
