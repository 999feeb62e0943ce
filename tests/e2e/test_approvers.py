"""The inventory names the approver, whichever process issues, also after a restore."""

from pathlib import Path

from tests.e2e.conftest import StartServer
from tests.e2e.test_commands import person_of
from tests.e2e.test_controllers import REQUESTS, ask_and_approve, call, is_issued, until

ISSUED = "/apis/identity.orch.io/v1alpha1/issuedcertificates"


def test_workers_issue_what_was_approved_before_a_backup(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The note is in the backup, and every worker has it with the request."""
    server = start_server("--controllers", "")
    person = person_of(server, tmp_path)
    data = ("--data-dir", str(server.data_dir))
    ask_and_approve(server, "r")
    person.types("backup", "saved.db", *data)
    call(server, "DELETE", f"{REQUESTS}/r")
    server.stop()
    person.types("restore", "saved.db", *data)

    again = start_server("--workers", "2", port=server.port)

    until(again, f"{REQUESTS}/r", is_issued)
    selected = f"{ISSUED}?fieldSelector=spec.request.name%3Dr"
    [record] = call(again, "GET", selected)[1]["items"]
    assert record["spec"]["approver"]["username"] == "admin"
    assert "admin" in person.types("issued", "-o", "wide", "--name", "alice").stdout.splitlines()[1]
