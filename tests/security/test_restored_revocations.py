"""A restored backup makes no credential valid that was revoked after it."""

import argparse
import base64
import contextlib
import hashlib
import http.client
import ssl
import time
from pathlib import Path

from cryptography import x509

from orchid.features.revoking import revocation_file
from orchid.kernel.terminal.connection import CommandRefused, ServerConnection, connect
from orchid.kernel.wire.naming import ORCH
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.security.certified import issued, other_authority
from tests.security.test_restored_decisions import admin
from tests.security.test_restored_owners import is_gone, until


def test_a_revocation_made_after_the_backup_is_named_and_kept(tmp_path: Path) -> None:
    """The restore reports it, and the server applies it at start; a lifted hold stays lifted."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    alice = ("whoami", "--kubeconfig", "alice.kubeconfig")
    bob = ("whoami", "--kubeconfig", "bob.kubeconfig")
    with running_server(data) as server:
        for name in ("alice", "bob"):
            certified(person, name)
        person.types("backup", str(copy), "--data-dir", str(data))
        made = person.gets("revoke", "csr/alice", "--yes", "--reason", "keyCompromise")
        person.types(*alice, code=1)
        server.stop()

    restored = person.types("restore", str(copy), "--data-dir", str(data)).stdout
    with running_server(data, port=server.port) as again:
        refused = person.types(*alice, code=1)
        person.types(*bob)

        log = again.log_text()

    name = made[0]["metadata"]["name"]
    assert f"revocations created since, which the server keeps: {name}" in restored
    assert "does not accept the credential" in refused.stderr
    assert "revocation.put_back" in log


def test_a_name_that_was_used_again_and_a_file_that_lags_behind_revive_nothing(
    tmp_path: Path,
) -> None:
    """The backup has a hold of that name; the file lacks what was revoked while the disk was full.

    A token that was issued after the backup may live longer than any before.
    """
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    with running_server(data) as server:
        for name in ("alice", "bob", "carol"):
            certified(person, name)
        person.types("account", "new", "ci/builder")
        hold = person.gets("revoke", "csr/alice", "--yes", "--reason", "certificateHold")
        person.types("backup", str(copy), "--data-dir", str(data))
        person.types("token", "ci/builder", "--for", "8000h")
        reused = hold[0]["metadata"]["name"]
        person.types("revoke", "lift", "--yes", reused)
        person.gets("revoke", "csr/bob", "--yes", "--reason", "keyCompromise")
        person.gets("revoke", "csr/carol", "--yes", "--reason", "keyCompromise")
        server.stop()
    place = data / revocation_file.FILE
    noted = revocation_file.read(place)
    [of_bob] = [key for key, value in noted.items() if b'"requestName":"bob"' in value]
    renamed = noted[of_bob].replace(of_bob.rpartition("/")[2].encode(), reused.encode())
    again = revocation_file.line(f"{of_bob.rpartition('/')[0]}/{reused}", renamed)
    revocation_file.write(place, [again])  # as if bob's had that name; carol's was not written

    said = person.types("restore", str(copy), "--data-dir", str(data)).stdout
    with running_server(data, port=server.port):
        for name in ("alice", "bob", "carol"):
            person.types("whoami", "--kubeconfig", f"{name}.kubeconfig", code=1)
        [revoked] = person.gets("revoke", "account/ci/builder", "--yes")

    assert reused in said.partition("revocations created since, which the server keeps: ")[2]
    assert "expires" not in revoked.get("status", {})


def test_the_revocation_of_a_signer_holds_for_what_the_backup_does_not_know(tmp_path: Path) -> None:
    """A certificate issued after the backup has no record; the administrator's stays valid."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    with running_server(data) as server:
        person.types("backup", str(copy), "--data-dir", str(data))
        certified(person, "mallory")
        person.types("revoke", "authority/orch.io/orch-apiserver-client", "--yes")
        person.types("whoami", "--kubeconfig", "mallory.kubeconfig", code=1)
        server.stop()

    person.types("restore", str(copy), "--data-dir", str(data))
    with running_server(data, port=server.port):
        refused = person.types("whoami", "--kubeconfig", "mallory.kubeconfig", code=1)
        certified(person, "bob")
        person.types("whoami", "--kubeconfig", "bob.kubeconfig")

    assert "does not accept the credential" in refused.stderr


def test_the_revocation_of_an_account_stays_when_the_account_is_deleted(tmp_path: Path) -> None:
    """A restore brings the account back, with its uid: without the revocation, its tokens, too."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    with running_server(data) as server:
        person.types("account", "new", "ci/builder")
        stolen = person.types("token", "ci/builder").stdout
        person.types("backup", str(copy), "--data-dir", str(data))
        made = person.gets("revoke", "account/ci/builder", "--yes", "--reason", "keyCompromise")
        person.types("account", "delete", "--yes", "ci/builder")
        name = made[0]["metadata"]["name"]
        access = argparse.Namespace(kubeconfig=server.kubeconfig, context="")
        with contextlib.closing(connect(access)) as calls, contextlib.suppress(CommandRefused):
            calls.delete(f"/apis/{ORCH.identity}/v1/credentialrevocations/{name}")
        server.stop()

    person.types("restore", str(copy), "--data-dir", str(data))
    with running_server(data, port=server.port):
        shown = person.types("token", "show", "--verify", given=stolen, code=1)

    assert "revoked" in shown.stdout + shown.stderr


def test_the_revocations_of_a_cluster_stay_when_the_cluster_is_removed(tmp_path: Path) -> None:
    """A restore brings the cluster back, with its uid: what was revoked in it stays revoked."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    identity, authority = f"/apis/{ORCH.identity}/v1alpha1", other_authority()
    clusters, records = f"{identity}/clusters", f"{identity}/issuedcertificates"
    bundle = authority.certificate_pem.decode()
    spec = {"issuer": "https://prod.example", "clientAuthorities": bundle}
    with running_server(data) as server, admin(server) as calls:
        calls.post(clusters, {"metadata": {"name": "prod"}, "spec": spec})
        person.types("backup", str(copy), "--data-dir", str(data))
        target = {"cluster": "prod", "token": {"jti": "7"}}
        stolen = {"metadata": {"name": "stolen"}, "spec": target}
        calls.post(f"{identity}/credentialrevocations", stolen)
        certificate = issued(authority, "jane").der
        name = f"prod.{hashlib.sha256(certificate).hexdigest()}"
        sent = {"cluster": "prod", "certificate": base64.b64encode(certificate).decode()}
        calls.post(records, {"metadata": {"name": name}, "spec": {"signerName": "a/b", **sent}})
        before = denied(calls)
        calls.delete(f"{clusters}/prod")
        until(lambda: is_gone(calls, f"{records}/{name}"))  # the cleaner has seen the removal
        server.stop()

    person.types("restore", str(copy), "--data-dir", str(data))
    with running_server(data, port=server.port) as server, admin(server) as calls:
        after = denied(calls)

    assert (before, after) == (True, True)


def denied(calls: ServerConnection) -> bool:
    """Whether the webhook of the cluster denies a stolen token."""
    extra = {"authentication.kubernetes.io/credential-id": ["JTI=7"]}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "jane", "extra": extra},
    }
    answer = calls.post("/webhook/clusters/prod/authorize", review)
    return bool(answer["status"].get("denied"))


def certified(person: Person, name: str) -> None:
    """Have a certificate issued, and write a kubeconfig with it."""
    for words in (("new", name), ("approve", name), ("fetch", name)):
        person.types("csr", *words)
    files = ("--cert", f"{name}.crt", "--key", f"{name}.key")
    person.types("kubeconfig", *files, "--out", f"{name}.kubeconfig")


def test_a_certificate_issued_and_revoked_after_the_backup_stays_on_the_list(
    tmp_path: Path,
) -> None:
    """The backup knows neither the certificate nor its revocation; list and ledger have both."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    with running_server(data) as server:
        person.types("backup", str(copy), "--data-dir", str(data))
        person.types("csr", "new", "mallory")
        person.types("csr", "approve", "mallory")
        person.types("csr", "fetch", "mallory")
        person.types("revoke", "csr/mallory", "--yes", "--reason", "keyCompromise")
        leaf = x509.load_pem_x509_certificate((home / "mallory.crt").read_bytes())
        listed(server, leaf.serial_number)
        server.stop()

    words = ("restore", str(copy), "--data-dir", str(data))
    warned = person.types(*words, "--dry-run").stderr
    restored = person.types(*words, "--accept-ledger").stdout
    with running_server(data, port=server.port) as again:
        entry = listed(again, leaf.serial_number)
        inventory = person.types("issued").stdout
        logged = until_logged(person, f'"serial":"{leaf.serial_number:x}"', 2)

    assert entry.extensions[0].value == x509.CRLReason(x509.ReasonFlags.key_compromise)
    assert all('"restored":true' in one for one in logged)
    assert any('"type":"certificate.issued"' in one for one in logged)
    assert any('"type":"certificate.revoked"' in one for one in logged)
    assert f"{leaf.serial_number:x}" in inventory
    assert "orchid ledger accept" in warned
    assert "keep checkpoints. Accepted" in restored


def until_logged(person: Person, text: str, count: int = 1) -> list[str]:
    """Wait until the ledger has so many entries with a text."""
    until = time.monotonic() + 30
    while True:
        lines = person.types("ledger", "entries").stdout.splitlines()
        found = [line for line in lines if text in line]
        if len(found) >= count:
            return found
        assert time.monotonic() < until, "the ledger has no such entry"


def listed(server: Server, serial: int) -> x509.RevokedCertificate:
    """Wait until the published list has a certificate."""
    trusted = ssl.create_default_context(cafile=str(server.data_dir / "ca.crt"))
    until = time.monotonic() + 30
    while True:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusted)
        with contextlib.closing(connection):
            connection.request("GET", "/crl/cluster.crl")
            answer = connection.getresponse()
            data = answer.read()
        if answer.status == 200:
            found = x509.load_der_x509_crl(data).get_revoked_certificate_by_serial_number(serial)
            if found is not None:
                return found
        assert time.monotonic() < until, "the certificate is not on the list"
        time.sleep(0.05)
