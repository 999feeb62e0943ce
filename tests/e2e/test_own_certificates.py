"""Certificates that the server issues to itself are in the inventory, and can be revoked."""

from pathlib import Path

from cryptography import x509

from tests.e2e.person import Person
from tests.e2e.serving import running_server
from tests.security.test_restored_revocations import listed


def test_the_servers_own_certificates_are_recorded_once_and_can_be_listed(tmp_path: Path) -> None:
    """The serving certificate and that of admin.kubeconfig; a restart adds none."""
    data, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    with running_server(data) as server:
        first = person.gets("issued")
        server.stop()
    with running_server(data, port=server.port) as server:
        again = person.gets("issued")
        serving = x509.load_pem_x509_certificate((data / "serving.crt").read_bytes())
        person.types("revoke", f"cert/{serving.serial_number:x}", "--yes", "--reason", "superseded")
        entry = listed(server, serving.serial_number)

    serials = {each["metadata"]["name"] for each in first}
    messages = sorted(each["spec"]["approval"]["message"] for each in first)
    assert f"{serving.serial_number:x}" in serials
    assert {each["metadata"]["name"] for each in again} == serials
    assert messages == ["The server made admin.kubeconfig.", "The server made serving.crt."]
    assert entry.serial_number == serving.serial_number
