"""The attack: to use a revoked certificate again, spelled in other bytes that verify as well.

An ECDSA signature (r, s) is also valid as (r, n-s), and anybody can compute the one from the other.
The bytes of the certificate and their SHA-256 are different then, and the certificate is the same.
"""

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.credentials.x509.certificates import encode
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from tests.api.world import Api
from tests.e2e.serving import running_server
from tests.e2e.test_commands import Person
from tests.security.certified import Certified, cluster_authority, issued, mirrored, respelled
from tests.security.test_revocations import authority_key, known, on_record, revoked
from tests.security.test_watches_end import prepared, watching
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.credentials.chains import make

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def spelled(peer: Peer) -> Peer:
    """Another connection that shows the same certificate with the other signature."""
    return Peer("127.0.0.1:2", mirrored(peer.certificate or b""))


def sha256(peer: Peer) -> str:
    return hashlib.sha256(peer.certificate or b"").hexdigest()


class Intermediate:
    """An authority below the one of the server, and clients of it."""

    def __init__(self, server: Api, lasts: timedelta = HOUR, serial: int = 7) -> None:
        now = server.server.clock.now()
        self._key = ec.generate_private_key(ec.SECP256R1())
        root = cluster_authority(server.server.files.path).certificate
        self._made = make(
            "between",
            root.subject,
            key=self._key,
            signer=authority_key(server),
            ca=True,
            usages=None,
            start=now - HOUR,
            end=now + lasts,
        )
        self._leaf = make(
            "jane",
            "between",
            signer=self._key,
            serial=serial,
            start=now - HOUR,
            end=now + timedelta(days=1),
        )
        self.der = encode(self._made)

    def peer(self, sent: bytes = b"") -> Peer:
        return Peer("127.0.0.1:1", encode(self._leaf), chain=(sent or self.der,))


def issued_by_root(server: Api) -> Peer:
    return issued(cluster_authority(server.server.files.path), "jane").peer


def even(server: Api) -> Certified:
    """A certificate whose signature ends in a zero bit, which may be called unused."""
    authority = cluster_authority(server.server.files.path)
    while True:
        found = issued(authority, "jane")
        if not x509.load_der_x509_certificate(found.der).signature[-1] & 1:
            return found


async def test_a_certificate_revoked_by_number_is_refused_with_the_other_signature(
    server: Api,
) -> None:
    """A revocation applies to the certificate, not to one encoding of it."""
    serial, peer = await on_record(server, "jane")

    await revoked(
        server, "s", certificate={"serialNumber": serial, "signerName": ORCH.client_signer}
    )

    assert await known(server, peer=peer) == 401
    assert await known(server, peer=spelled(peer)) == 401


async def test_a_certificate_revoked_by_fingerprint_alone_is_refused_with_the_other_signature(
    server: Api,
) -> None:
    """Also one that is not in the inventory, so that the fingerprint is all that is known."""
    peer = issued(cluster_authority(server.server.files.path), "jane").peer

    await revoked(server, "s", certificate={"sha256": sha256(peer)})

    assert await known(server, peer=spelled(peer)) == 401


async def test_the_revocation_of_either_spelling_revokes_both(server: Api) -> None:
    """The audit log may show the fingerprint that the thief used."""
    peer = issued(cluster_authority(server.server.files.path), "jane").peer
    other = spelled(peer)
    before = await known(server, peer=other)

    await revoked(server, "s", certificate={"sha256": sha256(other)})

    assert before == 201
    assert await known(server, peer=peer) == 401
    assert await known(server, peer=other) == 401


async def test_the_revocation_of_a_signer_holds_for_the_other_signature(server: Api) -> None:
    """The record is found by number and issuer, whatever the bytes are."""
    _, peer = await on_record(server, "jane")

    await revoked(server, "all", authority={"signerName": ORCH.client_signer})

    assert await known(server, peer=spelled(peer)) == 401


async def test_a_certificate_on_record_is_accepted_in_its_own_bytes_only(server: Api) -> None:
    """Nobody who received it has a reason to rewrite its signature."""
    _, peer = await on_record(server, "jane")

    assert await known(server, peer=peer) == 201
    assert await known(server, peer=spelled(peer)) == 401


async def test_a_number_counts_for_its_own_issuer_only(server: Api) -> None:
    """Another authority may give the same number to a certificate of its own."""
    serial, ours = await on_record(server, "jane")
    other = Intermediate(server, serial=int(serial, 16)).peer()

    await revoked(
        server, "s", certificate={"serialNumber": serial, "signerName": ORCH.client_signer}
    )

    assert await known(server, peer=ours) == 401
    assert await known(server, peer=other) == 201


async def test_a_signature_with_unused_bits_is_refused(server: Api) -> None:
    """A zero bit at the end that is called unused makes other bytes of the same signature."""
    jane = even(server)
    peer = Peer("127.0.0.1:2", respelled(jane.der, unused=1))

    assert await known(server, peer=jane.peer) == 201
    assert await known(server, peer=peer) == 401


async def test_watches_of_the_other_spelling_end(server: Api) -> None:
    """A watch that the thief has opened ends with the revocation of the certificate."""
    await prepared(server)
    jane = issued(cluster_authority(server.server.files.path), "jane").peer
    async with watching(server, peer=spelled(jane)) as watch:
        await revoked(server, "s", certificate={"sha256": sha256(jane)})
        await server.server.watches.check_all()

        assert watch.ended == "finish"


@pytest.mark.parametrize("spelling", ["own", "other"])
async def test_the_revocation_of_an_intermediate_revokes_what_it_issued(
    server: Api, spelling: str
) -> None:
    """Every certificate of the chain is looked up, whichever encoding of it the client sends."""
    between = Intermediate(server)
    peer = between.peer(mirrored(between.der) if spelling == "other" else between.der)
    before = await known(server, peer=peer)

    await revoked(server, "s", certificate={"sha256": hashlib.sha256(between.der).hexdigest()})

    assert before == 201
    assert await known(server, peer=peer) == 401
    assert await known(server, peer=issued_by_root(server)) == 201


async def test_the_revocation_of_a_root_by_fingerprint_revokes_what_it_issued(server: Api) -> None:
    """An authority of --client-ca-file is a certificate of the chain too."""
    root = encode(cluster_authority(server.server.files.path).certificate)

    await revoked(server, "s", certificate={"sha256": hashlib.sha256(root).hexdigest()})

    assert await known(server, peer=issued_by_root(server)) == 401


async def test_clients_end_with_their_issuer_on_open_connections(
    server: Api, clock: MovingClock
) -> None:
    """The proof of a connection is cached until the first certificate of the chain ends."""
    peer = Intermediate(server, lasts=MINUTE).peer()
    before = await known(server, peer=peer)

    clock.ahead += MINUTE + SECOND

    assert before == 201
    assert await known(server, peer=peer) == 401


@pytest.mark.parametrize("reason", ["keyCompromise", "certificateHold"])
def test_a_thief_cannot_go_on_over_tls(tmp_path: Path, reason: str) -> None:
    """The whole attack: the signature is rewritten in the file, and the same key is used."""
    data, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    whoami = ("whoami", "--kubeconfig", "alice.kubeconfig")
    with running_server(data):
        person.types("csr", "new", "alice")
        person.types("csr", "approve", "alice")
        person.types("csr", "fetch", "alice")
        files = ("--cert", "alice.crt", "--key", "alice.key")
        person.types("kubeconfig", *files, "--out", "alice.kubeconfig")
        person.types(*whoami)
        person.types("revoke", "csr/alice", "--yes", "--reason", reason)
        person.types(*whoami, code=1)

        leaf = x509.load_pem_x509_certificate((home / "alice.crt").read_bytes())
        other = mirrored(leaf.public_bytes(serialization.Encoding.DER))
        written = x509.load_der_x509_certificate(other)
        (home / "alice.crt").write_bytes(written.public_bytes(serialization.Encoding.PEM))
        person.types("kubeconfig", *files, "--out", "alice.kubeconfig")
        refused = person.types(*whoami, code=1)

    assert "does not accept the credential" in refused.stderr
