"""Programs of others exchange tokens: the command, google-auth and authlib, over TLS."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from authlib.integrations.requests_client import OAuth2Session
from google.auth import identity_pool
from google.auth.transport.requests import AuthorizedSession

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.outside_issuer import OWNER_ID, REPOSITORY_ID, OutsideIssuer
from tests.e2e.serving import Server, free_port, running_server
from tests.e2e.test_commands import Person

ADMIN = tokens_by_user()["admin"]
VAULT = "https://vault.example"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type:"
POLICY = {
    "claims": {
        "repository_id": REPOSITORY_ID,
        "repository_owner_id": OWNER_ID,
        "ref": "refs/heads/main",
    },
    "account": "deployer",
}


@dataclass(frozen=True)
class Running:
    """A server that exchanges tokens of an issuer for those of ci/deployer."""

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

    def send(self, method: str, path: str, body: Any = None) -> Any:
        return self.admin.send(method, path, body, token=ADMIN)

    def is_valid(self, token: str, audience: str) -> bool:
        body = {"spec": {"token": token, "audiences": [audience]}}
        found = self.send("POST", "/apis/authentication.orch.io/v1/tokenreviews", body)
        return bool(found.json["status"].get("authenticated"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("exchange")
    (place / "home").mkdir()
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    with ExitStack() as stack:
        issuer = stack.enter_context(OutsideIssuer())
        file = issuer.exchange_configuration(place / "exchange.json", [url])
        flags = ("--token-auth-file", str(TOKENS), "--token-exchange-config", file)
        server = stack.enter_context(running_server(place / "data", *flags, port=port))
        admin = stack.enter_context(Https(port))
        found = Running(issuer, server, admin, Person(place / "home", server.kubeconfig), place)
        agrees = {"identity.orch.io/token-exchange": "outside"}
        account = {"metadata": {"name": "deployer", "annotations": agrees}}
        assert found.send("POST", "/api/v1/namespaces/ci/serviceaccounts", account).status == 201
        spec = {**POLICY, "issuer": issuer.url, "audiences": [VAULT, url]}
        policies = "/apis/identity.orch.io/v1alpha1/namespaces/ci/tokenexchangepolicies"
        made = found.send("POST", policies, {"metadata": {"name": "deploy"}, "spec": spec})
        assert made.status == 201, made.body
        yield found


@pytest.fixture
def trusting(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients that use requests trust the server."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.authority))


def written(running: Running, name: str, token: str) -> Path:
    file = running.place / name
    file.write_text(token)
    return file


def test_the_command_exchanges_and_explains(running: Running) -> None:
    """By the flags alone, from a file, standard input, or a variable of the job."""
    token = running.issuer.github(aud=running.url)
    server = ("--server", running.url, "--certificate-authority", str(running.authority))
    wanted = ("token", "exchange", *server, "--account", "ci/deployer", "--audience", VAULT)

    piped = running.person.types(*wanted, given=token)
    filed = running.person.types(*wanted, "--from", str(written(running, "jwt", token)))
    other = running.issuer.github(aud=running.url, ref="refs/heads/other")
    refused = running.person.types(*wanted, given=other, code=1).stderr
    explain = ("token", "exchange", "--account", "ci/deployer", "--explain")
    reason = running.person.gets(*explain, given=other, code=1)

    assert running.is_valid(piped.stdout.strip(), VAULT)
    assert running.is_valid(filed.stdout.strip(), VAULT)
    assert "no policy lets the subject" in refused
    assert "refs/heads/main" not in refused
    checks = reason["policies"][0]["checks"]
    [failed] = [one for one in checks if not one["allowed"]]
    assert (failed["wanted"], failed["seen"]) == ("refs/heads/main", "refs/heads/other")


@pytest.mark.usefixtures("trusting")
def test_google_auth_exchanges_and_calls_the_api(running: Running) -> None:
    """Unmodified, from an external_account file."""
    subject = written(running, "google.jwt", running.issuer.github(aud=running.url))
    file = running.place / "credentials.json"
    file.write_text(
        json.dumps(
            {
                "type": "external_account",
                "audience": running.url,
                "subject_token_type": f"{TYPE}jwt",
                "token_url": f"{running.url}/oauth2/token?account=ci/deployer",
                "credential_source": {"file": str(subject)},
            }
        )
    )
    credentials = identity_pool.Credentials.from_file(str(file), scopes=["any"])
    session = AuthorizedSession(credentials)

    who = session.post(f"{running.url}/apis/authentication.orch.io/v1/selfsubjectreviews", json={})

    assert who.status_code == 201, who.text
    user = who.json()["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:ci:deployer"
    assert user["extra"]["authentication.orch.io/exchange-issuer"] == [running.issuer.url]


@pytest.mark.usefixtures("trusting")
def test_authlib_exchanges_introspects_and_revokes_from_the_metadata(running: Running) -> None:
    """A client that knows nothing but the URL of the server."""
    url = f"{running.url}/.well-known/oauth-authorization-server"
    found = requests.get(url, timeout=20).json()
    client = OAuth2Session(token_endpoint_auth_method="none")
    owner = OAuth2Session(
        "admin", ADMIN, token_endpoint_auth_method="client_secret_basic",
        revocation_endpoint_auth_method="client_secret_basic",
    )  # fmt: skip

    token = client.fetch_token(
        f"{found['token_endpoint']}?account=ci/deployer",
        grant_type=GRANT,
        subject_token=running.issuer.github(aud=running.url),
        subject_token_type=f"{TYPE}jwt",
        audience=VAULT,
    )["access_token"]
    before = owner.introspect_token(found["introspection_endpoint"], token=token).json()
    done = owner.revoke_token(found["revocation_endpoint"], token=token)
    after = owner.introspect_token(found["introspection_endpoint"], token=token).json()

    assert before["active"] is True
    assert before["act"]["iss"] == running.issuer.url
    assert done.status_code == 200
    assert after == {"active": False}
