"""Chains of an intermediate authority (root, intermediate, leaf), judged by nginx and curl.

nginx trusts the root alone, and has the revocation lists of both authorities.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.e2e.person import Person
from tests.e2e.serving import Server, free_port, running_server
from tests.system_packages import require_program

HOST = "shop.example.com"
SIGNER = "example.com/shop"
LISTS = ("corp", "shop")
CONFIGURATION = """
pid nginx.pid;
error_log error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
  uwsgi_temp_path temp; scgi_temp_path temp;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate server.crt; ssl_certificate_key server.key;
    ssl_client_certificate root.pem; ssl_crl lists.pem;
    ssl_verify_client optional; ssl_verify_depth 2;
    location / {{ return 200 "$ssl_client_verify"; }}
  }}
}}
"""

pytestmark = pytest.mark.system_package("nginx", "curl")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("chains") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """An administrator with a root, an intermediate below it, and three certificates."""
    person = Person(tmp_path_factory.mktemp("home"), server.kubeconfig)
    usages = ("--usage", "digital signature", "--usage", "server auth", "--usage", "client auth")
    person.types("ca", "new", "corp", "--signer", "example.com/corp")
    person.types("ca", "new", "shop", "--signer", SIGNER, "--parent", "corp", *usages)
    for name in ("server", "client", "revoked"):
        person.types("csr", "new", name, "--signer", SIGNER, "--dns", HOST)
        person.types("csr", "approve", name)
        person.types("csr", "fetch", name)
    bundle = person.types("bundle", "show", "--signer", SIGNER, "--pem").stdout
    (person.home / "root.pem").write_text(bundle)
    leaf = (person.home / "client.crt").read_text().partition("-----END CERTIFICATE-----")
    (person.home / "leaf.crt").write_text(leaf[0] + leaf[1] + "\n")
    (person.home / "leaf.key").write_text((person.home / "client.key").read_text())
    return person


def serial_of(admin: Person, certificate: str) -> int:
    command = ["openssl", "x509", "-in", certificate, "-noout", "-serial"]
    found = subprocess.run(command, cwd=admin.home, check=True, capture_output=True, text=True)
    return int(found.stdout.partition("=")[2], 16)


def fetch_lists(admin: Person, server: Server, revoked: int | None = None) -> None:
    """Fetch the lists of both authorities, once they have a certificate."""
    deadline, ca = time.monotonic() + 60, str(server.data_dir / "ca.crt")
    while True:
        urls = [f"{server.url}/crl/{name}.pem" for name in LISTS]
        fetched = subprocess.run(
            ["curl", "-sSf", "--cacert", ca, *urls], capture_output=True, check=False
        )
        (admin.home / "lists.pem").write_bytes(fetched.stdout)
        is_complete = fetched.returncode == 0 and fetched.stdout.count(b"BEGIN X509 CRL") == 2
        if is_complete and (revoked is None or revoked in listed(fetched.stdout)):
            return
        assert time.monotonic() < deadline, fetched
        time.sleep(0.1)


def listed(lists: bytes) -> set[int]:
    """The serial numbers on some lists."""
    end = b"-----END X509 CRL-----\n"
    parsed = [x509.load_pem_x509_crl(one + end) for one in lists.split(end) if one.strip()]
    return {entry.serial_number for one in parsed for entry in one}


@contextlib.contextmanager
def serving(home: Path) -> Iterator[int]:
    """An nginx with the certificates and lists of a directory."""
    port, configuration = free_port(), home / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(port=port))
    command = [require_program("nginx"), "-e", "error.log", "-p", home, "-c", configuration]
    subprocess.run(command, check=True, cwd=home)
    try:
        yield port
    finally:
        os.kill(int((home / "nginx.pid").read_text()), signal.SIGTERM)


def verdict(home: Path, port: int, client: str) -> str:
    """The verdict of nginx about a client; empty if curl does not accept the chain of nginx."""
    done = subprocess.run(
        [
            "curl", "-s", "--cacert", "root.pem", "--connect-to", f"::127.0.0.1:{port}",
            "--cert", f"{client}.crt", "--key", f"{client}.key", f"https://{HOST}/",
        ],
        cwd=home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else ""


def test_chains_below_a_root_are_accepted_until_they_are_revoked(
    server: Server, admin: Person
) -> None:
    """Of servers and of clients; without the intermediate none is, and a revoked leaf is not."""
    home = admin.home
    fetch_lists(admin, server)
    with serving(home) as port:
        before = {name: verdict(home, port, name) for name in ("client", "revoked", "leaf")}
    admin.types("revoke", "csr/revoked", "--yes")
    fetch_lists(admin, server, serial_of(admin, "revoked.crt"))
    with serving(home) as port:
        after = {name: verdict(home, port, name) for name in ("client", "revoked")}

    assert (home / "root.pem").read_text().count("BEGIN CERTIFICATE") == 1
    assert (home / "client.crt").read_text().count("BEGIN CERTIFICATE") == 2
    assert before["client"] == before["revoked"] == "SUCCESS"
    assert "400 No required SSL" in before["leaf"] or "400 The SSL" in before["leaf"]
    assert after["client"] == "SUCCESS"
    assert "400 The SSL certificate error" in after["revoked"]


def test_a_revoked_intermediate_ends_the_chains_below_it(server: Server, admin: Person) -> None:
    """It is on the list of its parent, and nginx refuses each certificate that it has signed."""
    records = admin.gets("issued", "--signer", "example.com/corp")
    [intermediate] = [one for one in records if one["spec"].get("intermediate")]
    serial = intermediate["spec"]["serialNumber"]

    admin.types("revoke", f"cert/{serial}", "--yes")
    fetch_lists(admin, server, int(serial, 16))
    with serving(admin.home) as port:
        refused = verdict(admin.home, port, "client")

    assert "400 The SSL certificate error" in refused
