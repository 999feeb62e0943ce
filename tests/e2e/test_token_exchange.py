"""Programs of others exchange, introspect and revoke tokens, over TLS."""

import base64
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
import requests
from authlib.integrations.requests_client import OAuth2Session
from google.auth import identity_pool
from google.auth.exceptions import OAuthError
from google.auth.transport.requests import AuthorizedSession

from tests.conformance.exchanges import tokens_by_user
from tests.e2e.exchange_stage import (
    ADMIN,
    FORM,
    GRANT,
    IDENTITY,
    POLICIES,
    RBAC,
    TYPE,
    VAULT,
    ExchangeStage,
    exchange_stage,
)
from tests.e2e.outside_issuer import OutsideIssuer
from tests.system_packages import MISSING, require_program

NPM = Path(__file__).resolve().parents[1] / "data" / "oauth4webapi"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "ci.md"
CURL = re.compile(r"^### curl\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHO_VERSION = "authentication.orch.io/v1"
WHO = f"/apis/{WHO_VERSION}/selfsubjectreviews"
EXEC_INFO = json.dumps(
    {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {}}
)
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
DEPLOYER = "system:serviceaccount:ci:deployer"
ALICE = tokens_by_user()["alice"]
REVIEWED = int(os.environ.get("ORCHID_REVIEWED_TOKENS", "150"))  # make exchange-runs: 1000


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExchangeStage]:
    with exchange_stage(tmp_path_factory.mktemp("exchange")) as made:
        yield made


@pytest.fixture
def trusting(stage: ExchangeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients that use requests trust the server."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(stage.authority))


# -- the command -----------------------------------------------------------------------------------


def command(stage: ExchangeStage, *more: str) -> tuple[str, ...]:
    server = ("--server", stage.url, "--certificate-authority", str(stage.authority))
    return ("token", "exchange", *server, "--account", "ci/deployer", "--audience", VAULT, *more)


def test_the_command_exchanges_and_explains(stage: ExchangeStage) -> None:
    """By the flags alone, from a file or standard input."""
    token = stage.issuer.github(aud=stage.url)

    piped = stage.person.types(*command(stage), given=token)
    filed = stage.person.types(*command(stage, "--from", str(stage.written("jwt", token))))
    other = stage.issuer.github(aud=stage.url, ref="refs/heads/other")
    refused = stage.person.types(*command(stage), given=other, code=1).stderr
    explain = ("token", "exchange", "--account", "ci/deployer", "--explain")
    reason = stage.person.gets(*explain, given=other, code=1)

    assert stage.is_valid(piped.stdout.strip(), VAULT)
    assert stage.is_valid(filed.stdout.strip(), VAULT)
    assert "no policy lets the subject" in refused
    assert "refs/heads/main" not in refused
    checks = reason["policies"][0]["checks"]
    [failed] = [one for one in checks if not one["allowed"]]
    assert (failed["wanted"], failed["seen"]) == ("refs/heads/main", "refs/heads/other")


def test_a_job_of_gitlab_exchanges_its_variable(stage: ExchangeStage) -> None:
    """The default variable, another one, and one that is not set."""
    token = stage.issuer.gitlab(aud=stage.url)

    usual = in_job(stage, "--gitlab", ORCHID_ID_TOKEN=token)
    named = in_job(stage, "--gitlab", "VAULT_ID_TOKEN", VAULT_ID_TOKEN=token)
    missing = in_job(stage, "--gitlab")

    assert stage.is_valid(usual.stdout.strip(), VAULT)
    assert stage.is_valid(named.stdout.strip(), VAULT)
    assert missing.returncode == 2
    assert "$ORCHID_ID_TOKEN is not set: add it to id_tokens of the job" in missing.stderr


def in_job(stage: ExchangeStage, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in the environment of a CI job."""
    return subprocess.run(
        [sys.executable, "-m", "orchid", *command(stage, *flags)],
        env={**stage.person.environment, **variables},
        cwd=stage.person.home, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.system_package("kubectl")
def test_kubectl_in_a_job_of_github_runs_the_command_as_its_plugin(stage: ExchangeStage) -> None:
    """It gets the token of the job for this server, and kubectl a credential with its expiry."""
    stage.issuer.pages["/job"] = {"value": stage.issuer.github(aud=stage.url)}
    arguments = [
        *("-m", "orchid", "token", "exchange", "--github", "--account", "ci/deployer"),
        *("--server", stage.url, "--certificate-authority", str(stage.authority)),
    ]
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",  # for a kubectl of any age
        "interactiveMode": "Never",
        "command": sys.executable,
        "args": arguments,
    }
    cluster = {"server": stage.url, "certificate-authority": str(stage.authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "ci", "user": {"exec": plugin}}],
        "contexts": [{"name": "ci", "context": {"cluster": "c", "user": "ci"}}],
        "current-context": "ci",
    }
    job = {
        **stage.person.environment,
        "KUBECONFIG": str(stage.written("ci.kubeconfig", document)),
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"{stage.issuer.url}/job?api-version=2.0",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-runner",
        "SSL_CERT_FILE": str(stage.written("github.crt", stage.issuer.trusted)),
    }
    body = stage.written("who.json", {"kind": "SelfSubjectReview", "apiVersion": WHO_VERSION})

    who = subprocess.run(
        [require_program("kubectl"), "create", "--raw", WHO, "-f", body],
        env=job, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    alone = subprocess.run(
        [sys.executable, *arguments], env={**job, "KUBERNETES_EXEC_INFO": EXEC_INFO},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert who.returncode == 0, who.stderr
    assert json.loads(who.stdout)["status"]["userInfo"]["username"] == DEPLOYER
    asked = f"/job?api-version=2.0&{urlencode({'audience': stage.url})}"
    assert set(stage.issuer.requests) >= {(asked, "Bearer of-the-runner")}
    credential = json.loads(alone.stdout)
    left = datetime.fromisoformat(credential["status"]["expirationTimestamp"]) - datetime.now(UTC)
    assert credential["kind"] == "ExecCredential"
    assert stage.is_valid(credential["status"]["token"], stage.url)
    assert timedelta(minutes=5) < left <= timedelta(minutes=10)


@pytest.mark.system_package("curl")
def test_the_lines_for_curl_exchange_a_token(stage: ExchangeStage) -> None:
    """As docs/ci.md shows them."""
    lines = CURL.findall(PAGE.read_text())[0]
    home = stage.place / "curl"
    home.mkdir()
    shutil.copy(stage.authority, home / "ca.crt")
    (home / "outside.jwt").write_text(stage.issuer.github(aud=stage.url))

    done = subprocess.run(
        ["bash", "-c", lines.replace("https://orchid.example:6443", stage.url)],
        cwd=home, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    found = json.loads(done.stdout)
    assert found["expires_in"] == 600
    assert stage.is_valid(found["access_token"], VAULT)


# -- google-auth -----------------------------------------------------------------------------------


def google(stage: ExchangeStage, token: str) -> AuthorizedSession:
    """A session of google-auth, from an external_account file."""
    document = {
        "type": "external_account",
        "audience": stage.url,
        "subject_token_type": f"{TYPE}jwt",
        "token_url": f"{stage.url}/oauth2/token?account=ci/deployer",
        "credential_source": {"file": str(stage.written("google.jwt", token))},
    }
    file = stage.written("credentials.json", document)
    return AuthorizedSession(identity_pool.Credentials.from_file(str(file), scopes=["any"]))


@pytest.mark.usefixtures("trusting")
def test_google_auth_exchanges_and_calls_the_api(stage: ExchangeStage) -> None:
    """For jobs of GitHub, with both forms of the subject, and of GitLab."""
    for token in (
        stage.issuer.github(aud=stage.url),
        stage.issuer.github(aud=stage.url, with_ids=False),
        stage.issuer.gitlab(aud=stage.url),
    ):
        who = google(stage, token).post(f"{stage.url}{WHO}", json={})

        assert who.status_code == 201, who.text
        user = who.json()["status"]["userInfo"]
        subject = jwt.decode(token, options={"verify_signature": False})["sub"]
        assert user["username"] == DEPLOYER
        assert user["extra"]["authentication.orch.io/exchange-issuer"] == [stage.issuer.url]
        assert user["extra"]["authentication.orch.io/exchange-subject"] == [subject]


FORK = {"repository": "mallory/app", "repository_id": "777", "repository_owner_id": "666"}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a fork": (FORK, "claims[repository_id]"),
    "another branch": ({"ref": "refs/heads/feature"}, "claims[ref]"),
    "another repository of the same name": ({"repository_id": "1"}, "claims[repository_id]"),
    "another audience": ({"aud": "https://other.example"}, "audience"),
    "an expired token": ({"exp": int(time.time()) - 5}, "expired"),
}


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("case", OTHERS)
def test_google_auth_is_refused_and_only_explain_shows_why(stage: ExchangeStage, case: str) -> None:
    """The job does not see the conditions of the policy; its owner sees what differs."""
    claims, shown = OTHERS[case]
    token = stage.issuer.github(**{"aud": stage.url, **claims})

    with pytest.raises(OAuthError) as refused:
        google(stage, token).post(f"{stage.url}{WHO}", json={})
    spec = {"token": token, "account": "deployer"}
    path = f"{IDENTITY}/namespaces/ci/tokenexchangereviews"
    status = stage.make(path, {"spec": spec})["status"]
    policies = {one["name"]: one["checks"] for one in status.get("policies", ())}
    failed = [one["field"] for one in policies.get("github", ()) if not one["allowed"]]

    text = str(refused.value)
    assert "invalid_request" in text
    assert "claims[" not in text
    assert not any(one in text.replace("@456789", "") for one in ("456789", "refs/heads/main:"))
    assert status["allowed"] is False
    assert shown in (*failed, *status.get("message", "").split())


# -- clients that know the metadata only -----------------------------------------------------------


@pytest.mark.usefixtures("trusting")
def test_authlib_exchanges_introspects_and_revokes_from_the_metadata(stage: ExchangeStage) -> None:
    """A client that knows nothing but the URL of the server."""
    url = f"{stage.url}/.well-known/oauth-authorization-server"
    found = requests.get(url, timeout=20).json()
    client = OAuth2Session(token_endpoint_auth_method="none")
    owner = OAuth2Session(
        "admin", ADMIN, token_endpoint_auth_method="client_secret_basic",
        revocation_endpoint_auth_method="client_secret_basic",
    )  # fmt: skip

    token = client.fetch_token(
        found["token_endpoint"],
        grant_type=GRANT,
        subject_token=stage.issuer.github(aud=stage.url),
        subject_token_type=f"{TYPE}jwt",
        audience=VAULT,
    )["access_token"]
    before = owner.introspect_token(found["introspection_endpoint"], token=token).json()
    done = owner.revoke_token(found["revocation_endpoint"], token=token)
    after = owner.introspect_token(found["introspection_endpoint"], token=token).json()

    assert before["active"] is True
    assert before["act"]["iss"] == stage.issuer.url
    assert done.status_code == 200
    assert after == {"active": False}


@pytest.mark.system_package("node", "npm")
def test_oauth4webapi_exchanges_introspects_and_revokes_from_the_metadata(
    stage: ExchangeStage,
) -> None:
    """The same with a client for JavaScript, installed by npm from its lock file."""
    home = shutil.copytree(NPM, stage.place / "npm")
    install = [require_program("npm"), "ci", "--silent", "--ignore-scripts", "--prefer-offline"]
    if subprocess.run(install, cwd=home, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip(f"{MISSING}oauth4webapi, which npm cannot install")
    given = {
        "issuer": stage.url,
        "subject": stage.issuer.gitlab(aud=stage.url),
        "audience": VAULT,
        "user": "admin",
        "secret": ADMIN,
    }

    done = subprocess.run(
        [require_program("node"), home / "client.mjs"],
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(stage.authority)},
        input=json.dumps(given), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["exchanged"]["expires_in"] == 600
    assert found["before"]["active"] is True
    assert found["before"]["aud"] == [VAULT]
    assert found["after"] == {"active": False}


# -- many tokens -----------------------------------------------------------------------------------


def bad_tokens(stage: ExchangeStage) -> Iterator[str]:
    """37 tokens that are not valid, or not any more, in more than ten ways."""
    accounts = "/api/v1/namespaces/batch/serviceaccounts"
    for name in ("gone", "withdrawn", "bound"):
        stage.account("batch", name)
    secret = {"metadata": {"name": "held"}, "type": "Opaque"}
    uid = stage.make("/api/v1/namespaces/batch/secrets", secret)["metadata"]["uid"]
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "held", "uid": uid}
    bound = issued(stage, "bound", boundObjectRef=reference)
    gone, withdrawn = issued(stage, "gone"), issued(stage, "withdrawn")
    revoked = [issued(stage, "builder") for _ in range(3)]
    outside = stage.issuer.github(aud=stage.url)
    exchanged = stage.exchanged(outside, stage.url)
    stage.send("DELETE", f"{accounts}/gone")
    stage.send("DELETE", "/api/v1/namespaces/batch/secrets/held")
    stage.make(
        f"{IDENTITY}/credentialrevocations",
        {
            "metadata": {"name": "withdrawn"},
            "spec": {"account": {"namespace": "batch", "name": "withdrawn"}},
        },
    )
    for number, token in enumerate((*revoked, outside)):
        stage.revoke(f"batch-{number}", jti=claims_of(token)["jti"])
    yield from (bound, gone, withdrawn, *revoked, exchanged, outside)  # 8
    good = issued(stage, "builder")
    head, body, tail = good.split(".")
    with OutsideIssuer() as stranger:
        yield stranger.token(iss=stage.url, aud=stage.url)  # ours by name, signed by another
    yield from (f"{head}.{body}.{tail[:-4]}AAAA", f"{head}.{body}.", f"{head}.{body}", head)
    yield from ("nonsense", "a.b.c", "\u00e4", "x" * 20_000, " ", good.upper())
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    yield f"{none}.{body}."
    for number in range(17):
        yield issued(stage, "builder", audiences=[f"https://{number}.example"])


def issued(stage: ExchangeStage, name: str, **spec: Any) -> str:
    path = f"/api/v1/namespaces/batch/serviceaccounts/{name}/token"
    found: str = stage.make(path, {"spec": spec})["status"]["token"]
    return found


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


def test_many_tokens_are_reviewed_in_one_call(stage: ExchangeStage) -> None:
    """37 of them bad: the results are those of as many single reviews, word for word."""
    stage.account("batch", "builder")
    bad = [*bad_tokens(stage)]
    good = [issued(stage, "builder") for _ in range(REVIEWED - len(bad))]
    tokens = [*good[:50], *bad, *good[50:]]

    batch = stage.make(f"{IDENTITY}/tokenreviewbatches", {"spec": {"tokens": tokens}})
    singly = [stage.send("POST", REVIEWS, {"spec": {"token": token}}) for token in tokens]

    results = batch["status"]["results"]
    assert (len(bad), len(tokens)) == (37, REVIEWED)
    assert [bool(one.get("authenticated")) for one in results].count(False) == 37
    assert results == [
        one.json["status"] if one.status == 201 else {"user": {}, "error": one.json["message"]}
        for one in singly
    ]


# -- rights, and floods ----------------------------------------------------------------------------


def test_introspection_of_one_audience_reveals_nothing_about_another(stage: ExchangeStage) -> None:
    """A caller with the right on the vault sees that audience alone."""
    own = stage.account("web", "vault")
    account = {"kind": "ServiceAccount", "namespace": "web", "name": "vault"}
    stage.may_introspect("only-vault", VAULT, account)
    outside = stage.issuer.github(aud=stage.url)
    mine, other = stage.exchanged(outside), stage.exchanged(outside, stage.url)

    assert stage.introspect(mine, own)["aud"] == [VAULT]
    assert stage.introspect(other, own) == {"active": False}
    assert stage.introspect(other)["aud"] == [stage.url]


def test_a_policy_needs_the_right_to_create_tokens(stage: ExchangeStage) -> None:
    """All rights on policies are not enough."""
    rule = {"apiGroups": ["identity.orch.io"], "resources": ["*"], "verbs": ["*"]}
    stage.make(f"{RBAC}/clusterroles", {"metadata": {"name": "writer"}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": "writer"}
    user = {"apiGroup": "rbac.authorization.orch.io", "kind": "User", "name": "alice"}
    binding = {"metadata": {"name": "writer"}, "roleRef": role, "subjects": [user]}
    stage.make(f"{RBAC}/clusterrolebindings", binding)
    spec = {
        "issuer": stage.issuer.url, "claims": {"repository_id": "1"}, "account": "deployer",
        "audiences": [VAULT],
    }  # fmt: skip

    refused = stage.admin.send(
        "POST", POLICIES, {"metadata": {"name": "mine"}, "spec": spec}, token=ALICE
    )

    assert refused.status == 403
    assert "serviceaccounts/token" in refused.json["message"]


class Flood(threading.Thread):
    """Requests from one address without a pause, until it is stopped."""

    def __init__(self, port: int, body: bytes) -> None:
        super().__init__()
        self.connection = client(port, "127.0.66.6")
        self.body = body
        self.ends = threading.Event()
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        while not self.ends.is_set():
            self.statuses[post(self.connection, self.body)] += 1
        self.connection.close()


def client(port: int, address: str) -> http.client.HTTPSConnection:
    tls = ssl._create_unverified_context()  # noqa: S323 -- it is our own server
    return http.client.HTTPSConnection(
        "127.0.0.1", port, context=tls, timeout=20, source_address=(address, 0)
    )


def post(connection: http.client.HTTPSConnection, body: bytes) -> int:
    connection.request("POST", "/oauth2/token?account=ci/deployer", body, FORM)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_flood_from_one_address_does_not_disturb_others(stage: ExchangeStage) -> None:
    """The flood gets 429; every other client gets its token."""
    form = {"grant_type": GRANT, "subject_token_type": f"{TYPE}jwt"}
    token = stage.issuer.gitlab(aud=stage.url)
    good = urlencode({**form, "subject_token": token}).encode()
    floods = [
        Flood(stage.server.port, urlencode({**form, "subject_token": "a.b.c"}).encode())
        for _ in range(4)
    ]
    for flood in floods:
        flood.start()
    try:
        served = []
        for number in range(40):
            connection = client(stage.server.port, f"127.0.7.{number + 1}")
            served.append(post(connection, good))
            connection.close()
    finally:
        for flood in floods:
            flood.ends.set()
        for flood in floods:
            flood.join()

    flooded = sum((flood.statuses for flood in floods), Counter[int]())
    assert served == [200] * 40
    assert set(flooded) == {400, 429}
