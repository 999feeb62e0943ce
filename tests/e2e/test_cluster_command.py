"""`orchid cluster` and `orchid revoke --cluster`, with a cluster that asks the webhook.

The cluster is a second server with the names of Kubernetes: its API server reads the same
AuthorizationConfiguration and sends the same reviews. `make demo-cluster` does this with a
kube-apiserver.
"""

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchid.kernel.credentials import keys
from tests.e2e.https import Https
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ROLES = "/apis/rbac.authorization.orch.io/v1/clusterroles"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
AUTHORITIES = {
    "metadata": {"name": "extension-apiserver-authentication"},
    "data": {"client-ca-file": ""},
}


class World:
    """Orchid, a cluster that asks it, and a person who administers both."""

    def __init__(self, home: Path, orchid: Server, cluster: Server) -> None:
        self.home, self.orchid, self.cluster = home, orchid, cluster
        self.person = Person(home, orchid.kubeconfig)
        self.there = Person(home, cluster.kubeconfig)

    @property
    def webhook_url(self) -> str:
        """The address that the cluster calls."""
        file = yaml.safe_load((self.home / "files" / "webhook.kubeconfig").read_text())
        url: str = file["clusters"][0]["cluster"]["server"]
        return url

    def token(self, name: str = "builder") -> str:
        return self.there.types("token", f"default/{name}").stdout.strip()

    def use(self, token: str) -> int:
        with Https(self.cluster.port) as client:
            return client.send("POST", WHO, {}, token=token).status

    def doctor(self, code: int = 0) -> dict[str, list[dict[str, Any]]]:
        """The findings by their check."""
        words = ("cluster", "doctor", "prod", "--kubeconfig", str(self.cluster.kubeconfig))
        findings: dict[str, list[dict[str, Any]]] = {}
        for one in self.person.gets(*words, code=code)["findings"]:
            findings.setdefault(one["check"], []).append(one)
        return findings


@contextmanager
def configured(home: Path, policy: str = "NoOpinion") -> Iterator[World]:
    """Orchid and a cluster, registered with `orchid cluster add`."""
    files, data = home / "files", home / "cluster"
    with running_server(home / "orchid") as orchid:
        person = Person(home, orchid.kubeconfig)
        with running_server(data, "--naming", "kubernetes") as cluster:
            there = Person(home, cluster.kubeconfig)
            there.types("account", "new", "default/builder")
            words = ("--out", str(files), "--failure-policy", policy, "--inventory")
            register(person, cluster, home, *words)
            port = cluster.port
        flags = (
            "--naming",
            "kubernetes",
            "--authorization-config",
            str(files / "authorization.yaml"),
        )
        with running_server(data, *flags, port=port) as cluster:
            yield World(home, orchid, cluster)


def register(person: Person, cluster: Server, home: Path, *flags: str) -> str:
    body = {**AUTHORITIES, "data": {"client-ca-file": (cluster.data_dir / "ca.crt").read_text()}}
    admin = Path(home / "admin.pem")
    if not admin.exists():
        user = yaml.safe_load(cluster.kubeconfig.read_text())["users"][0]["user"]
        admin.touch(mode=0o600)
        admin.write_bytes(pem_of(user, "client-certificate") + pem_of(user, "client-key"))
        with Https(cluster.port, admin) as client:
            made = client.send("POST", "/api/v1/namespaces/kube-system/configmaps", body)
        assert made.status == 201, made.body
    words = ("cluster", "add", "prod", "--kubeconfig", str(cluster.kubeconfig))
    done = person.types(*words, "--directory", str(home / "files"), *flags)
    return done.stdout + done.stderr


def pem_of(user: dict[str, str], word: str) -> bytes:
    return base64.b64decode(user[f"{word}-data"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with configured(tmp_path_factory.mktemp("clusters")) as made:
        yield made


def test_what_add_made(world: World) -> None:
    """The Cluster has issuer, authorities and credential; the files are for their owner alone."""
    (found,) = world.person.gets("cluster", "list")
    files = world.home / "files"

    assert found["spec"]["issuer"] == world.cluster.url
    assert found["spec"]["clientAuthorities"] == (world.cluster.data_dir / "ca.crt").read_text()
    assert found["spec"]["credential"]["name"] == "cluster-webhook.prod"
    for name in ("authorization.yaml", "webhook.kubeconfig", "webhook.token"):
        assert (files / name).stat().st_mode & 0o777 == 0o600
    webhook = yaml.safe_load((files / "authorization.yaml").read_text())["authorizers"][0][
        "webhook"
    ]
    assert webhook["cacheUnauthorizedRequests"] is False
    assert webhook["failurePolicy"] == "NoOpinion"
    token = (files / "webhook.token").read_text()
    with Https(world.orchid.port) as client:
        assert client.send("GET", "/api/v1/secrets", token=token).status == 403


def test_a_public_key_of_the_cluster_is_imported(world: World) -> None:
    """It is named like the cluster, and is no token key of Orchid."""
    (world.home / "sa.pub").write_text(keys.generate().public.pem())
    said = world.person.types("key", "import", "--cluster", "prod", "--public", "sa.pub").stdout
    (found,) = [one for one in world.person.gets("key", "list") if one["spec"].get("cluster")]
    listed = world.person.types("key", "list").stdout

    assert said.startswith("imported clusters.prod-1: ")
    assert found["spec"]["state"] == "Verifying"
    assert "clusters.prod " in listed


def test_doctor_proves_that_a_revocation_works_and_leaves_nothing(world: World) -> None:
    """Token, revocation, 403 with the name of the revocation; the account and it are removed."""
    findings = world.doctor()

    revocation = [one["state"] for one in findings["revocation"]]
    assert revocation == ["good", "good", "good"]
    assert "got 403" in findings["revocation"][0]["text"]
    assert world.person.gets("revocations", "--cluster", "prod") == []
    accounts = world.there.gets("account", "list")
    assert not [one for one in accounts if "doctor" in one["metadata"]["name"]]


def test_one_of_two_tokens_is_revoked(world: World) -> None:
    """The token itself is not sent to Orchid; 403 names the revocation."""
    stolen, other = world.token(), world.token()
    before = world.use(stolen), world.use(other)

    done = world.person.types("revoke", "token", "--yes", "--cluster", "prod", given=stolen)

    assert before == (201, 201)
    assert (world.use(stolen), world.use(other)) == (403, 201)
    name = done.stdout.rpartition("revoked, by ")[2].strip()
    with Https(world.cluster.port) as client:
        answer = client.send("POST", WHO, {}, token=stolen)
    assert f"credential revoked by {name}" in answer.json["message"]


def test_an_account_is_revoked_and_released(world: World) -> None:
    """Every token, also a new one, until the revocation is deleted."""
    world.there.types("account", "new", "default/other")
    old = world.token("other")

    done = world.person.types("revoke", "account/default/other", "--yes", "--cluster", "prod")
    revoked = world.use(old), world.use(world.token("other"))
    name = done.stdout.rpartition("revoked, by ")[2].strip()
    world.person.types("revoke", "lift", "--yes", name)

    assert revoked == (403, 403)
    assert world.use(old) == 201


def admin_of(world: World) -> Path:
    file = world.home / "orchid-admin.pem"
    user = yaml.safe_load(world.orchid.kubeconfig.read_text())["users"][0]["user"]
    file.touch(mode=0o600)
    file.write_bytes(pem_of(user, "client-certificate") + pem_of(user, "client-key"))
    return file


def certified(world: World, user: str, request: str) -> Path:
    """A certificate of the cluster that is in the inventory; with its key in one file."""
    there = world.there
    there.types("csr", "new", request, "--user", user)
    there.types("csr", "approve", request)
    there.types("csr", "fetch", request)
    for _ in range(200):
        records = world.person.gets("issued", "--cluster", "prod")
        if any(one["spec"]["request"]["name"] == request for one in records):
            break
        time.sleep(0.05)
    else:
        pytest.fail(f"{request} is not recorded: {world.person.gets('cluster', 'show', 'prod')}")
    file = world.home / f"{request}.pem"
    file.touch(mode=0o600)
    parts = [(world.home / f"{request}.{ending}").read_bytes() for ending in ("crt", "key")]
    file.write_bytes(b"".join(parts))
    return file


def shown(world: World, identity: Path) -> int:
    with Https(world.cluster.port, identity) as client:
        return client.send("POST", WHO, {}).status


def test_certificates_of_the_cluster_are_recorded_and_revoked(world: World) -> None:
    """By request, by serial number and from the file; marks are in the inventory."""
    by_request = certified(world, "alice", "laptop")
    by_serial = certified(world, "alice", "desktop")
    by_file = certified(world, "alice", "phone")
    other = certified(world, "alice", "tablet")
    records = {
        one["spec"]["request"]["name"]: one
        for one in world.person.gets("issued", "--cluster", "prod")
    }
    before = [shown(world, one) for one in (by_request, by_serial, by_file, other)]

    world.person.types("revoke", "csr/laptop", "--yes", "--cluster", "prod")
    serial = records["desktop"]["spec"]["serialNumber"]
    world.person.types("revoke", f"cert/{serial}", "--yes", "--cluster", "prod")
    certificate = (world.home / "phone.crt").read_text()
    world.person.types("revoke", "certificate", "--yes", "--cluster", "prod", given=certificate)

    assert before == [201, 201, 201, 201]
    assert [shown(world, one) for one in (by_request, by_serial, by_file)] == [403, 403, 403]
    assert shown(world, other) == 201
    assert records["laptop"]["spec"]["requester"]["username"]
    revocations = world.person.gets("revocations", "--cluster", "prod")
    named = [one["spec"]["certificate"] for one in revocations if "certificate" in one["spec"]]
    assert all(len(one["otherSha256"]) == 1 for one in named)  # the authority uses ECDSA


def test_a_user_is_revoked_and_gets_a_new_certificate(world: World) -> None:
    """Credentials from before the revocation are refused; a certificate requested later works."""
    old = certified(world, "carol", "carol-old")
    before = shown(world, old)

    world.person.types("revoke", "user/carol", "--yes", "--cluster", "prod")
    revoked = shown(world, old)
    time.sleep(1.1)  # times of issue are in seconds
    new = certified(world, "carol", "carol-new")

    assert (before, revoked) == (201, 403)
    assert (shown(world, old), shown(world, new)) == (403, 201)


@pytest.mark.parametrize(
    ("words", "given", "complaint"),
    [
        (("revoke", "user/alice", "--cluster", "none"), "", "not found"),
        (("revoke", "authority/web", "--cluster", "prod"), "", "is none of"),
        (("revoke", "token", "--cluster", "prod"), "nonsense", "not a JSON web token"),
        (("revoke", "certificate", "--cluster", "prod"), "nonsense", "no certificate"),
        (("revoke", "csr/none", "--cluster", "prod"), "", "is in the inventory"),
        (("revoke", "self", "--cluster", "prod"), "", "--cluster goes with"),
        (("revoke", "user/system:serviceaccount:a:b", "--cluster", "prod"), "", "is an account"),
        (("revoke", "account/a", "--cluster", "prod"), "", "not NAMESPACE/NAME"),
    ],
)
def test_what_cannot_be_revoked_says_why(
    world: World, words: tuple[str, ...], given: str, complaint: str
) -> None:
    """One line and no traceback."""
    code = 1 if complaint in ("not found", "is in the inventory") else 2
    assert complaint in world.person.types(*words, given=given, code=code).stderr


def test_a_token_of_another_cluster_is_not_revoked(world: World) -> None:
    """Its issuer is not the cluster's."""
    world.person.types("account", "new", "default/ours")
    token = world.person.types("token", "default/ours").stdout
    done = world.person.types("revoke", "token", "--yes", "--cluster", "prod", given=token, code=1)
    assert "is not the issuer of prod" in done.stderr


def test_list_and_show_have_the_calls(world: World) -> None:
    """The first call is in the status at once."""
    world.use(world.token())
    shown = world.person.types("cluster", "show", "prod").stdout
    assert "token, expires" in shown
    assert "prod" in world.person.types("cluster", "list", "-o", "wide").stdout


def test_orchid_hangs(world: World) -> None:
    """NoOpinion: valid requests go on, doctor reports failed calls; afterwards all is well."""
    token = world.token()
    os.kill(world.orchid.pid, signal.SIGSTOP)
    try:
        during = world.use(token)
    finally:
        os.kill(world.orchid.pid, signal.SIGCONT)

    findings = world.doctor()

    assert during == 201
    states = {one["state"]: one["text"] for one in findings["revocation"]}
    assert "have failed" in states["soon"]


def test_the_credential_is_replaced(world: World) -> None:
    """A wrong one: revoked tokens work again, doctor names the reason; a new one mends it. The
    cluster reads it without a restart."""
    file = world.home / "files" / "webhook.token"
    good = file.read_text()
    file.write_text("wrong")
    findings = world.doctor(code=1)
    words = ("cluster", "credential", "prod")
    lost = world.person.types(*words, "-o", "json", code=2).stderr
    made = world.person.gets(*words, "--out", str(world.home / "files"))

    first = findings["revocation"][0]
    assert first["state"] == "wrong"
    assert "Orchid refused the token of the API server (401)" in first["text"]
    assert "orchid cluster credential prod" in first["advice"]
    assert "add --out" in lost  # the token would be in no file
    assert file.read_text() not in (good, "wrong", "")
    assert made["spec"]["credential"]["url"] == world.webhook_url
    assert world.doctor()["revocation"][0]["state"] == "good"


def test_a_removed_cluster(world: World) -> None:
    """Its account is gone: calls are 401, and requests go on by NoOpinion; nothing is left."""
    token = world.token()

    refused = world.person.types("cluster", "remove", "prod", code=2)
    with Https(world.orchid.port, admin_of(world)) as client:  # as if a removal stopped half-way
        assert client.send("DELETE", f"{ROLES}/cluster-webhook:prod").status == 200
    world.person.types("cluster", "remove", "prod", "--yes")

    assert "--yes" in refused.stderr
    assert world.use(token) == 201
    assert "not found" in world.person.types("cluster", "show", "prod", code=1).stderr
    assert world.person.gets("cluster", "list") == []
    accounts = [one["metadata"]["name"] for one in world.person.gets("account", "list")]
    assert "cluster-webhook.prod" not in accounts
    with Https(world.orchid.port, admin_of(world)) as client:
        page = client.send("GET", "/metrics").body.decode()
    lines = [line for line in page.splitlines() if "/webhook/clusters/" in line]
    assert any(line.startswith("apiserver_request_total") and '"401"' in line for line in lines)


def test_deny_while_orchid_is_gone(tmp_path: Path) -> None:
    """Deny: nothing is allowed that Orchid was not asked about; the administrator goes on."""
    with configured(tmp_path, "Deny") as world:
        token = world.token()
        before = world.use(token)
        world.orchid.kill()
        during = world.use(token)
        administrator = json.loads(world.there.types("whoami", "-o", "json").stdout)

    assert (before, during) == (201, 500)  # as the reference: the authorizer could not be asked
    assert administrator
