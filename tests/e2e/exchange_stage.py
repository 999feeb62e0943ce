"""A server that exchanges tokens of an issuer for those of the account ci/deployer.

with exchange_stage(tmp_path) as stage:
    token = stage.exchanged(stage.issuer.github(aud=stage.url))
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https, Reply
from tests.e2e.outside_issuer import OWNER_ID, REPOSITORY_ID, OutsideIssuer
from tests.e2e.person import Person
from tests.e2e.serving import Server, free_port, running_server

ADMIN = tokens_by_user()["admin"]
VAULT = "https://vault.example"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type:"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
IDENTITY = "/apis/identity.orch.io/v1alpha1"
POLICIES = f"{IDENTITY}/namespaces/ci/tokenexchangepolicies"
RBAC = "/apis/rbac.authorization.orch.io/v1"
GITHUB_CLAIMS = {
    "repository_id": REPOSITORY_ID,
    "repository_owner_id": OWNER_ID,
    "ref": "refs/heads/main",
}
GITLAB_CLAIMS = {"project_id": "20", "ref_protected": "true", "ref": "main"}


@dataclass(frozen=True)
class ExchangeStage:
    """The server, the issuer, and a person with all rights."""

    issuer: OutsideIssuer
    server: Server
    admin: Https
    person: Person
    place: Path

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def authority(self) -> Path:
        return self.server.data_dir / "ca.crt"

    def send(self, method: str, path: str, body: Any = None) -> Reply:
        return self.admin.send(method, path, body, token=ADMIN)

    def make(self, path: str, body: Any) -> Any:
        made = self.send("POST", path, body)
        assert made.status == 201, made.body
        return made.json

    def policy(self, name: str, claims: dict[str, str]) -> Any:
        """A policy for the account, with the audiences of the vault and of this server."""
        spec = {
            "issuer": self.issuer.url,
            "claims": claims,
            "account": "deployer",
            "audiences": [VAULT, self.url],
        }
        return self.make(POLICIES, {"metadata": {"name": name}, "spec": spec})

    def exchange(self, token: str, audience: str = VAULT) -> Reply:
        """Exchange a token as an anonymous client."""
        form = {
            "grant_type": GRANT,
            "subject_token": token,
            "subject_token_type": f"{TYPE}jwt",
            "audience": audience,
        }
        target = "/oauth2/token?account=ci/deployer"
        return self.admin.send("POST", target, urlencode(form).encode(), headers=FORM)

    def exchanged(self, token: str, audience: str = VAULT) -> str:
        reply = self.exchange(token, audience)
        assert reply.status == 200, reply.body
        found: str = reply.json["access_token"]
        return found

    def introspect(self, token: str, caller: str = ADMIN) -> Any:
        form = urlencode({"token": token}).encode()
        return self.admin.send("POST", "/oauth2/introspect", form, token=caller, headers=FORM).json

    def is_valid(self, token: str, audience: str) -> bool:
        body = {"spec": {"token": token, "audiences": [audience]}}
        found = self.send("POST", "/apis/authentication.orch.io/v1/tokenreviews", body)
        return bool(found.json["status"].get("authenticated"))

    def revoke(self, name: str, **token: str) -> None:
        self.make(
            f"{IDENTITY}/credentialrevocations",
            {"metadata": {"name": name}, "spec": {"token": token}},
        )

    def account(self, namespace: str, name: str, **annotations: str) -> str:
        """An account; returns a token of it for this server."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.make(path, {"metadata": {"name": name, "annotations": annotations}})
        found: str = self.make(f"{path}/{name}/token", {"spec": {}})["status"]["token"]
        return found

    def may_introspect(self, name: str, audience: str, *subjects: dict[str, str]) -> None:
        """Grant the verb `introspect` on one audience."""
        rule = {
            "apiGroups": ["identity.orch.io"],
            "resources": ["audiences"],
            "resourceNames": [audience],
            "verbs": ["introspect"],
        }
        self.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [*subjects]}
        self.make(f"{RBAC}/clusterrolebindings", binding)

    def written(self, name: str, content: Any) -> Path:
        file = self.place / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file


@contextmanager
def exchange_stage(place: Path, *flags: str) -> Iterator[ExchangeStage]:
    """Start the server, with the account and a policy for each of GitHub and GitLab."""
    (place / "home").mkdir()
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    with ExitStack() as stack:
        issuer = stack.enter_context(OutsideIssuer())
        file = issuer.exchange_configuration(place / "exchange.json", [url])
        own = ("--token-auth-file", str(TOKENS), "--token-exchange-config", file)
        server = stack.enter_context(running_server(place / "data", *own, *flags, port=port))
        admin = stack.enter_context(Https(port))
        person = Person(place / "home", server.kubeconfig)
        stage = ExchangeStage(issuer, server, admin, person, place)
        stage.account("ci", "deployer", **{"identity.orch.io/token-exchange": "outside"})
        stage.policy("github", GITHUB_CLAIMS)
        stage.policy("gitlab", GITLAB_CLAIMS)
        yield stage
