"""A canary token, sent in every header, query and body field, is found in nothing we write.

(Bearer tokens in logs: CVE-2019-11250, CVE-2020-8565, CVE-2025-7445.) The server is as talkative
as it can be: log level debug, everything audited with request and response. Three canaries fly:

    presented   the caller's own token, repeated wherever a text can stand
    shaped      a token of a service account, repeated by somebody else
    kept        text without any shape, where secrets belong: Secrets, reviews, unknown parameters

After each flight standard output and error, the audit record and /metrics are searched for the
canary, and the number of metric series is compared. In the audit record names are not searched, nor
paths and selectors: they are never hidden, lest one hide by a name that looks like a secret.
"""

import base64
import copy
import http.client
import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.https import Https
from tests.e2e.serving import Server

ADMIN = "admin-token-0001"
POLICY = """
apiVersion: audit.orch.io/v1
kind: Policy
rules: [{level: RequestResponse}]
"""
HERE = "/api/v1/namespaces/canary"
AUTHENTICATION = "/apis/authentication.orch.io/v1"
PATHS = [
    "/",
    "/version",
    "/healthz",
    "/livez/ping",
    "/metrics",
    "/api",
    "/apis",
    "/openapi/v2",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/invented/{}",
    "/apis/{}/v1/things",
    "/api/v1/{}",
    "/api/v1/namespaces/{}",
    f"{HERE}/serviceaccounts",
    f"{HERE}/serviceaccounts/{{}}",
    f"{HERE}/serviceaccounts/{{}}/token",
    f"{HERE}/secrets",
    f"{HERE}/secrets/{{}}",
    f"{HERE}/configmaps/{{}}",
    f"{HERE}/{{}}/{{}}/{{}}",
    f"{AUTHENTICATION}/tokenreviews",
    f"{AUTHENTICATION}/selfsubjectreviews",
    "/apis/certificates.orch.io/v1/certificatesigningrequests/{}/approval",
    "/apis/rbac.authorization.orch.io/v1/clusterroles/{}",
]
QUERIED = [f"{HERE}/serviceaccounts", f"{HERE}/secrets/app", "/healthz", "/invented"]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
PARAMETERS = [
    "access_token", "token", "continue", "dryRun", "fieldManager", "fieldSelector",
    "fieldValidation", "labelSelector", "limit", "pretty", "propagationPolicy", "resourceVersion",
    "timeout", "timeoutSeconds", "uid",
]  # fmt: skip
HEADERS = [
    "Accept", "Audit-ID", "Content-Type", "Cookie", "If-None-Match", "Impersonate-Group",
    "Impersonate-Uid", "Impersonate-User", "Impersonate-Extra-Scopes", "Origin", "Referer",
    "Traceparent", "User-Agent", "X-Api-Key", "X-Forwarded-For", "X-Real-Ip", "X-Remote-Group",
    "X-Remote-User",
]  # fmt: skip
META = {
    "name": "bird", "generateName": "bird-", "namespace": "canary", "uid": "u",
    "resourceVersion": "1", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a/b"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
    "invented": "x",
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces": {"kind": "Namespace", "apiVersion": "v1", "metadata": META},
    f"{HERE}/serviceaccounts": {
        "kind": "ServiceAccount",
        "apiVersion": "v1",
        "metadata": META,
        "secrets": [{"name": "s"}],
        "invented": "x",
    },
    f"{HERE}/serviceaccounts/app/token": {
        "kind": "TokenRequest",
        "apiVersion": "authentication.orch.io/v1",
        "metadata": {"name": "app"},
        "spec": {
            "audiences": ["a"],
            "expirationSeconds": "x",
            "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "u"},
        },
        "status": {"token": "t"},
    },
    f"{AUTHENTICATION}/tokenreviews": {
        "kind": "TokenReview",
        "apiVersion": "authentication.orch.io/v1",
        "spec": {"token": "t", "audiences": ["a"], "tokens": "x"},
        "status": {"error": "e"},
    },
    f"{HERE}/secrets": {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": META,
        "type": "Opaque",
        "data": {"k": "dg=="},
        "stringData": {"k": "v"},
        "dtaa": {"k": "v"},
    },
    f"{HERE}/configmaps": {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": META,
        "data": {"k": "v"},
        "binaryData": {"k": "dg=="},
    },
    "/apis/certificates.orch.io/v1/certificatesigningrequests": {
        "kind": "CertificateSigningRequest",
        "apiVersion": "certificates.orch.io/v1",
        "metadata": META,
        "spec": {"request": "cg==", "signerName": "a/b", "usages": ["client auth"]},
    },
    "/apis/rbac.authorization.orch.io/v1/clusterroles": {
        "kind": "ClusterRole",
        "apiVersion": "rbac.authorization.orch.io/v1",
        "metadata": META,
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
}


def with_each_text(value: Any, canary: str) -> Iterator[Any]:
    """The document once for each text in it, with the canary in its place, and once as a key."""
    if isinstance(value, str):
        yield canary
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for changed in with_each_text(item, canary):
                yield [*value[:index], changed, *value[index + 1 :]]
    elif isinstance(value, dict):
        yield {**value, canary: "x"}
        for key, item in value.items():
            for changed in with_each_text(item, canary):
                yield {**value, key: changed}


class Flight:
    """Sends a canary everywhere, as somebody."""

    def __init__(self, https: Https, canary: str, token: str) -> None:
        self._https = https
        self._canary = canary
        self._token = token
        self.statuses: set[int] = set()

    def everywhere(self) -> None:
        self.paths()
        self._bodies()

    def paths(self) -> None:
        for path in PATHS:
            self._all_methods(path.replace("{}", self._canary))
        for path in QUERIED:
            for name in PARAMETERS:
                self._send("GET", f"{path}?{name}={self._canary}")
        self._headers()

    def _send(self, method: str, target: str, body: Any = None, **headers: str) -> None:
        # The canary may make a request that no server reads to its end.
        with suppress(OSError, http.client.HTTPException):
            reply = self._https.send(method, target, body, token=self._token, headers=headers)
            self.statuses.add(reply.status)

    def _all_methods(self, path: str) -> None:
        body = {"metadata": {"name": self._canary}, "spec": {"token": self._canary}}
        for method in METHODS:
            self._send(method, path, None if method in ("GET", "HEAD") else body)
        self._send("GET", f"{path}?token={self._canary}&{self._canary}=1&{self._canary}")

    def _headers(self) -> None:
        for path in QUERIED:
            for name in HEADERS:
                self._send("GET", path, **{name: self._canary})
                self._send("POST", path, {"metadata": {}}, **{name: self._canary})
            self._send("GET", path, **{"Sec-WebSocket-Protocol": _websocket(self._canary)})
            basic = base64.b64encode(f"user:{self._canary}".encode()).decode()
            with suppress(OSError, http.client.HTTPException):
                self._https.send("GET", path, headers={"Authorization": f"Basic {basic}"})
                self._https.send("GET", path, headers={"Authorization": self._canary})

    def _bodies(self) -> None:
        for path, template in BODIES.items():
            for body in with_each_text(copy.deepcopy(template), self._canary):
                self._send("POST", path, body)
                self._send("PUT", f"{path}/bird", body)
            patch = {"metadata": {"annotations": {"a": self._canary}}, self._canary: 1}
            for media in ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"):
                self._send(
                    "PATCH", f"{path}/bird", patch, **{"Content-Type": f"application/{media}"}
                )
            operations = [{"op": "replace", "path": f"/{self._canary}", "value": self._canary}]
            media = "application/json-patch+json"
            self._send("PATCH", f"{path}/bird", operations, **{"Content-Type": media})
            for broken in (self._canary, f'{{"a": {self._canary}', f'{{"token": "{self._canary}'):
                self._send("POST", path, broken.encode())
                self._send("POST", path, broken.encode(), **{"Content-Type": "application/yaml"})


def _websocket(token: str) -> str:
    coded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return f"base64url.bearer.authorization.orch.io.{coded}, other"


def forms(canary: str) -> list[bytes]:
    """The canary, and what it looks like in base64 at each of the three ways to align it."""
    plain = canary.encode()
    shifted = [base64.b64encode(b"\0" * shift + plain) for shift in range(3)]
    return [plain, *(text[8:-8] for text in shifted)]


def found_in(text: bytes, canary: str) -> bool:
    return any(form in text for form in forms(canary))


WHO_WHAT_WHERE = {
    "apiGroup", "apiGroups", "apiVersion", "finalizers", "generateName", "group", "groups", "kind",
    "labels", "name", "namespace", "objectRef", "resource", "resources", "signerName", "uid",
    "username", "verbs",
}  # fmt: skip


def without_names(value: Any) -> Any:
    """An audit event without the fields that are never redacted."""
    if isinstance(value, list):
        return [without_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    left = {key: without_names(item) for key, item in value.items() if key not in WHO_WHAT_WHERE}
    if "requestURI" in left:
        pairs = left["requestURI"].partition("?")[2].split("&")
        left["requestURI"] = [pair for pair in pairs if "Selector=" not in pair]
    return left


class Watched:
    """A talkative server and everything it writes."""

    def __init__(self, server: Server, https: Https, record: Path) -> None:
        self.https = https
        self._server = server
        self._record = record

    def metrics(self) -> bytes:
        return self.https.send("GET", "/metrics", token=ADMIN).body

    def series(self) -> set[bytes]:
        """The names and labels of everything that is shown."""
        lines = self.metrics().splitlines()
        return {line.rpartition(b" ")[0] for line in lines if not line.startswith(b"#")}

    def written(self) -> bytes:
        metrics = self.metrics()
        self._server.stop()
        events = [json.loads(line) for line in self._record.read_bytes().splitlines()]
        assert len(events) > 150
        record = json.dumps([without_names(event) for event in events]).encode()
        return metrics + record + self._server.log.read_bytes()


@pytest.fixture
def watched(start_server: StartServer, tmp_path: Path) -> Iterator[Watched]:
    policy, record = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(POLICY)
    server = start_server(
        "--log-level", "debug",
        "--audit-log-path", str(record),
        "--audit-policy-file", str(policy),
        "--controllers", "",
    )  # fmt: skip
    with Https(server.port) as https:
        https.send("POST", "/api/v1/namespaces", {"metadata": {"name": "canary"}}, token=ADMIN)
        for name in ("app", "bird"):
            body = {"metadata": {"name": name}}
            https.send("POST", f"{HERE}/serviceaccounts", body, token=ADMIN)
        yield Watched(server, https, record)


def test_presented_canary_is_found_nowhere(watched: Watched) -> None:
    """The caller's own token, good or bad, stays out of all that is written."""
    bad = f"canary-{secrets.token_hex(16)}"
    flights = [Flight(watched.https, ADMIN, ADMIN), Flight(watched.https, bad, bad)]

    for flight in flights:
        flight.everywhere()
    written = watched.written()

    assert flights[0].statuses >= {200, 201, 400, 404, 422}
    assert flights[1].statuses == {400, 401}  # an invalid timeout is reported before authentication
    assert [canary for canary in (ADMIN, bad) if canary.encode() in written] == []


def test_shaped_canary_is_found_nowhere(watched: Watched) -> None:
    """A token of a service account, sent by another caller and by its owner, leaves no trace."""
    https = watched.https
    reply = https.send("POST", f"{HERE}/serviceaccounts/app/token", {}, token=ADMIN)
    canary = reply.json["status"]["token"]

    by_admin = Flight(watched.https, canary, ADMIN)
    by_admin.everywhere()
    Flight(watched.https, canary, canary).everywhere()
    written = watched.written()

    assert by_admin.statuses >= {200, 400, 404, 422}
    assert canary.rpartition(".")[2].encode() not in written
    assert canary.partition(".")[2].encode() not in written


def test_kept_canary_is_found_nowhere(watched: Watched) -> None:
    """Text without a shape stays out wherever a secret belongs, although a good caller sends it."""
    canary = f"canary{secrets.token_hex(16)}"
    coded = base64.b64encode(canary.encode()).decode()
    https = watched.https
    secret = {"metadata": {"name": "s"}, "stringData": {"k": canary}, "data": {"l": coded}}
    patch = {"data": {"m": coded}, "stringData": {"n": canary}}
    bad = {"metadata": {"name": "t"}, "data": {"l": canary + "!"}, "stringdata": {"k": canary}}
    applied = {"orch.io/last-applied-configuration": f'{{"stringData":{{"k":"{canary}"}}}}'}
    merge = {"Content-Type": "application/merge-patch+json"}
    requests: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", f"{HERE}/secrets", secret, {}),
        ("POST", f"{HERE}/secrets?fieldValidation=Strict", bad, {}),
        ("PUT", f"{HERE}/secrets/s", {**secret, "type": "Opaque"}, {}),
        ("PATCH", f"{HERE}/secrets/s", patch, merge),
        ("PATCH", f"{HERE}/secrets/s", {"metadata": {"annotations": applied}}, merge),
        ("GET", f"{HERE}/secrets/s", None, {}),
        ("GET", f"{HERE}/secrets", None, {}),
        ("GET", f"{HERE}/secrets?watch=true&timeoutSeconds=1", None, {}),
        ("POST", f"{HERE}/configmaps", {"metadata": {"name": "c"}, "data": {"k": canary}}, {}),
        ("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": canary}}, {}),
        ("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"tokenn": canary}}, {}),
        ("POST", f"{HERE}/serviceaccounts/app/token", {"status": {"token": canary}}, {}),
        ("POST", f"{HERE}/serviceaccounts", {"metadata": {"name": "x"}, "token": canary}, {}),
        ("PATCH", f"{HERE}/serviceaccounts/app", {"password": canary}, merge),
        ("DELETE", f"{HERE}/secrets/s", {"kind": "DeleteOptions"}, {}),
        *(
            ("GET", f"{path}?access_token={canary}&{name}={canary}", None, {})
            for path in ("/healthz", "/invented", f"{HERE}/serviceaccounts")
            for name in ("token", "bearer", "password", "key", "code")
        ),
        *(
            (method, f"{HERE}/serviceaccounts/app", None, {name: canary})
            for method in ("GET", "DELETE")
            for name in HEADERS
            if name not in ("Audit-ID", "User-Agent") and not name.startswith("Impersonate")
        ),
    ]

    for method, target, body, headers in requests * 2:
        https.send(method, target, body, token=ADMIN, headers=headers)
    written = watched.written()

    assert not found_in(written, canary)


def test_series_do_not_grow_with_canaries(watched: Watched) -> None:
    """Label values come from closed sets: a second flight with another canary adds no series.

    (CVE-2020-8552: a label from a client's header.)
    """
    Flight(watched.https, f"one{secrets.token_hex(8)}", ADMIN).paths()
    before = watched.series()

    Flight(watched.https, f"two{secrets.token_hex(8)}", ADMIN).paths()

    assert watched.series() - before == set()
