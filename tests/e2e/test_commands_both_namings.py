"""No dead ends: what `orchid` alone can do, in both namings, against a real server."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from orchid.kernel.terminal.polling import polls
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.system_packages import require_program

FIRST_WITH_V1 = 22  # the minor version of kubectl that has v1 of exec plugins


@pytest.fixture(scope="module", params=["orch", "kubernetes"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One for all tests of a naming; each names its own objects."""
    directory = tmp_path_factory.mktemp("server") / "data"
    with running_server(directory, "--naming", request.param) as running:
        yield running


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    home = tmp_path / "home"
    home.mkdir()
    return Person(home, server.kubeconfig)


def test_role_is_granted_asked_about_and_taken(person: Person) -> None:
    """A granted role takes effect, until it is removed."""
    asked = ("can", "alice", "list", "certificatesigningrequests")
    before = person.types(*asked, code=1)
    roles = person.types("role", "list", "-o", "name").stdout.split()
    granted = person.types("grant", "cluster-admin", "--user", "alice", "--group", "ops")
    again = person.types("grant", "cluster-admin", "--user", "alice")
    during = person.types(*asked)
    taken = person.types("revoke-grant", "cluster-admin", "--user", "alice")
    after = person.types(*asked, code=1)

    assert [each.stdout for each in (before, during, after)] == ["no\n", "yes\n", "no\n"]
    assert "cluster-admin" in roles
    assert granted.stdout.splitlines() == [
        "granted cluster-admin to user alice everywhere",
        "granted cluster-admin to group ops everywhere",
    ]
    assert again.stdout == "unchanged: cluster-admin to user alice everywhere\n"
    assert taken.stdout == "took cluster-admin from user alice everywhere\n"
    assert person.types("can", "bob", "get", "/metrics", "--group", "ops").stdout == "yes\n"
    refused = person.types("revoke-grant", "cluster-admin", "--user", "alice", code=1)
    assert "has no direct grant of cluster-admin everywhere" in refused.stderr


def test_account_is_shown_with_the_roles_of_its_namespace(person: Person) -> None:
    """A grant in one namespace holds there alone."""
    person.types("account", "new", "shown/builder")
    person.types("grant", "view", "--account", "shown/builder", "-n", "shown")

    shown = person.types("account", "show", "shown/builder").stdout

    assert "system:serviceaccount:shown:builder" in shown
    assert "view in shown (by shown/grant:view:" in shown
    asked = ("can", "shown/builder", "list", "serviceaccounts")
    assert person.types(*asked, "-n", "shown").stdout == "yes\n"
    person.types(*asked, "-n", "default", code=1)


def test_a_command_with_several_names_reports_each(person: Person) -> None:
    """A failure does not stop the others, and sets the exit code."""
    person.types("account", "new", "many/a", "many/b")

    done = person.types("account", "delete", "--yes", "many/a", "many/none", "many/b", code=1)

    assert done.stdout.splitlines() == ["deleted many/a", "deleted many/b"]
    assert 'orchid: many/none: serviceaccounts "none" not found' in done.stderr


def test_lists_have_every_form(person: Person) -> None:
    """JSON and YAML for programs, names for pipes, more columns with wide."""
    person.types("account", "new", "forms/a", "forms/b")
    listed = ("account", "list", "--namespace", "forms")

    names = person.types(*listed, "-o", "name").stdout.split()
    wide = person.types(*listed, "-o", "wide").stdout
    yaml = person.types(*listed, "-o", "yaml").stdout

    assert {"forms/a", "forms/b"} <= set(names)
    assert "UID" in wide.splitlines()[0]
    assert "name: a\n" in yaml
    assert {each["metadata"]["name"] for each in person.gets(*listed)} >= {"a", "b"}


def test_watch_prints_changes(person: Person) -> None:
    """First what is there, then each change as it comes."""
    person.types("account", "new", "watched/first")
    command = [sys.executable, "-m", "orchid", "account", "list", "--watch"]
    command += ["--namespace", "watched", "-o", "name"]
    with subprocess.Popen(
        command, cwd=person.home, env=person.environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        seen = [watching.stdout.readline()]
        while "watched/first\n" not in seen:
            seen.append(watching.stdout.readline())
        person.types("account", "new", "watched/second")
        while "watched/second\n" not in seen:
            seen.append(watching.stdout.readline())
        watching.terminate()

    assert seen[-1] == "watched/second\n"


def test_serving_certificate_is_requested_by_its_names(person: Person) -> None:
    """Names and usages that no signer would sign are reported before anything is sent."""
    unnamed = person.types("csr", "new", "web", "--serving", code=2)
    nobody = person.types("csr", "new", "web", "--serving", "--dns", "web.example", code=2)
    person.types("ca", "new", "web", "--signer", "example.com/web")
    unfit = person.types("csr", "new", "web", "--usage", "server auth", code=2)
    master = person.types("csr", "new", "web", "--group", "system:masters", code=2)
    person.types("csr", "new", "web", "--serving", "--dns", "web.example")
    person.types("csr", "approve", "web")
    person.types("csr", "fetch", "web")

    assert "give --dns or --ip" in unnamed.stderr
    assert "orchid ca new" in nobody.stderr
    assert "would not sign that" in unfit.stderr
    assert "would not sign that" in master.stderr
    assert "DNS web.example" in person.types("csr", "show", "web").stdout
    assert (person.home / "web.crt").read_text().startswith("-----BEGIN CERTIFICATE-----")


def test_certificate_is_renewed_as_it_was(person: Person) -> None:
    """Subject, names, usages, life and signer stay; the request has the next free name."""
    person.types("csr", "new", "erin", "--group", "developers", "--for", "2h")
    person.types("csr", "approve", "erin")
    person.types("csr", "fetch", "erin")

    renewed = person.types("csr", "renew", "erin")
    first, again = (person.gets("csr", "show", name)["request"] for name in ("erin", "erin-2"))
    deleted = person.types("csr", "delete", "--yes", "erin", "erin-2")

    assert renewed.stdout.startswith("requested erin-2 from ")
    for field in ("signerName", "expirationSeconds"):
        assert first["spec"][field] == again["spec"][field]
    assert set(first["spec"]["usages"]) == set(again["spec"]["usages"])
    assert deleted.stdout.splitlines() == ["deleted erin", "deleted erin-2"]


def test_bundles_of_a_signer_are_shown_and_deleted(person: Person, server: Server) -> None:
    """Trust anchors for the certificates of a signer, ready for a file."""
    authority = server.data_dir / "ca.crt"
    signer = "example.com/other"
    person.types("bundle", "set", "example.com:other:a", str(authority), "--signer", signer)

    shown = person.types("bundle", "show", "--signer", signer, "--pem").stdout
    person.types("bundle", "delete", "--yes", "example.com:other:a")

    assert shown == authority.read_text()
    person.types("bundle", "show", "--signer", signer, code=1)
    person.types("bundle", "show", code=2)


def test_token_keys_are_listed_and_made(person: Person) -> None:
    """The key of a token is among the published ones; a new one is for its owner alone."""
    person.types("account", "new", "keys/builder")
    token = person.types("token", "keys/builder").stdout
    used = person.gets("token", "show", given=token)["header"]["kid"]

    made = person.types("key", "new", "next.key")

    assert used in {each["status"]["keyID"] for each in person.gets("key", "list")}
    assert made.stdout.startswith("created next.key: ")
    assert (person.home / "next.key").stat().st_mode & 0o777 == 0o600
    person.types("key", "new", "next.key", code=2)


def test_token_keys_take_only_possible_steps(person: Person) -> None:
    """A rotation that would break a verifier is refused with the reason; so is a public key."""
    for _ in polls(30):
        if [one for one in person.gets("key", "list") if one["metadata"]["name"] == "tokens-2"]:
            break
    for _ in polls(30):
        if "published" in person.gets("key", "show", "tokens-2")["status"].get("times", {}):
            break
    refused = person.types("key", "rotate", code=1).stderr
    kept = person.types("key", "retire", "--yes", "tokens-1", code=1).stderr
    (person.home / "other.pem").write_text(keys.generate().public.pem())
    alone = person.types("key", "import", "--public", "other.pem", code=2).stderr
    person.types("key", "import", "--secret", "nonsense", code=2)
    hsm = ("--authority", "cluster", "--pkcs11", "ca-2")
    elsewhere = person.types("key", "import", *hsm, code=1).stderr
    listed = [one for one in person.gets("key", "list") if not one["spec"].get("authority")]
    states = {one["metadata"]["name"]: one["spec"]["state"] for one in listed}

    assert 'spec.pkcs11: Invalid value: "ca-2": this server has no HSM' in elsewhere
    assert "verifiers have it only after the publish time, from 2" in refused
    assert "only a revoked key changes from Active to Retired" in kept
    assert states == {"tokens-1": "Active", "tokens-2": "Published"}
    assert "none of Orchid's own accounts" in alone
    assert "tokens-1" in person.types("key", "show", "tokens-1").stdout


def test_names_are_completed_from_the_server(person: Person) -> None:
    """One a line; where nobody answers there is silence."""
    person.types("account", "new", "typed/builder")

    found = person.types("completion", "words", "orchid", "token", "").stdout.split()
    person.kubeconfig = Path("/no/such/file")
    nothing = person.types("completion", "words", "orchid", "account", "show", "")

    assert "typed/builder" in found
    assert (nothing.stdout, nothing.stderr) == ("", "")


def test_credential_of_an_account_is_used_by_kubectl_and_by_orchid(person: Person) -> None:
    """Both run the plugin, and are the account; an administrator's file is never named in it."""
    require_program("kubectl")
    person.types("account", "new", "plugin/builder")
    person.types("grant", "view", "--account", "plugin/builder", "-n", "plugin")
    person.types("account", "new", "plugin/issuer")
    person.types("grant", "edit", "--account", "plugin/issuer", "-n", "plugin")
    person.types("kubeconfig", "--account", "plugin/issuer", "--out", "issuer.kubeconfig")
    words = ("kubeconfig", "--exec", "--account", "plugin/builder", "--for", "1h")
    refused = person.types(*words, "--out", "p.kubeconfig", code=2).stderr
    as_issuer = ("--kubeconfig", "issuer.kubeconfig", "--out", "p.kubeconfig")
    person.types(*words, *as_issuer)
    as_kubectl_reads_it(person.home / "p.kubeconfig")

    listed = subprocess.run(
        ["kubectl", "--kubeconfig", "p.kubeconfig", "get", "serviceaccounts", "-o", "name"],
        cwd=person.home,
        env=person.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "is an administrator's" in refused
    assert "serviceaccount/builder" in listed.stdout.split()
    known = person.types("whoami", "--kubeconfig", "p.kubeconfig").stdout
    assert "system:serviceaccount:plugin:builder" in known


def as_kubectl_reads_it(kubeconfig: Path) -> None:
    """Name the older API of plugins for a kubectl before 1.22, which does not know v1."""
    answer = subprocess.run(
        ["kubectl", "version", "--client", "-o", "json"], capture_output=True, check=True
    )
    minor = int(re.sub(r"\D", "", json.loads(answer.stdout)["clientVersion"]["minor"]))
    if minor < FIRST_WITH_V1:
        group = "client.authentication.k8s.io"
        text = kubeconfig.read_text().replace(f"{group}/v1\n", f"{group}/v1beta1\n")
        kubeconfig.write_text(text)


def test_credential_is_renewed_when_a_third_of_its_life_is_left(
    person: Person, server: Server
) -> None:
    """A certificate of ten minutes has nine left at most: nothing is asked for until it is due."""
    person.types("csr", "new", "robot", "--for", "10m")
    person.types("csr", "approve", "robot")
    person.types("csr", "fetch", "robot")
    before = (person.home / "robot.crt").read_text()

    words = ("credential", "--cert", "robot.crt", "--key", "robot.key")
    first = json.loads(person.types(*words).stdout)

    assert first["kind"] == "ExecCredential"
    assert first["apiVersion"] == "client.authentication.k8s.io/v1"
    assert first["status"]["clientCertificateData"] == before
    assert first["status"]["expirationTimestamp"] > "2026"
    assert not person.gets("csr", "list", "--pending")


def test_credential_that_is_due_is_renewed_and_kept(person: Person, server: Server) -> None:
    """It is requested again, waited for, and written in its place."""
    cluster = Authority.load_files(server.data_dir / "ca.crt", server.data_dir / "ca.key")
    then = datetime.now(UTC) - timedelta(minutes=50)
    issued = cluster.issue_client("due", lifetime=timedelta(hours=1), now=then)
    write_private(person.home / "due.key", issued.key.reveal().encode())
    (person.home / "due.crt").write_bytes(issued.chain)
    command = [sys.executable, "-m", "orchid", "credential", "--cert", "due.crt"]
    command += ["--key", "due.key", "--signer", "client", "--wait", "50s"]

    with subprocess.Popen(
        command, cwd=person.home, env=person.environment, stdout=subprocess.PIPE, text=True
    ) as plugin:
        while "due-2" not in person.types("csr", "list", "-o", "name").stdout.split():
            assert plugin.poll() is None
        person.types("csr", "approve", "due-2")
        printed, _ = plugin.communicate(timeout=60)

    renewed = json.loads(printed)["status"]["clientCertificateData"]
    assert renewed.encode() == (person.home / "due.crt").read_bytes()
    assert renewed.encode() != issued.chain
