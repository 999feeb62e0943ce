"""Tokens of an outside issuer, mapped and judged by the expressions of a file: a whole server."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.conformance.exchanges import tokens_by_user
from tests.e2e.conftest import StartServer
from tests.e2e.https import Https, Reply
from tests.e2e.person import Person
from tests.e2e.serving import Server, start

WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
REVIEW = "/apis/authentication.orch.io/v1/tokenreviews"
CANARY = "canary-4711"


class Issuer:
    """An OpenID provider that publishes one key on loopback and signs whatever it is asked to."""

    def __init__(self) -> None:
        self._authority = trustme.CA()
        self._key = ec.generate_private_key(ec.SECP256R1())
        pages: dict[str, Any] = {}

        class Pages(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(pages[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert("127.0.0.1").configure_cert(tls)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        where = f"{self.url}/keys"
        pages["/.well-known/openid-configuration"] = {"issuer": self.url, "jwks_uri": where}
        public = ECAlgorithm(ECAlgorithm.SHA256).to_jwk(self._key.public_key(), as_dict=True)
        pages["/keys"] = {"keys": [{**public, "kid": "k", "use": "sig", "alg": "ES256"}]}
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, **claims: Any) -> str:
        now = int(time.time())
        standard = {"iss": self.url, "aud": "orchid", "iat": now, "exp": now + 600, "jti": "j-1"}
        return jwt.encode({**standard, **claims}, self._key, "ES256", {"kid": "k"})

    def configuration(self, file: Path, **jwt_settings: Any) -> str:
        """Write a configuration that trusts this issuer, and give its path."""
        trusted = {
            "url": self.url,
            "audiences": ["orchid"],
            "certificateAuthority": self._authority.cert_pem.bytes().decode(),
        }
        document = {
            "apiVersion": "apiserver.config.orch.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [{"issuer": trusted, **jwt_settings}],
        }
        file.write_text(json.dumps(document))
        return str(file)


RULES = {
    "claimMappings": {
        "username": {"expression": "'corp:' + claims.email"},
        "groups": {"expression": "claims.roles.split(',').map(role, 'corp:' + role)"},
        "uid": {"expression": "claims.corp__dot__example.id"},
        "extra": [{"key": "corp.example/team", "valueExpression": "claims.?team.orValue('')"}],
    },
    "claimValidationRules": [
        {"expression": "claims.email_verified == true", "message": "the address is not verified"}
    ],
    "userValidationRules": [
        {
            "expression": "user.groups.all(group, !group.startsWith('corp:system:'))",
            "message": "the system's own groups are not for you",
        }
    ],
}
GOOD: dict[str, Any] = {
    "email": "jane@corp.example",
    "email_verified": True,
    "roles": "devs,ops",
    "corp.example": {"id": "u-1"},
    "team": ["red", "blue"],
}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


@pytest.fixture
def server(start_server: StartServer, issuer: Issuer, tmp_path: Path) -> Server:
    file = issuer.configuration(tmp_path / "authentication.json", **RULES)
    return start_server("--authentication-config", file, "--controllers", "")


def who(server: Server, token: str) -> Reply:
    with Https(server.port) as client:
        return client.send("POST", WHO, {}, token=token)


def reviewed(server: Server, token: str) -> Any:
    with Https(server.port) as client:
        sent = {"spec": {"token": token}}
        return client.send("POST", REVIEW, sent, token=tokens_by_user()["admin"]).json["status"]


def test_claims_become_a_user_by_expressions(server: Server, issuer: Issuer) -> None:
    """Name, groups, uid and extra, as a SelfSubjectReview returns them."""
    answer = who(server, issuer.token(**GOOD))

    assert answer.status == 201, answer.body
    user = answer.json["status"]["userInfo"]
    assert user["username"] == "corp:jane@corp.example"
    assert user["groups"] == ["corp:devs", "corp:ops", "system:authenticated"]
    assert user["uid"] == "u-1"
    assert user["extra"] == {
        "authentication.orch.io/credential-id": ["JTI=j-1"],
        "corp.example/team": ["red", "blue"],
    }


def test_rules_refuse_and_a_review_says_why(server: Server, issuer: Issuer, tmp_path: Path) -> None:
    """The caller gets 401 and no reason; a review has the reason, and `orchid token show` too."""
    administrator = Person(tmp_path, server.kubeconfig)
    for change, text in (
        ({"email_verified": False}, "failed: the address is not verified"),
        ({"roles": "devs,system:masters"}, "failed: the system's own groups are not for you"),
        ({"roles": 5}, "no such overload"),
    ):
        token = issuer.token(**{**GOOD, **change})

        assert who(server, token).status == 401
        status = reviewed(server, token)
        assert not status.get("authenticated")
        assert text in status["error"]
        assert text in administrator.types("token", "show", "--verify", given=token, code=1).stdout
    accepted = administrator.types("token", "show", "--verify", given=issuer.token(**GOOD))
    assert "corp:jane@corp.example" in accepted.stdout


def test_hostile_claims_are_refused_without_a_trace(server: Server, issuer: Issuer) -> None:
    """Deep, large, wrong, missing, cut short: 401, no traceback, nothing of them in the log."""
    deep: Any = CANARY
    for _ in range(500):
        deep = [deep]
    hostile = [
        {"roles": None},
        {"roles": [CANARY]},
        {"roles": {CANARY: CANARY}},
        {"roles": f"{CANARY}," * 700 + "," * 2000},
        {"roles": f"devs\0{CANARY}"},
        {"email": f"admin\0{CANARY}"},
        {"email": [[CANARY]]},
        {"email_verified": CANARY},
        {"email_verified": None},
        {"corp.example": CANARY},
        {"corp.example": {}},
        {"team": {"x": CANARY}},
        {"team": [1, CANARY]},
        {"team": 2**70},
        {"x": deep},
        {"x": [CANARY] * 500 + [1] * 600},
        {"x": 10**400},
        {f"{CANARY}\0": 1},
    ]
    absent = [{key: value for key, value in GOOD.items() if key != name} for name in GOOD]
    absent.pop()  # a team need not be given

    with Https(server.port) as client:
        for claims in (*({**GOOD, **change} for change in hostile), *absent):
            token = issuer.token(**claims)
            answer = client.send("POST", WHO, {}, token=token)
            assert answer.status == 401, (str(claims)[:80], answer.body)
            assert CANARY not in answer.body.decode()
            assert CANARY not in json.dumps(reviewed(server, token).get("error", ""))
    assert who(server, issuer.token(**GOOD)).status == 201

    server.stop()
    assert CANARY not in server.log_text()
    assert "Traceback" not in server.log_text()


def ended(tmp_path: Path, *flags: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    server = start(tmp_path / "data", *flags, env=env)
    try:
        return server.process.wait(30), server.log_text()
    finally:
        server.kill()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_expression_that_cannot_run_stops_the_start(
    issuer: Issuer, tmp_path: Path, workers: str
) -> None:
    """With its place, its reason and exit code 2; no traceback."""
    wrong = {**RULES, "userValidationRules": [{"expression": "user.name == 'a'"}]}
    file = issuer.configuration(tmp_path / "wrong.json", **wrong)

    code, log = ended(tmp_path, "--authentication-config", file, "--workers", workers)

    assert code == 2
    assert "jwt[0].userValidationRules[0].expression: Invalid value" in log
    assert "undefined field 'name'" in log
    assert "Traceback" not in log


def test_missing_library_stops_the_start_and_names_the_extra(
    issuer: Issuer, tmp_path: Path
) -> None:
    """Without the CEL library, the error names the missing package."""
    hidden = tmp_path / "hidden" / "cel_expr_python"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    file = issuer.configuration(tmp_path / "right.json", **RULES)

    code, log = ended(
        tmp_path, "--authentication-config", file, env={"PYTHONPATH": str(hidden.parent)}
    )

    assert code == 2
    assert "no cel-expr-python for this platform" in log
    assert "Traceback" not in log
