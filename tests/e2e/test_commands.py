"""The commands as a person types them, against a real server."""

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.conftest import StartServer
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that do not stop it; each names its own objects."""
    directory = tmp_path_factory.mktemp("server") / "data"
    with running_server(directory, "--token-auth-file", str(TOKENS)) as running:
        yield running


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    return person_of(server, tmp_path)


@pytest.fixture
def account(person: Person) -> str:
    """An account of this test's own."""
    name = f"{person.home.parent.name.replace('_', '-')[:40].strip('-')}/builder"
    person.types("account", "new", name)
    return name


def person_of(server: Server, tmp_path: Path) -> Person:
    home = tmp_path / "home"
    home.mkdir()
    return Person(home, server.kubeconfig)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_status_shows_server_and_objects(person: Person, server: Server) -> None:
    """Ready, version, who one is, and how much there is."""
    found = person.gets("status")

    assert found["ready"] is True
    assert found["server"] == server.url
    assert found["user"]["username"] == "orchid-admin"
    assert found["counts"]["namespaces"] >= 4
    assert found["counts"]["undecided"] >= 0


def test_token_is_got_shown_and_refused(person: Person, account: str) -> None:
    """A token for an audience verifies for it, and a changed one does not."""
    token = person.types("token", account, "--audience", "https://a", "--for", "1h").stdout
    shown = person.gets("token", "show", "--verify", given=token)
    forged = person.gets("token", "show", "--verify", given=token.strip()[:-8] + "AAAAAAAA", code=1)

    assert token.count("\n") == 1
    assert shown["verified"] is True
    assert shown["review"]["audiences"] == ["https://a"]
    assert forged["verified"] is False


def test_tokens_are_reviewed_a_line_each(person: Person, account: str) -> None:
    """Over a thousand of them take several calls; one that is refused makes the exit code 1."""
    token = person.types("token", account).stdout.strip()
    good = person.gets("token", "review", given=f"{token}\n\n{token}\n")
    many = person.gets("token", "review", given=f"{token}\n" * 1001)
    mixed = person.types("token", "review", given=f"{token}\nnonsense\n", code=1)

    assert [one["authenticated"] for one in good] == [True, True]
    assert len(many) == 1001
    lines = [line.split() for line in mixed.stdout.splitlines()]
    assert lines[1][:2] == ["1", "yes"]
    assert lines[2][:3] == ["2", "no", "invalid"]
    person.types("token", "review", given="", code=2)
    person.types("token", "review", "--for", "1h", given=token, code=2)


def test_token_is_bound_to_an_object(person: Person, account: str) -> None:
    """A token cannot be bound to a missing object; the server says so."""
    refused = person.types("token", account, "--bound-to", "secret/none", code=1)

    assert refused.stderr.endswith('builder: secrets "none" not found\n')
    assert refused.stdout == ""


def test_request_is_approved_and_its_certificate_used(person: Person) -> None:
    """From a new key to a caller whom the server knows by certificate."""
    person.types("csr", "new", "alice", "--group", "developers", "--dns", "a.example")
    shown = person.gets("csr", "show", "alice")["decoded"]
    listed = person.gets("csr", "list", "--pending")
    person.types("csr", "approve", "alice")
    person.types("csr", "fetch", "alice")
    person.types(
        "kubeconfig", "--cert", "alice.crt", "--key", "alice.key", "--out", "alice.kubeconfig"
    )
    who = person.gets("whoami", "--kubeconfig", "alice.kubeconfig")

    assert shown == {
        "Subject": "O=developers, CN=alice",
        "Names": ["DNS a.example"],
        "Key": "ECDSA, secp256r1",
    }
    assert "alice" in {each["metadata"]["name"] for each in listed}
    assert who["status"]["userInfo"]["username"] == "alice"
    assert mode(person.home / "alice.key") == 0o600
    assert mode(person.home / "alice.kubeconfig") == 0o600


def test_fetch_reports_a_denied_request(person: Person) -> None:
    """The wait ends at once, with the reason."""
    person.types("csr", "new", "eve")
    person.types("csr", "deny", "eve", "--message", "who is Eve?")

    waited = person.types("csr", "fetch", "eve", code=1)

    assert waited.stderr == "orchid: eve was denied: DecidedByHand: who is Eve?\n"
    assert not (person.home / "eve.crt").exists()


def test_undecided_request_is_waited_for_until_the_deadline(person: Person) -> None:
    """Then the command says what is missing, and how to do it."""
    person.types("csr", "new", "slow")

    waited = person.types("csr", "fetch", "slow", "--wait", "0s", code=1)

    assert "orchid csr approve slow" in waited.stderr


def test_refused_request_leaves_no_key_behind(person: Person) -> None:
    """A key that was made for a request which does not exist is removed again."""
    person.types("csr", "new", "odd", "--signer", "not-a-signer", code=1)

    assert not (person.home / "odd.key").exists()


def test_key_that_is_there_is_never_overwritten(person: Person) -> None:
    """It is used when it is named, and otherwise in the way."""
    person.types("csr", "new", "bob")
    before = (person.home / "bob.key").read_bytes()

    person.types("csr", "new", "bob", code=2)
    person.types("csr", "new", "bob-2", "--key", "bob.key")

    assert (person.home / "bob.key").read_bytes() == before


def test_subject_cannot_steer_the_terminal(person: Person) -> None:
    """Control characters in the subject of a request are shown escaped."""
    person.types("csr", "new", "steering", "--user", "eve\x1b[2J", "--signer", "example.com/x")

    assert "CN=eve\\x1b[2J" in person.types("csr", "show", "steering").stdout


def test_bundle_is_made_replaced_and_shown(person: Person, server: Server) -> None:
    """A bundle is returned as it was sent; other text is refused by the server."""
    authority = server.data_dir / "ca.crt"
    person.types("bundle", "set", "mine", str(authority))
    again = person.types("bundle", "set", "mine", "-", given=authority.read_text())
    bad = person.types("bundle", "set", "mine", "-", given="nonsense", code=1)

    assert again.stdout == "unchanged: mine\n"
    assert "at least one trust anchor" in bad.stderr
    assert person.types("bundle", "show", "mine", "--pem").stdout == authority.read_text()
    assert "CN=orchid-ca" in person.types("bundle", "show", "mine").stdout


def test_kubeconfig_of_an_account_works(person: Person, account: str) -> None:
    """It holds a token, is for its owner alone, and is understood by ourselves."""
    person.types("kubeconfig", "--account", account, "--for", "1h", "--out", "b.kubeconfig")

    who = person.gets("whoami", "--kubeconfig", "b.kubeconfig")

    assert (
        who["status"]["userInfo"]["username"]
        == f"system:serviceaccount:{account.replace('/', ':')}"
    )
    assert mode(person.home / "b.kubeconfig") == 0o600


def test_a_forbidden_command_names_the_user(person: Person, account: str) -> None:
    """A 403 says what was refused, to whom, and what would help."""
    person.types("kubeconfig", "--account", account, "--out", "b.kubeconfig")

    refused = person.types("csr", "list", "--kubeconfig", "b.kubeconfig", code=1)
    status = person.gets("status", "--kubeconfig", "b.kubeconfig")

    assert "is forbidden" in refused.stderr
    assert f"You are '{account}' of b.kubeconfig (--kubeconfig)" in refused.stderr
    assert status["counts"]["serviceaccounts"] is None


def test_a_refused_credential_has_its_own_message(person: Person) -> None:
    """A 401 names the file and never the token."""
    text = person.kubeconfig.read_text()
    head, _, _ = text.partition("    client-certificate-data:")
    tail = text[text.index("contexts:") :]
    (person.home / "bad.kubeconfig").write_text(f"{head}    token: c2VjcmV0LXRva2Vu\n{tail}")

    refused = person.types("whoami", "--kubeconfig", "bad.kubeconfig", code=1)

    assert "does not accept the credential" in refused.stderr
    assert "bad.kubeconfig" in refused.stderr
    assert "c2VjcmV0LXRva2Vu" not in refused.stderr


def test_static_tokens_work_too(person: Person) -> None:
    """A token in the kubeconfig instead of a certificate."""
    text = person.kubeconfig.read_text()
    head, _, _ = text.partition("    client-certificate-data:")
    tail = text[text.index("contexts:") :]
    (person.home / "t.kubeconfig").write_text(
        f"{head}    token: {tokens_by_user()['admin']}\n{tail}"
    )

    who = person.gets("whoami", "--kubeconfig", "t.kubeconfig")

    assert who["status"]["userInfo"]["username"] == "admin"


def test_server_that_is_not_there_is_named(start_server: StartServer, tmp_path: Path) -> None:
    """Which address, which file named it, and how to start it."""
    server = start_server("--controllers", "")
    person = person_of(server, tmp_path)
    server.stop()

    refused = person.types("status", code=1)

    assert refused.stderr == (
        f"orchid: nothing listens at {server.url}, the server of {person.kubeconfig} "
        "($KUBECONFIG). Start it with: orchid serve\n"
    )


def test_server_of_another_authority_is_not_trusted(
    person: Person, server: Server, start_server: StartServer
) -> None:
    """The error for an old kubeconfig after the data directory was created again says so."""
    other = start_server("--controllers", "")
    text = person.kubeconfig.read_text().replace(server.url, other.url)
    (person.home / "old.kubeconfig").write_text(text)

    refused = person.types("whoami", "--kubeconfig", "old.kubeconfig", code=1)

    assert "cannot be trusted" in refused.stderr


def test_names_of_kubernetes_are_found_out(start_server: StartServer, tmp_path: Path) -> None:
    """The commands ask the server which names it speaks."""
    server = start_server("--naming", "kubernetes", "--controllers", "")
    person = person_of(server, tmp_path)

    made = person.gets("csr", "new", "alice")

    assert made["apiVersion"] == "certificates.k8s.io/v1"
    assert made["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client"


def test_backup_is_taken_while_it_runs_and_put_back(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Objects of the backup exist again; the revision is ahead of every earlier one."""
    server = start_server("--controllers", "")
    person = person_of(server, tmp_path)
    data = ("--data-dir", str(server.data_dir))
    person.types("account", "new", "ci/before")
    saved = person.types("backup", "saved.db", *data).stdout
    seen = person.gets("account", "new", "ci/after")[0]["metadata"]["resourceVersion"]

    refused = person.types("restore", "saved.db", *data, code=1)
    server.stop()
    restored = person.types("restore", "saved.db", *data).stdout
    again = start_server("--controllers", "", port=server.port)
    made = person.gets("account", "new", "ci/later")[0]["metadata"]["resourceVersion"]

    assert again.url == server.url
    assert "stop the server first" in refused.stderr
    names = {each["metadata"]["name"] for each in person.gets("account", "list")}
    assert {"before", "later"} <= names
    assert "after" not in names
    assert int(made) > int(seen) + 1
    assert mode(person.home / "saved.db") == 0o600
    assert [path for path in server.data_dir.iterdir() if ".before-" in path.name]
    assert re.search(r"\b\d+ objects at revision", saved)
    assert " 1 serviceaccounts" in saved
    assert " 1 serviceaccounts" in restored


@pytest.mark.parametrize(
    "words", [("backup", "x.db"), ("restore", "x.db"), ("migrate", "--from", "x", "--to-etcd", "y")]
)
def test_files_that_are_not_there_are_a_mistake(words: tuple[str, ...], tmp_path: Path) -> None:
    """Exit code 2, and nothing is made."""
    person = Person(tmp_path, tmp_path / "none")

    person.types(*words, code=2)

    assert list(tmp_path.iterdir()) == []


def test_the_roles_of_a_deleted_account_are_named(person: Person, account: str) -> None:
    """Bindings name accounts, so the next account of the name has them; a command removes each."""
    namespace = account.partition("/")[0]
    person.types("grant", "edit", "--account", account, "--namespace", namespace)

    deleted = person.types("account", "delete", "--yes", account)

    command = f"orchid revoke-grant edit --account {account} --namespace {namespace}"
    assert f"still has the role edit in {namespace}" in deleted.stderr
    assert command in deleted.stderr
    person.types(*command.split()[1:])
    person.types("account", "new", account)
    assert "still has" not in person.types("account", "delete", "--yes", account).stderr


def test_a_waiting_request_is_shown_with_what_would_be_signed(person: Person) -> None:
    """An approver sees usages and lifetime before the decision; afterwards the conditions."""
    person.types("csr", "new", "shown", "--group", "developers")

    waiting = person.types("csr", "show", "shown").stdout
    person.types("csr", "approve", "shown")
    approved = person.types("csr", "show", "shown").stdout

    assert "Would be signed" in waiting
    assert "client auth" in waiting.partition("Would be signed")[2]
    assert "Would be signed" not in approved


def test_a_refusal_for_all_namespaces_names_the_flag_for_one(person: Person, account: str) -> None:
    """A role in one namespace is the usual case, and the list asks for all of them."""
    namespace = account.partition("/")[0]
    person.types("grant", "view", "--account", account, "--namespace", namespace)
    person.types("kubeconfig", "--account", account, "--out", "own.kubeconfig")

    refused = person.types("account", "list", "--kubeconfig", "own.kubeconfig", code=1)
    allowed = person.types(
        "account", "list", "--kubeconfig", "own.kubeconfig", "--namespace", namespace
    )

    assert "try --namespace" in refused.stderr
    assert "builder" in allowed.stdout


def test_a_token_is_written_to_a_file_of_its_owner(person: Person, account: str) -> None:
    """The shell would make it readable for others."""
    written = person.types("token", account, "--out", "own.token")

    token = (person.home / "own.token").read_text()
    assert written.stdout == "wrote own.token\n"
    assert mode(person.home / "own.token") == 0o600
    assert person.gets("token", "show", "--verify", given=token)["verified"] is True


def test_output_that_cannot_be_written_is_one_line(person: Person) -> None:
    """A full disk, for a command with an answer of the server and for one without."""
    with Path("/dev/full").open("w") as full:
        for words in (["status"], ["config", "show"]):
            done = subprocess.run(
                [sys.executable, "-m", "orchid", *words],
                cwd=person.home, env=person.environment, stdout=full, stderr=subprocess.PIPE,
                text=True, timeout=60, check=False,
            )  # fmt: skip

            assert done.returncode == 1
            assert done.stderr == "orchid: cannot write the output: No space left on device\n"


def test_can_names_the_namespaces_in_which_it_is_allowed(person: Person, account: str) -> None:
    """By a role there of the user, a group or the account; a plain no has none."""
    namespace = account.partition("/")[0]
    person.types("grant", "view", "--group", "devs", "-n", namespace)
    person.types("grant", "edit", "--account", account, "-n", namespace)

    of_group = person.types("can", "ann", "list", "serviceaccounts", "--group", "devs", code=1)
    of_account = person.types("can", account, "create", "serviceaccounts", code=1)
    of_nobody = person.types("can", "ann", "list", "serviceaccounts", "--group", "ops", code=1)

    hint = f"not in all namespaces, but in these: {namespace}"
    assert hint in of_group.stderr
    assert hint in of_account.stderr
    assert "not in all namespaces" not in of_nobody.stderr


def test_a_grant_that_creates_its_namespace_says_so(person: Person) -> None:
    """A mistyped name becomes an object; once it exists, nothing is said."""
    made = person.types("grant", "view", "--user", "ann", "-n", "mistyped")
    again = person.types("grant", "view", "--user", "eve", "-n", "mistyped")

    assert "there was no namespace mistyped: it was created" in made.stderr
    assert "there was no namespace" not in again.stderr


def test_a_signer_that_nobody_signs_for_is_remarked(person: Person) -> None:
    """It may be external, or a mistake in typing; platform signers and authorities are known."""
    person.types("ca", "new", "typed", "--signer", "example.com/typed")

    known = person.types("csr", "new", "known", "--signer", "example.com/typed")
    usual = person.types("csr", "new", "usual")
    mistyped = person.types("csr", "new", "mistyped", "--signer", "example.com/tpyed")

    remark = "no authority of this server signs for example.com/tpyed"
    assert remark in mistyped.stderr
    assert "no authority" not in known.stderr + usual.stderr


def test_a_token_is_neither_too_short_nor_long_without_a_word(person: Person, account: str) -> None:
    """The shortest is the server's; a long one that nothing ends gets the command that does."""
    short = person.types("token", account, "--for", "5s", code=2)
    usual = person.types("token", account, "--for", "1h")
    long = person.types("token", account, "--for", "999d")

    assert short.stderr == "orchid: --for: a token lasts at least 10m\n"
    assert "leaks" not in usual.stderr
    assert f"orchid revoke account/{account}" in long.stderr


def test_listed_objects_have_their_kind(person: Person, account: str) -> None:
    """As those of every other command."""
    found = person.gets("account", "list")

    assert {(one["apiVersion"], one["kind"]) for one in found} == {("v1", "ServiceAccount")}


def test_requests_for_programs_have_their_state(person: Person) -> None:
    """The list and one of them say what the table says."""
    person.types("csr", "new", "stated")
    waiting = [one for one in person.gets("csr", "list") if one["metadata"]["name"] == "stated"]
    person.types("csr", "deny", "stated")

    denied = person.gets("csr", "show", "stated")

    assert [one["state"] for one in waiting] == ["Pending"]
    assert denied["state"] == "Denied"


def test_the_next_step_is_one_that_the_requester_may_take(person: Person, account: str) -> None:
    """An administrator approves; nobody else may approve their own."""
    person.types("role", "new", "requesters", "--allow", "create certificatesigningrequests")
    person.types("grant", "requesters", "--account", account)
    person.types("kubeconfig", "--account", account, "--out", "b.kubeconfig")

    own = person.types("csr", "new", "next-admin")
    other = person.types("csr", "new", "next-other", "--kubeconfig", "b.kubeconfig")

    assert "next: orchid csr approve next-admin, then orchid csr fetch next-admin" in own.stderr
    assert "next: unless a policy approves it, somebody else who may approve for" in other.stderr


def test_own_certificates_of_the_server_name_no_signer(person: Person, server: Server) -> None:
    """In the table; programs get the stored name."""
    shown = person.types("issued").stdout.splitlines()
    stored = person.gets("issued")

    own = [line for line in shown if "system:apiserver" in line]
    assert len(own) == 2
    assert all("the server itself" in line for line in own)
    assert {one["spec"]["signerName"] for one in stored} >= {"orch.io/legacy-unknown"}
