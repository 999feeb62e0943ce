"""`orchid policy` as a person types it, against a real server whose controllers run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import Server, running_server
from tests.e2e.test_commands import Person, person_of

POLICY = """
apiVersion: identity.orch.io/v1alpha1
kind: ApprovalPolicy
metadata: {name: %s}
spec:
  signerNames: [orch.io/orch-apiserver-client]
  requester%s: {users: ["*"]}
  allows:
    commonName: "%s-*"
    organizations: [developers]
    usages: [digital signature, client auth]
    keys: [ECDSA-P256]
    maxDuration: 24h
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    return person_of(server, tmp_path)


def written(person: Person, name: str, letter: str = "s") -> str:
    file = person.home / f"{name}.yaml"
    file.write_text(POLICY % (name, letter, name))
    return str(file)


def test_a_policy_issues_without_a_person(person: Person) -> None:
    """Applied, it approves what it allows; the certificate is there to fetch."""
    made = person.types("policy", "apply", written(person, "one"))
    sent = person.types("csr", "new", "one-a", "--group", "developers", "--for", "1h")
    person.types("csr", "fetch", "one-a")

    shown = person.types("csr", "show", "one-a").stdout

    assert made.stdout == "created one\n"
    assert "next: a policy approves it, then orchid csr fetch one-a" in sent.stderr
    assert "BEGIN CERTIFICATE" in (person.home / "one-a.crt").read_text()
    assert "ApprovalPolicy: Approved by ApprovalPolicy one, revision" in shown


def test_policies_are_listed_shown_replaced_and_deleted(person: Person) -> None:
    """The output of `show` can be applied again."""
    file = written(person, "two")
    person.types("policy", "apply", file)
    shown = person.types("policy", "show", "two").stdout
    again = person.types("policy", "apply", "-", given=shown)
    changed = person.types("policy", "apply", "-", given=shown + "  otherwise: deny\n")
    listed = person.types("policy", "list").stdout
    person.types("policy", "delete", "--yes", "two")
    gone = person.types("policy", "show", "two", code=1)

    assert again.stdout == "unchanged: two\n"
    assert changed.stdout == "replaced two\n"
    row = next(line for line in listed.splitlines() if line.startswith("two "))
    assert "orch.io/orch-apiserver-client" in row
    assert row.split()[-3:-1] == ["deny", "yes"]
    assert "not found" in gone.stderr


def test_explain_says_why_not(person: Person) -> None:
    """Check by check, with the value seen."""
    person.types("policy", "apply", written(person, "three"))
    person.types("csr", "new", "three-a", "--group", "admins", "--for", "1h")

    shown = person.types("csr", "show", "three-a").stdout
    waited = person.types("csr", "fetch", "three-a", "--wait", "1s", code=1).stderr
    printed = person.types("policy", "explain", "three-a").stdout
    other = person.types("policy", "explain", "three-a", "--user", "eve").stdout
    found = person.gets("policy", "explain", "three-a")

    assert 'organizations does not allow "admins"' in " ".join(shown.split())
    assert "no policy approves it (No policy allows this request." in waited
    assert 'three: organizations does not allow "admins"' in waited
    assert "Leave" in printed
    assert 'organizations does not allow "admins"' in printed
    assert "the requester may not use this policy" in other
    (three,) = [policy for policy in found["policies"] if policy["name"] == "three"]
    assert [check["field"] for check in three["checks"] if not check["allowed"]] == [
        "organizations"
    ]
    person.types("policy", "delete", "--yes", "three")


def test_a_policy_file_is_tried_before_it_is_applied(person: Person) -> None:
    """The exit code is the result for a pipeline; nothing is stored."""
    from tests.unit.kernel.credentials import samples

    request = person.home / "four.csr"
    request.write_bytes(samples.request("four-a", ("developers",)))
    usages = ("--usage", "digital signature", "--usage", "client auth")
    typed = ("policy", "test", written(person, "four"), "--request", str(request), *usages)

    good = person.types(*typed, "--for", "1h")
    long = person.types(*typed, code=1)

    assert "Approve" in good.stdout
    assert "maxDuration 24h is below 365d" in long.stdout
    assert "not found" in person.types("policy", "show", "four", code=1).stderr


def test_a_policy_file_is_tried_on_what_was_decided(person: Person) -> None:
    """Also on a certificate whose request is gone; what would be the opposite is named."""
    for name in ("six-a", "other-six", "six-b"):
        person.types("csr", "new", name, "--group", "developers", "--for", "1h")
    for name in ("six-a", "other-six"):
        person.types("csr", "approve", name)
        person.types("csr", "fetch", name)
    person.types("csr", "delete", "--yes", "other-six")
    person.types("csr", "deny", "six-b")
    file = Path(written(person, "six"))
    file.write_text(f"{file.read_text()}  otherwise: deny\n")
    typed = ("policy", "test", str(file), "--since")

    printed = json.loads(person.types(*typed, "1h", "-o", "json", code=1).stdout)
    file.write_text(file.read_text().replace("otherwise: deny", "otherwise: leave"))
    left = json.loads(person.types(*typed, "1h", "-o", "json", code=1).stdout)
    shown = person.types(*typed, "1h", code=1).stdout
    both = person.types(*typed, "1h", "--request", "x.csr", code=2)

    changed = {(one["name"], one["was"], one["outcome"]) for one in printed["changed"]}
    assert {one for one in changed if "six" in one[0]} == {
        ("other-six", "Approved", "Deny"),
        ("six-b", "Denied", "Approve"),
    }
    kept = [
        one for one in printed["counts"] if (one["was"], one["outcome"]) == ("Approved", "Approve")
    ]
    assert kept[0]["count"] >= 1
    assert ("other-six", "Leave") in {(one["name"], one["outcome"]) for one in left["changed"]}
    assert "approved would be denied: 0, approved would be left: " in shown
    assert "approved would be left: 0" not in shown
    assert "denied would be approved: 1" in shown
    assert "not allowed with" in both.stderr


def test_a_bad_file_is_reported(person: Person) -> None:
    """By us if it is no policy, by the server if it is a bad one."""
    misspelt = person.types("policy", "apply", written(person, "five", ""), code=1)
    other = person.types("policy", "apply", "-", given="kind: ConfigMap", code=2)
    broken = person.types("policy", "apply", "-", given="{", code=2)
    missing = person.types("policy", "apply", "nowhere.yaml", code=2)

    assert "requester" in misspelt.stderr
    assert "ConfigMap: orchid policy takes only ApprovalPolicy" in other.stderr
    assert "yaml" in broken.stderr
    assert "cannot read nowhere.yaml" in missing.stderr


def somebody(admin: Person, name: str, server: Server) -> Person:
    """A person with a certificate, in a directory of their own."""
    home = admin.home / f"home-of-{name}"
    home.mkdir()
    admin.types("csr", "new", name, "--for", "1h")
    admin.types("csr", "approve", name)
    admin.types("csr", "fetch", name)
    pair = ("--cert", f"{name}.crt", "--key", f"{name}.key")
    admin.types("kubeconfig", *pair, "--out", str(home / "kubeconfig"))
    return Person(home, home / "kubeconfig")


def test_requester_sees_why_a_request_waits_without_more_rights(
    person: Person, server: Server
) -> None:
    """The rights to create and read requests are enough for the reasons of the policies."""
    person.types("policy", "apply", written(person, "team"), "--for-group", "system:authenticated")
    person.types("role", "new", "asker", "--allow", "create,get certificatesigningrequests")
    person.types("grant", "asker", "--user", "carol")
    carol = somebody(person, "carol", server)

    carol.types("csr", "new", "team-a", "--group", "operators", "--for", "1h")
    shown = carol.types("csr", "show", "team-a").stdout
    waited = carol.types("csr", "fetch", "team-a", "--wait", "3s", code=1).stderr

    reason = "policy team: organizations"
    assert reason in " ".join(shown.split())
    assert [reason in line for line in waited.splitlines()] == [True, True]
    assert "operators" in shown
    assert carol.types("policy", "list", code=1).stderr  # its patterns stay hidden


def test_role_of_ones_own_is_limited_to_a_signer(person: Person, server: Server) -> None:
    """A copied approver approves for that signer alone; without a right on signers nothing is
    limited.
    """
    person.types("ca", "new", "web", "--signer", "example.com/web")
    narrow = ("--like", "certificate-approver", "--signer", "example.com/web")
    made = person.types("role", "new", "web-approver", *narrow)
    person.types("grant", "web-approver", "--user", "dave")
    dave = somebody(person, "dave", server)
    person.types(
        "csr", "new", "w", "--serving", "--signer", "example.com/web", "--dns", "w.example"
    )
    person.types("csr", "new", "c")

    dave.types("csr", "approve", "w")
    refused = dave.types("csr", "approve", "c", code=1).stderr
    wrong = ("role", "new", "x", "--like", "certificate-requester", "--signer", "example.com/web")

    assert (
        made.stdout
        == "created web-approver; grant it with: orchid grant web-approver --user NAME\n"
    )
    assert 'not permitted to approve requests with signerName "orch.io/orch-apiserver' in refused
    assert "none of the copied roles has rights on signers" in person.types(*wrong, code=2).stderr
    assert "example.com/web" in person.types("role", "show", "web-approver").stdout
    assert "web-approver" in person.types("role", "list", "-o", "name").stdout
    assert (
        person.types("role", "delete", "--yes", "web-approver").stdout == "deleted web-approver\n"
    )


def test_limited_revoker_revokes_no_tokens(person: Person) -> None:
    """Of the special verbs a copy has only those on its signers."""
    narrow = ("--like", "credential-revoker", "--signer", "example.com/*")
    rules = person.gets("role", "new", "r", *narrow)["rules"]

    revoking = [rule for rule in rules if "revoke" in rule["verbs"]]
    assert [(rule["resources"], rule["resourceNames"]) for rule in revoking] == [
        (["signers"], ["example.com/*"])
    ]


def test_every_document_of_a_file_is_applied(person: Person) -> None:
    """Also those of a List; nothing of a file with a mistake."""
    both = person.home / "both.yaml"
    both.write_text("---".join(Path(written(person, name)).read_text() for name in ("x1", "x2")))

    made = person.types("policy", "apply", str(both), "--for-group", "developers")
    again = person.gets("policy", "apply", str(both))
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": again})
    as_list = person.types("policy", "apply", "-", given=listed)

    assert made.stdout.splitlines() == [
        "created x1", "used by group developers", "created x2", "used by group developers"
    ]  # fmt: skip
    assert [one["metadata"]["name"] for one in again] == ["x1", "x2"]
    assert as_list.stdout == "unchanged: x1\nunchanged: x2\n"


def test_a_file_with_other_objects_changes_nothing(person: Person) -> None:
    """Their kinds are named; so are two policies of one name, and two where one is tested."""
    policy = Path(written(person, "x3")).read_text()
    account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n"

    mixed = person.types("policy", "apply", "-", given=f"{policy}---\n{account}", code=2)
    twice = person.types("policy", "apply", "-", given=f"{policy}---{policy}", code=2)
    flags = ("--request", "none.csr", "--signer", "example.com/web")
    tested = person.types("policy", "test", "-", *flags, given=f"{policy}---{policy}", code=2)

    assert "ServiceAccount: orchid policy takes only ApprovalPolicy" in mixed.stderr
    assert "two policies have the same name" in twice.stderr
    assert "2 policies; test one at a time" in tested.stderr
    person.types("policy", "show", "x3", code=1)
