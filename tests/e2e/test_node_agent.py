"""The life of a node agent, with nothing but the API and `openssl`: join, serve, renew.

A bootstrap token asks for a client certificate, which is approved and signed without anybody's
help. The certificate is the node. The node asks for a serving certificate, which a person approves,
and renews its own certificate with the old one. What is bound to whom by default, and what an
operator binds (`BINDINGS`), is in docs/access.md.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.handshake import shaken
from tests.e2e.issuing import (
    NODE_CLIENT,
    NODE_SERVING,
    REQUESTS,
    Requester,
    condition_types,
    new_request,
    openssl,
)
from tests.e2e.serving import Server, running_server

pytestmark = pytest.mark.system_package("openssl")

ADMIN_TOKENS = 'admin-token,admin,uid-admin,"system:masters"\n'
TOKEN_SECRET = "0123456789abcdef"
BOOTSTRAPPERS = "system:bootstrappers:nodes"
RBAC = "/apis/rbac.authorization.orch.io/v1/clusterrolebindings"
REVIEW = "/apis/authentication.orch.io/v1/selfsubjectreviews"
OWN = "system:certificates.orch.io:certificatesigningrequests"
# What an operator binds: who may ask, whose first request is approved, whose renewal is.
BINDINGS = {
    "bootstrap": ("system:node-bootstrapper", BOOTSTRAPPERS),
    "bootstrap-approval": (f"{OWN}:nodeclient", BOOTSTRAPPERS),
    "renewal-approval": (f"{OWN}:selfnodeclient", "system:nodes"),
}
NODE = "/O=system:nodes/CN=system:node:n1"
CLIENT_USAGES = ("digital signature", "client auth")
SERVING_USAGES = ("digital signature", "server auth")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("nodes")
    tokens = directory / "tokens.csv"
    tokens.write_text(ADMIN_TOKENS)
    with running_server(directory / "data", "--token-auth-file", str(tokens)) as started:
        yield started


@pytest.fixture
def admin(server: Server) -> Requester:
    return Requester(server.port, token="admin-token")


@pytest.fixture
def joined(server: Server, admin: Requester, tmp_path: Path) -> Iterator[Path]:
    """A node's client certificate and key in one file, got with a bootstrap token."""
    bind(admin, *BINDINGS)
    token = make_token(admin, "abcdef", **{"auth-extra-groups": BOOTSTRAPPERS})
    bootstrap = Requester(server.port, token=token)
    request = new_request(tmp_path / "node.key", NODE)
    made = bootstrap.ask("first", NODE_CLIENT, request, CLIENT_USAGES)
    assert made.status == 201, made.body
    yield identity(tmp_path / "node", bootstrap.certificate("first"))
    for name in ("first", "renewal", "serving", "second"):
        admin.send("DELETE", f"{REQUESTS}/{name}")


def bind(admin: Requester, *names: str) -> None:
    for name in names:
        role, group = BINDINGS[name]
        admin.send("POST", RBAC, binding(name, role, group))


def binding(name: str, role: str, group: str) -> dict[str, Any]:
    api_group = "rbac.authorization.orch.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api_group, "kind": "Group", "name": group}],
    }


def make_token(admin: Requester, token_id: str, **more: str) -> str:
    """Store the Secret that makes a bootstrap token good, and give the token."""
    secret = {
        "metadata": {"name": f"bootstrap-token-{token_id}"},
        "type": "bootstrap.orch.io/token",
        "stringData": {
            "token-id": token_id,
            "token-secret": TOKEN_SECRET,
            "usage-bootstrap-authentication": "true",
            **more,
        },
    }
    admin.send("POST", "/api/v1/namespaces/orch-system/secrets", secret)
    return f"{token_id}.{TOKEN_SECRET}"


def identity(stem: Path, certificate: bytes) -> Path:
    """A certificate and the key beside it as one file."""
    whole = stem.with_suffix(".pem")
    whole.write_bytes(certificate + stem.with_suffix(".key").read_bytes())
    return whole


def who(caller: Requester) -> dict[str, Any]:
    info: dict[str, Any] = caller.make(REVIEW, {})["status"]["userInfo"]
    return info


def test_certificate_from_a_bootstrap_token_is_the_node(server: Server, joined: Path) -> None:
    """Approved and signed by itself, it authenticates at the front door as the node."""
    node = Requester(server.port, identity=joined)

    known = who(node)

    assert known["username"] == "system:node:n1"
    assert known["groups"] == ["system:nodes", "system:authenticated"]


def test_nothing_is_approved_that_nobody_bound(
    server: Server, admin: Requester, tmp_path: Path
) -> None:
    """A bootstrap token alone may not even ask: the bindings are the operator's decision."""
    stranger = Requester(server.port, token=make_token(admin, "fedcba"))

    answer = stranger.ask(
        "uninvited", NODE_CLIENT, new_request(tmp_path / "k", NODE), CLIENT_USAGES
    )

    assert answer.status == 403


def test_node_renews_its_certificate_with_the_old_one(
    server: Server, joined: Path, tmp_path: Path
) -> None:
    """The renewal is approved as the node's own (selfnodeclient) and is as good as the first."""
    node = Requester(server.port, identity=joined)
    request = new_request(tmp_path / "renewed.key", NODE)

    assert node.ask("renewal", NODE_CLIENT, request, CLIENT_USAGES).status == 201
    status = node.outcome("renewal")
    renewed = identity(tmp_path / "renewed", node.certificate("renewal"))

    assert status["conditions"][0]["message"] == (
        "Auto approving self orchlet client certificate after SubjectAccessReview."
    )
    known = who(Requester(server.port, identity=renewed))
    assert known["username"] == "system:node:n1"
    assert openssl("x509", "-noout", "-serial", "-in", renewed) != openssl(
        "x509", "-noout", "-serial", "-in", joined
    )


def test_node_cannot_ask_in_the_name_of_another(
    server: Server, joined: Path, tmp_path: Path
) -> None:
    """A node that was taken over stays one node."""
    node = Requester(server.port, identity=joined)
    request = new_request(tmp_path / "k", "/O=system:nodes/CN=system:node:n2")

    answer = node.ask("second", NODE_CLIENT, request, CLIENT_USAGES)

    assert answer.status == 403
    assert "can only create a node CSR with CN=system:node:n1" in answer.json["message"]


def test_serving_certificate_is_approved_by_a_person_and_good_for_tls(
    server: Server, admin: Requester, joined: Path, tmp_path: Path
) -> None:
    """It waits for the administrator; then `openssl verify` and a TLS handshake accept it."""
    node = Requester(server.port, identity=joined)
    names = "subjectAltName=DNS:n1.example,IP:127.0.0.1"
    request = new_request(tmp_path / "serving.key", NODE, names)
    assert node.ask("serving", NODE_SERVING, request, SERVING_USAGES).status == 201
    waiting = admin.send("GET", f"{REQUESTS}/serving").json["status"]

    assert admin.approve("serving").status == 200
    serving = identity(tmp_path / "serving", node.certificate("serving"))

    assert condition_types(waiting) == []
    trusted = admin.anchors(NODE_SERVING, tmp_path / "anchors.pem")
    purpose = ("-purpose", "sslserver", "-verify_hostname", "n1.example")
    assert openssl("verify", "-CAfile", trusted, *purpose, serving).endswith(": OK\n")
    assert peer_names(serving, trusted, "n1.example") == {"n1.example", "127.0.0.1"}
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        peer_names(serving, trusted, "n2.example")


def peer_names(serving: Path, trusted: Path, host: str) -> set[str]:
    """Serve TLS with a certificate, connect as a client who expects `host`, give what it saw."""
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    accepting.load_cert_chain(serving)
    seen, _ = shaken(accepting, ssl.create_default_context(cafile=str(trusted)), host)
    return {value for _, value in seen["subjectAltName"]}
