"""The stage of a measurement: a caller with the administrator's token, and a filled namespace."""

import http.client
import json
import secrets
import ssl
import time
import urllib.parse
from collections.abc import Iterable
from typing import Any

from tests.conformance.exchanges import tokens_by_user

TOKEN = tokens_by_user()["admin"]
HEADERS = {
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Accept": "application/json",
}
FRESH_SECONDS = 10.0  # a server keeps an idle connection at least this long
TOKENS = 600  # more than one, so that a cache of one cannot answer for all
AUTHENTICATION = "/apis/authentication.orch.io/v1"
IDENTITY = "/apis/identity.orch.io/v1alpha1"


class NotServed(Exception):
    """The server cannot serve a request of the measurement; contains its response."""


class Administrator:
    """One connection for creating the objects of a measurement; wrk sends the load.

    It is kept from request to request. After a pause it is a new one, as the server may have closed
    the old one meanwhile.
    """

    def __init__(self, url: str) -> None:
        address = urllib.parse.urlsplit(url)
        # The server is ours and on loopback, and its certificate is as new as itself.
        tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=tls, timeout=60
        )
        self._last = time.monotonic()

    def call(self, method: str, path: str, body: object = None) -> Any:
        return json.loads(self.send(method, path, None if body is None else json.dumps(body)))

    def send(self, method: str, path: str, content: str | None) -> bytes:
        if time.monotonic() - self._last > FRESH_SECONDS:
            self._connection.close()
        self._connection.request(method, path, body=content, headers=HEADERS)
        answer = self._connection.getresponse()
        raw = answer.read()
        self._last = time.monotonic()
        if answer.status >= http.client.MULTIPLE_CHOICES:
            raise NotServed(f"{method} {path}: {answer.status}")
        return raw

    def close(self) -> None:
        self._connection.close()


class Stage:
    """A namespace with accounts, created for each run; tokens are created at their first use."""

    def __init__(self, administrator: Administrator, accounts: int) -> None:
        self.namespace = "bench-" + secrets.token_hex(3)
        self.accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        self.names = [f"acc-{number:05d}" for number in range(accounts)]
        self._administrator = administrator
        self._tokens: list[str] = []
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        administrator.call("POST", "/api/v1/namespaces", namespace)
        self.create(self.accounts, (account(name) for name in self.names))

    def create(self, path: str, bodies: Iterable[object]) -> None:
        for body in bodies:
            self._administrator.call("POST", path, body)

    def allow(self, path: str) -> None:
        """Let the first account post to a path, as the account of a cluster may."""
        name, rbac = f"{self.namespace}-webhook", "rbac.authorization.orch.io"
        rule = {"nonResourceURLs": [path], "verbs": ["post"]}
        role = {"metadata": {"name": name}, "rules": [rule]}
        subject = {"kind": "ServiceAccount", "namespace": self.namespace, "name": self.names[0]}
        reference = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        self.create(f"/apis/{rbac}/v1/clusterroles", [role])
        self.create(f"/apis/{rbac}/v1/clusterrolebindings", [binding])

    def tokens(self) -> list[str]:
        while len(self._tokens) < TOKENS:
            name = self.names[len(self._tokens) % len(self.names)]
            path = f"{self.accounts}/{name}/token"
            answer = self._administrator.call("POST", path, token_request())
            self._tokens.append(answer["status"]["token"])
        return self._tokens


def account(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "labels": {"app": "bench", "tier": "web"}},
        "secrets": [{"name": "s1"}],
    }


def cluster(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"issuer": "https://cluster.example"}}


def revocation(name: str, number: int) -> dict[str, Any]:
    """Of one of the tokens that `cluster_review` names."""
    spec = {"cluster": name, "token": {"jti": _jti(100 * number)}}
    return {"metadata": {"name": f"{name}-{number}"}, "spec": spec}


def cluster_review(number: int) -> dict[str, Any]:
    """A review as the API server of a cluster sends it."""
    extra = {"authentication.kubernetes.io/credential-id": [f"JTI={_jti(number)}"]}
    spec = {
        "resourceAttributes": {"namespace": "ci", "verb": "list", "resource": "pods"},
        "user": f"system:serviceaccount:ci:builder-{number}",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"],
        "extra": extra,
        "uid": _jti(number),
    }
    kind = {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    return {**kind, "metadata": {}, "spec": spec, "status": {"allowed": False}}


def _jti(number: int) -> str:
    return f"68ce6313-a536-41c5-b61a-{number:012d}"


def token_request() -> dict[str, Any]:
    return {
        "apiVersion": "authentication.orch.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 3600},
    }
