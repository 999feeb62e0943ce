"""`orchid cluster`: what each action sends, prints and refuses."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.clusters.kinds.cluster import inventory_secret
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
CLUSTERS = f"/apis/{ORCH.identity}/v1beta1/clusters"
REVOCATIONS = f"/apis/{ORCH.identity}/v1/credentialrevocations"
HOME = f"/api/v1/namespaces/{ORCH.system_namespace}"
RBAC = f"/apis/{ORCH.rbac}/v1"
ACCOUNT = f"{HOME}/serviceaccounts/cluster-webhook.prod"
DISCOVERY = "/.well-known/openid-configuration"
CAS = (
    f"/api/v1/namespaces/{KUBERNETES.system_namespace}"
    "/configmaps/extension-apiserver-authentication"
)
ISSUED = {"status": {"token": "abc", "expirationTimestamp": "2030-01-01T00:00:00Z"}}
URL = "https://orchid.test/webhook/clusters/prod/authorize"


@pytest.fixture
def server() -> Server:
    """An Orchid and a cluster in one: their paths differ."""
    server = Server()
    server.get(DISCOVERY, {"issuer": "https://issuer.test"})
    server.get(CAS, {"data": {"client-ca-file": "CA"}})
    server.get("/version", {"gitVersion": "v1.36.0+orchid.1.0.0", "minor": "36"})
    for collection in (
        CLUSTERS,
        f"{HOME}/serviceaccounts",
        f"{RBAC}/clusterroles",
        f"{RBAC}/clusterrolebindings",
    ):
        server.on("POST", collection, lambda sent: sent, 201)
    server.on("POST", f"{ACCOUNT}/token", ISSUED, 201)
    server.on("PUT", f"{CLUSTERS}/prod", lambda sent: sent)
    server.listed(REVOCATIONS)
    return server


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Iterator[Run]:
    with commands(server, tmp_path) as run:
        yield run


@pytest.fixture
def add(run: Run, tmp_path: Path) -> Run:
    ours = tmp_path / "test.kubeconfig"
    return lambda *words: run("cluster", "add", "prod", "--orchid-kubeconfig", ours, *words)


def cluster(status: Any = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "prod", "resourceVersion": "7"}
    return {"metadata": meta, "spec": {"issuer": "i", **spec}, "status": status or {}}


def test_a_cluster_is_added(
    server: Server, add: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With what it reports, and an account that may call its own webhook only."""
    assert add("--out", tmp_path / "prod", "-o", "json") == 0

    (record,) = server.sent("POST", CLUSTERS)
    credential = record["spec"].pop("credential")
    assert record["spec"] == {"issuer": "https://issuer.test", "clientAuthorities": "CA"}
    assert (credential["name"], credential["url"]) == ("cluster-webhook.prod", URL)
    (role,) = server.sent("POST", "clusterroles")
    path = "/webhook/clusters/prod/authorize"
    assert role["rules"] == [{"nonResourceURLs": [path], "verbs": ["post"]}]
    (request,) = server.sent("POST", "/token")
    assert request["spec"] == {"expirationSeconds": 365 * 86_400}
    assert (tmp_path / "prod" / "webhook.token").read_text() == "abc"
    assert "failurePolicy: NoOpinion" in (tmp_path / "prod" / "authorization.yaml").read_text()
    output = capsys.readouterr()
    assert json.loads(output.out)["kind"] == "Cluster"
    assert "orchid cluster doctor prod" in output.err
    assert "limit: not covered: members of system:masters" in output.err


@pytest.mark.parametrize(
    ("stored", "words", "url"),
    [
        (None, (), URL),
        (None, ("--url", "https://other.test/"), URL.replace("orchid.", "other.")),
        ({"url": "https://old.test/x"}, (), "https://old.test/x"),
        ({"url": "https://old.test/x"}, ("--url", "https://orchid.test"), URL),
        ({}, (), URL),
    ],
)
def test_the_address_of_the_webhook(
    server: Server, add: Run, stored: Any, words: tuple[str, ...], url: str
) -> None:
    """Of the flag, as registered, or of this server; an inventory stays."""
    inventory = {"secretName": "s"}
    if stored is not None:
        server.get(f"{CLUSTERS}/prod", cluster(credential=stored, inventory=inventory))

    assert add(*words) == 0

    (record,) = server.sent("POST", CLUSTERS)
    assert record["spec"]["credential"]["url"] == url
    assert record["spec"].get("inventory") == (None if stored is None else inventory)


def test_the_issuer_of_a_flag(server: Server, add: Run) -> None:
    """The cluster is then not asked; without client authorities there are none."""
    server.get(DISCOVERY, {"message": "no"}, 403)
    server.get(CAS, {"message": "gone"}, 404)

    assert add("--issuer", "https://i.test", "--failure-policy", "Deny") == 0
    assert server.sent("POST", CLUSTERS)[0]["spec"]["issuer"] == "https://i.test"
    assert "clientAuthorities" not in server.sent("POST", CLUSTERS)[0]["spec"]


@pytest.mark.parametrize(
    ("path", "answer", "status", "reason"),
    [
        (DISCOVERY, {"message": "no"}, 403, "cannot read the issuer of the cluster"),
        (DISCOVERY, {}, 200, "the cluster does not report its issuer; add --issuer"),
        (DISCOVERY, {"issuer": ""}, 200, "does not report its issuer"),
        (DISCOVERY, {"issuer": 7}, 200, "does not report its issuer"),
        (CAS, {"message": "not the authorities"}, 403, "not the authorities"),
        (f"{CLUSTERS}/prod", {"message": "not the record"}, 403, "not the record"),
    ],
)
def test_each_refusal_of_either_server(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    add: Run,
    capsys: pytest.CaptureFixture[str],
    path: str,
    answer: Any,
    status: int,
    reason: str,
) -> None:
    """Before anything is created."""
    server.get(path, answer, status)

    assert add() == 1

    assert reason in capsys.readouterr().err
    assert not server.sent("POST")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-o", "json"), "-o json does not print the files; add --out DIR"),
        (("-o", "yaml"), "-o yaml does not print the files"),
        (("--url", "http://a.test"), "'http://a.test' is not an https URL"),
        (("--url", "https:///x"), "is not an https URL"),
        (("--kubeconfig", "gone"), "--kubeconfig: there is no file gone"),
    ],
)
def test_each_refusal_of_a_flag(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Any, reason: str
) -> None:
    """A mistake of the caller; nothing is created."""
    from orchid import cli

    with commands(server, tmp_path):
        file = str(tmp_path / "test.kubeconfig")
        before = ["cluster", "add", "prod", "--orchid-kubeconfig", file, "--kubeconfig", file]
        assert cli.main([*before, *words]) == 2

    assert reason in capsys.readouterr().err
    assert not server.sent("POST")


def test_another_credential(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """For the same address, in the version that was read."""
    server.get(f"{CLUSTERS}/prod", cluster(credential={"url": "https://old.test/x"}))
    assert run("cluster", "credential", "prod", "-o", "json") == 2
    assert not server.sent("PUT")

    assert run("cluster", "credential", "prod", "--for", "2h", "--out", tmp_path / "out") == 0

    (sent,) = server.sent("PUT")
    assert sent["metadata"]["resourceVersion"] == "7"
    assert sent["spec"]["credential"]["url"] == "https://old.test/x"
    assert server.sent("POST", "/token")[0]["spec"] == {"expirationSeconds": 7200}
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["webhook.token"]
    assert "next: copy it to the API server" in capsys.readouterr().err


def moment(**span: float) -> str:
    return f"{datetime.now(UTC) + timedelta(**span):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("credential", "expected"),
    [
        ({}, "none"),
        ({"url": "x"}, "no end"),
        ({"expires": {"days": 2}}, "token, expires"),
        ({"expires": {"days": -2}}, "token, expired"),
    ],
)
def test_a_cluster_is_shown(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], credential: Any, expected: str
) -> None:
    """With the end of its credential, its revocations and conditions."""
    if span := credential.get("expires"):
        credential = {"expires": moment(**span)}
    conditions = [{"type": "Connected", "status": "True", "message": "it calls"}]
    status = {"calls": 5, "denials": 6, "malformed": 7, "conditions": conditions}
    server.get(f"{CLUSTERS}/prod", cluster(status, credential=credential))
    server.listed(REVOCATIONS, {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})

    assert run("cluster", "show", "prod") == 0
    pairs = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    shown = {name: text.strip() for name, text in pairs.items()}

    assert shown["Credential"].startswith(expected)
    assert (shown["Calls"], shown["Denials"], shown["Malformed"]) == ("5", "6", "7")
    assert (shown["Revocations"], shown["Last call"]) == ("2", "never")
    assert (shown["Inventory"], shown["Connected"]) == ("no", "it calls")
    assert server.sent("GET", REVOCATIONS)[0]["fieldSelector"] == "spec.cluster=prod"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([{"type": "Connected", "status": "True"}], "yes"),
        ([{"type": "Connected", "status": "False"}], "no"),
        ([{"type": "Other", "status": "True"}], "no"),
        ([], "no"),
    ],
)
def test_clusters_are_listed(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], conditions: Any, expected: str
) -> None:
    server.listed(CLUSTERS, cluster({"conditions": conditions, "calls": 5, "denials": 6}))

    assert run("cluster", "list") == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row == ["prod", expected, "never", "5", "6"]


@pytest.mark.parametrize("inventory", [None, {"secretName": "s"}])
def test_a_cluster_is_removed_last(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], inventory: Any
) -> None:
    """After its credential and its inventory, so that a removal can be repeated."""
    server.get(f"{CLUSTERS}/prod", cluster(inventory=inventory))
    server.on("DELETE", f"{CLUSTERS}/prod", {"kind": "Status"})
    assert run("cluster", "remove", "prod") == 2
    assert not server.sent("DELETE")

    assert run("cluster", "remove", "prod", "--yes") == 0

    targets = [path for method, path, _ in server.calls if method == "DELETE"]
    assert targets[-1] == f"{CLUSTERS}/prod"
    assert ACCOUNT in targets
    secret = f"{HOME}/secrets/{inventory_secret('prod')}"
    assert (secret in targets) == bool(inventory)
    output = capsys.readouterr()
    assert output.out == "removed prod\n"
    assert ("in the cluster, delete its account" in output.err) == bool(inventory)


def test_a_removal_that_is_refused_keeps_the_cluster(server: Server, run: Run) -> None:
    """Only what is gone already is passed over."""
    server.get(f"{CLUSTERS}/prod", cluster())
    server.on("DELETE", ACCOUNT, {"message": "no"}, 403)

    assert run("cluster", "remove", "prod", "--yes") == 1
    assert not server.sent("DELETE", CLUSTERS)
