"""The audit record of a running server has the shape of the reference's, event by event."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.conftest import StartServer
from tests.e2e.https import Https
from tests.e2e.serving import ServerFailed, running_server

RECORDED = Path(__file__).resolve().parents[1] / "data" / "audit" / "events.json"
ADMIN, BOB = "admin-token-0001", "bob-token-0003"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
CSRS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
ACCOUNTS = "/api/v1/namespaces/audit-demo/serviceaccounts"
POLICY = """
apiVersion: audit.orch.io/v1
kind: Policy
rules:
- level: Request
  resources: [{group: certificates.orch.io}]
- level: Metadata
"""


def signing_request() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "demo")])
    built = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(built.public_bytes(serialization.Encoding.PEM)).decode()


def play(server: Https) -> None:
    """Do what was done to the reference when its events were recorded."""
    server.send("POST", "/api/v1/namespaces", {"metadata": {"name": "audit-demo"}}, token=ADMIN)
    server.send("POST", ACCOUNTS, {"metadata": {"name": "app"}}, token=ADMIN)
    token = server.send("POST", f"{ACCOUNTS}/app/token", {}, token=ADMIN).json["status"]["token"]
    authentication = "/apis/authentication.orch.io/v1"
    review = {"spec": {"token": token}}
    server.send("POST", f"{authentication}/tokenreviews", review, token=ADMIN)
    myself = f"{authentication}/selfsubjectreviews"
    server.send("POST", myself, {}, token=token)
    carol = {"Impersonate-User": "carol", "Impersonate-Group": "g1"}
    server.send("POST", myself, {}, token=ADMIN, headers=carol)
    server.send("GET", ACCOUNTS, token=BOB)
    server.send("GET", ACCOUNTS, token="wrong-token")
    spec = {
        "request": signing_request(),
        "signerName": "example.com/demo",
        "usages": ["client auth"],
    }
    csr = {"metadata": {"name": "audit-demo"}, "spec": spec}
    server.send("POST", CSRS, csr, token=ADMIN)
    csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]}
    server.send("PUT", f"{CSRS}/audit-demo/approval", csr, token=ADMIN)
    server.send("GET", f"{ACCOUNTS}?watch=true&timeoutSeconds=1", token=ADMIN)
    server.send("DELETE", f"{ACCOUNTS}/app", token=ADMIN)


def settled(value: Any) -> Any:
    """The value with what changes from run to run replaced, as in the recording."""
    if isinstance(value, dict):
        return {key: settled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [settled(item) for item in value]
    if isinstance(value, str):
        return TIME.sub("<time>", UUID.sub("<uuid>", value))
    return value


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    event = settled(event)
    event.pop("userAgent", None)
    if "requestObject" in event:
        event["requestObject"] = "<the request body>"
    return event


def test_events_are_those_of_the_reference(start_server: StartServer, tmp_path: Path) -> None:
    """Every event that the reference wrote of the same story, we write too, field for field."""
    policy, record = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(POLICY)
    server = start_server(
        "--audit-log-path", str(record), "--audit-policy-file", str(policy), "--controllers", ""
    )

    with Https(server.port) as https:
        play(https)
    server.stop()

    written = [comparable(json.loads(line)) for line in record.read_text().splitlines()]
    missing = [
        event for event in map(comparable, json.loads(RECORDED.read_text())) if event not in written
    ]
    assert missing == []


def test_order_of_fields_is_that_of_the_reference(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Lines begin alike, so that tools which cut text find what they look for."""
    policy, record = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(POLICY)
    server = start_server(
        "--audit-log-path", str(record), "--audit-policy-file", str(policy), "--controllers", ""
    )

    with Https(server.port) as https:
        https.send("GET", ACCOUNTS, token=ADMIN)
    server.stop()

    # The server writes about itself too, before and after.
    line = [
        line for line in record.read_text().splitlines() if f'"requestURI":"{ACCOUNTS}"' in line
    ][-1]
    recorded = json.loads(RECORDED.read_text())[11]
    assert [key for key in json.loads(line) if key != "userAgent"] == list(recorded)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("kind: Policy", "--audit-policy-file: .*missing required field"),
        (None, "--audit-log-path and --audit-policy-file go together"),
    ],
)
def test_bad_policy_stops_the_start(tmp_path: Path, policy: str | None, message: str) -> None:
    """An invalid policy is reported at start, without a traceback."""
    flags = ["--audit-log-path", str(tmp_path / "audit.log")]
    if policy is not None:
        path = tmp_path / "policy.yaml"
        path.write_text(policy)
        flags += ["--audit-policy-file", str(path)]

    with (
        pytest.raises(ServerFailed, match=f"(?s)exit code 2.*{message}") as failure,
        running_server(tmp_path / "data", *flags),
    ):
        pass

    assert "Traceback" not in str(failure.value)
