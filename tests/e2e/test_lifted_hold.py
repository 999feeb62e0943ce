"""A hold that is lifted while no controller runs, on a real server that is started again."""

import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from tests.e2e.https import Https
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.e2e.test_revoke_command import certified, revocation_of

PATIENCE = 30.0


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def listed(server: Server) -> set[int]:
    """The serial numbers in the revocation list; none if there is no list yet."""
    with Https(server.port) as anybody:
        answer = anybody.send("GET", "/crl/cluster.crl")
    if answer.status != 200:
        return set()
    return {entry.serial_number for entry in x509.load_der_x509_crl(answer.body)}


def test_a_hold_lifted_without_controllers_is_gone_from_inventory_and_list(
    tmp_path: Path,
) -> None:
    """Both follow from the revocations there are; afterwards it can be revoked again."""
    data, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    with running_server(data) as server:
        person = Person(home, server.kubeconfig)
        certified(person, "held")
        held = x509.load_pem_x509_certificate((home / "held.crt").read_bytes()).serial_number
        made = person.types("revoke", "csr/held", "--yes", "--reason", "certificateHold")
        until(lambda: held in listed(server) and bool(person.gets("issued", "--revoked")))
        port = server.port
    with running_server(data, "--controllers", "", port=port):
        person.types("revoke", "lift", "--yes", revocation_of(made.stdout))

    with running_server(data, port=port) as server:
        until(lambda: held not in listed(server) and not person.gets("issued", "--revoked"))
        person.types("revoke", "csr/held", "--yes", "--reason", "keyCompromise")
        until(lambda: held in listed(server) and bool(person.gets("issued", "--revoked")))
