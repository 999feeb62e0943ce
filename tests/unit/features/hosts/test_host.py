"""`orchid host`: what each action sends, prints and refuses."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import HOSTS, NODES
from tests.unit.kernel.terminal.answering import Server, commands
from tests.unit.kernel.terminal.api_server import END, PAST, record

Run = Callable[..., int]
SECRETS = f"/api/v1/namespaces/{ORCH.system_namespace}/secrets"
ISSUED = f"/apis/{ORCH.identity}/v1/issuedcertificates"
REVOCATIONS = f"/apis/{ORCH.identity}/v1/credentialrevocations"
REQUESTS = f"/apis/{ORCH.certificates}/v1/certificatesigningrequests"
BINDINGS = f"/apis/{ORCH.rbac}/v1/clusterrolebindings"
PODS = "/api/v1/namespaces/ci/pods"
USER = "system:node:web-1"
OWN = f"system:{ORCH.certificates}:certificatesigningrequests"
ROLES = ("system:node-bootstrapper", f"{OWN}:nodeclient", f"{OWN}:selfnodeclient")


@pytest.fixture
def server() -> Server:
    made = Server()
    for path in (SECRETS, ISSUED, REQUESTS, BINDINGS, REVOCATIONS, "/api/v1/pods", "/api/v1/nodes"):
        made.listed(path)
        made.on("POST", path, lambda sent: sent, 201)
    made.on("POST", PODS, lambda sent: sent, 201)
    for role in ROLES:
        made.get(f"/apis/{ORCH.rbac}/v1/clusterroles/{role}", {"metadata": {"name": role}})
    return made


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Iterator[Run]:
    with commands(server, tmp_path) as made:
        yield made


def joined(server: Server, *records: Any) -> None:
    server.listed(ISSUED, *(records or (record("a1", username=USER, subject="x"),)))


def test_a_join_file_has_a_token_of_the_host(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """For a day, or as long as a flag says; with the roles of hosts."""
    before = datetime.now(UTC)
    assert run("host", "new", "web-1", "--out", tmp_path / "join") == 0
    assert run("host", "new", "web-1", "--for", "1h", "--out", tmp_path / "short") == 0

    day, hour = server.sent("POST", SECRETS)
    assert day["type"] == ORCH.bootstrap_token_type
    data = day["stringData"]
    assert data["usage-bootstrap-authentication"] == "true"
    assert (data["auth-extra-groups"], data["node-name"]) == (HOSTS, "web-1")
    assert day["metadata"]["name"] == f"bootstrap-token-{data['token-id']}"
    assert (len(data["token-id"]), len(data["token-secret"])) == (6, 16)
    for secret, lasts in ((day, timedelta(days=1)), (hour, timedelta(hours=1))):
        end = datetime.fromisoformat(secret["stringData"]["expiration"])
        assert timedelta(0) <= end - before - lasts + timedelta(seconds=1) < timedelta(minutes=5)
    text = (tmp_path / "join").read_text()
    assert f"{data['token-id']}.{data['token-secret']}" in text
    assert (tmp_path / "join").stat().st_mode & 0o777 == 0o600
    bound = {
        (sent["roleRef"]["name"], sent["subjects"][0]["name"])
        for sent in server.sent("POST", BINDINGS)
    }
    assert bound == set(zip(ROLES, (HOSTS, HOSTS, NODES), strict=True))


def test_a_host_with_a_certificate_is_remarked_or_replaced(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    joined(server, record("b2", username=USER), record("a1", username=USER))

    assert run("host", "new", "web-1") == 0
    assert "web-1 has the certificate a1" in capsys.readouterr().err
    assert not server.sent("POST", REVOCATIONS)
    assert run("host", "new", "web-1", "--replace") == 0
    specs = [sent["spec"] for sent in server.sent("POST", REVOCATIONS)]
    assert {spec["reason"] for spec in specs} == {"superseded"}
    assert {spec["message"] for spec in specs} == {"orchid host new web-1 --replace"}
    serials = [spec["certificate"]["serialNumber"] for spec in specs if "certificate" in spec]
    assert sorted(serials) == ["a1", "b2"]
    joined(server, record("a1", username=USER, notAfter=PAST), record("c3", username="other"))
    capsys.readouterr()
    assert run("host", "new", "web-1") == 0
    assert "has the certificate" not in capsys.readouterr().err


@pytest.mark.parametrize("host", ["Web", "web_1", "a..b"])
def test_a_name_that_no_host_has_is_refused(server: Server, run: Run, host: str) -> None:
    assert run("host", "new", host) == 2
    assert not server.sent("POST")


@pytest.mark.parametrize(
    ("flags", "sources"),
    [
        (
            ("--audience", "https://a", "--api"),
            [
                {"serviceAccountToken": {"path": "token-0", "audience": "https://a"}},
                {"serviceAccountToken": {"path": "token-1"}},
            ],
        ),
        (("--api",), [{"serviceAccountToken": {"path": "token-0"}}]),
        (
            ("--signer", "s", "--signer", "t", "--key-type", "ED25519"),
            [
                {
                    "podCertificate": {
                        "signerName": signer,
                        "keyType": "ED25519",
                        "credentialBundlePath": f"certificate-{number}.pem",
                    }
                }
                for number, signer in enumerate("st")
            ],
        ),
    ],
)
def test_an_account_is_placed_by_a_pod(
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    sources: Any,
) -> None:
    assert run("host", "place", "web-1", "ci/robot", *flags) == 0

    (sent,) = server.sent("POST", PODS)
    assert sent["metadata"] == {"name": "robot-web-1"}
    spec = sent["spec"]
    assert (spec["nodeName"], spec["serviceAccountName"]) == ("web-1", "robot")
    assert spec["automountServiceAccountToken"] is False
    assert spec["volumes"][0]["projected"]["sources"] == sources
    text = "placed ci/robot on web-1, by the Pod ci/robot-web-1\n"
    assert capsys.readouterr().out == text


def test_each_refusal_of_a_placement(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("host", "place", "web-1", "ci/robot") == 2
    assert not server.sent("POST")
    server.on("POST", PODS, {"message": "exists"}, 409)
    assert run("host", "place", "web-1", "ci/robot", "--api", "--name", "p") == 1
    assert "the Pod ci/p exists already" in capsys.readouterr().err
    server.on("POST", PODS, {"message": "not you"}, 403)
    assert run("host", "place", "web-1", "ci/robot", "--api") == 1
    assert "not you" in capsys.readouterr().err


def join_token(name: str, host: str) -> Any:
    data = {"node-name": base64.b64encode(host.encode()).decode()}
    return {"metadata": {"name": name}, "data": data}


def node(name: str) -> Any:
    return {"metadata": {"name": name, "creationTimestamp": PAST}}


def test_hosts_are_listed_with_those_that_have_no_node(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """The certificate is the last that ends; join tokens of hosts that joined do not count."""
    server.listed("/api/v1/nodes", node("web-1"), node("web-2"))
    soon = (datetime.now(UTC) + timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    joined(
        server,
        record("a1", username=USER, notAfter=soon),
        record("a0", username=USER, notAfter="2026-01-01T00:00:00Z"),
        record("b2", username="system:node:web-3"),
        record("c3", username="system:node:web-9", notAfter=PAST),
    )
    server.listed(SECRETS, *(join_token(f"t-{name}", name) for name in ("web-1", "web-3", "web-4")))

    assert run("host", "list") == 0

    printed = capsys.readouterr()
    rows = printed.out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["web-1", "web-2"]
    assert "valid for 4h" in rows[0]
    assert " none " in rows[1]
    assert "joined, but no Node object yet: web-3\n" in printed.err
    assert "may join, and have not yet: web-4\n" in printed.err
    assert run("host", "list", "-o", "json") == 0
    assert "no Node" not in capsys.readouterr().err


def placed(server: Server) -> None:
    pod = {
        "metadata": {"namespace": "ci", "name": "p"},
        "spec": {"nodeName": "web-1", "serviceAccountName": "robot"},
    }
    server.listed("/api/v1/pods", pod)
    server.on("DELETE", f"{PODS}/p", {})


def test_a_host_is_shown_with_what_it_has(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any of it is enough; a host without anything does not exist."""
    assert run("host", "show", "web-1") == 1
    assert "there is no host web-1" in capsys.readouterr().err
    revoked = record("r1", username=USER)
    revoked["status"] = {"revoked": {"reason": "keyCompromise"}}
    joined(server, record("a1", username=USER), revoked, record("e1", username=USER, notAfter=PAST))
    placed(server)
    server.listed(SECRETS, join_token("t1", "web-1"), join_token("t2", "web-2"))
    server.get("/api/v1/nodes/web-1", node("web-1"))

    assert run("host", "show", "web-1") == 0

    shown = capsys.readouterr().out
    assert "a1, expires " in shown
    assert "r1, revoked (keyCompromise)" in shown
    assert "e1, expired " in shown
    assert "ci/robot (by the Pod ci/p)" in shown
    assert "t1" in shown
    assert "t2" not in shown
    assert " ago" in shown
    assert run("host", "show", "web-1", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["certificates"]) == 3
    assert (found["node"]["metadata"]["name"], len(found["pods"])) == ("web-1", 1)


def one_certificate(server: Server) -> None:
    joined(server)


def one_token(server: Server) -> None:
    server.listed(SECRETS, join_token("t1", "web-1"))


def one_node(server: Server) -> None:
    server.get("/api/v1/nodes/web-1", node("web-1"))


@pytest.mark.parametrize("has", [one_certificate, placed, one_token, one_node])
def test_each_thing_makes_a_host(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], has: Callable[[Server], None]
) -> None:
    has(server)

    assert run("host", "show", "web-1") == 0

    assert capsys.readouterr().out.count(" none") == 3
    assert run("host", "show", "web-1") == 0


def test_a_node_that_cannot_be_read_is_no_missing_one(server: Server, run: Run) -> None:
    server.get("/api/v1/nodes/web-1", {"message": "no"}, 403)
    joined(server)

    assert run("host", "show", "web-1") == 1


def waiting_request(server: Server) -> None:
    one = {"metadata": {"name": "r"}, "spec": {"username": USER}}
    server.listed(REQUESTS, one)

    def delete(_sent: Any) -> Any:
        server.listed(REQUESTS)
        return {}

    server.on("DELETE", f"{REQUESTS}/r", delete)


@pytest.mark.parametrize(
    ("has", "text"),
    [
        (one_certificate, "revoked 1 certificate, deleted 0 Pods and 0 join tokens"),
        (placed, "revoked 0 certificates, deleted 1 Pod and 0 join tokens"),
        (one_token, "revoked 0 certificates, deleted 0 Pods and 1 join token"),
        (waiting_request, "revoked 0 certificates, deleted 0 Pods and 0 join tokens"),
    ],
)
def test_each_thing_of_a_host_is_ended(
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    has: Callable[[Server], None],
    text: str,
) -> None:
    """Its user first, so that nothing new is requested; and only if it is meant."""
    has(server)
    server.on("DELETE", f"{SECRETS}/t1", {})

    assert run("host", "revoke", "web-1") == 2
    assert not server.sent("POST")
    assert not server.sent("DELETE")
    assert run("host", "revoke", "web-1", "--yes", "--reason", "keyCompromise") == 0

    assert f"{text}\n" in capsys.readouterr().out
    first = server.sent("POST")[0]["spec"]
    assert first["user"] == {"username": USER}
    assert first["reason"] == "keyCompromise"
    writes = [(verb, path) for verb, path, _ in server.calls if verb != "GET"]
    assert writes[0] == ("POST", REVOCATIONS)


def test_a_host_without_anything_is_not_revoked(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    joined(server, record("a1", username=USER, notAfter=PAST))

    assert run("host", "revoke", "web-1", "--yes") == 1

    assert "no certificate, no Pod, no join token and no request" in capsys.readouterr().err
    assert not server.sent("POST")
    assert END > PAST
