"""`orchid revoke` and `orchid revocations` as a person types them, against a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.e2e.test_commands import person_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests."""
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    return person_of(server, tmp_path)


def certified(person: Person, name: str) -> None:
    person.types("csr", "new", name, "--for", "24h")
    person.types("csr", "approve", name)
    person.types("csr", "fetch", name)


def revocation_of(text: str) -> str:
    return text.rpartition("revoked, by ")[2].strip()


def test_a_hold_is_made_final_by_another_reason_and_not_revoked_twice(person: Person) -> None:
    """Revoking again is a success that names the revocation: a script may repeat it."""
    certified(person, "held")
    hold = person.types("revoke", "csr/held", "--yes", "--reason", "certificateHold")
    final = person.types("revoke", "csr/held", "--yes", "--reason", "keyCompromise")
    again = person.types("revoke", "csr/held", "--yes", "--reason", "keyCompromise")

    assert f'warning: already revoked by "{revocation_of(hold.stdout)}"\n' in final.stderr
    assert f"already revoked, by {revocation_of(final.stdout)}" in again.stderr
    assert again.stdout == ""
    reasons = [one["spec"]["reason"] for one in person.gets("revocations")]
    assert sorted(reasons) == ["certificateHold", "keyCompromise"]


def test_a_hold_is_lifted_by_its_name_and_nothing_else_is(person: Person) -> None:
    """After it, the certificate can be revoked again: the revocations decide, not a mark."""
    certified(person, "lifted")
    hold = revocation_of(
        person.types("revoke", "csr/lifted", "--yes", "--reason", "certificateHold").stdout
    )
    listed = person.types("revocations", "--holds").stdout
    lifted = person.types("revoke", "lift", "--yes", hold)
    final = revocation_of(person.types("revoke", "csr/lifted", "--yes").stdout)
    refused = person.types("revoke", "lift", "--yes", final, code=1)

    assert hold in listed
    assert lifted.stdout.startswith("released cert/")
    assert "only certificateHold and revocations of users can be lifted" in refused.stderr
    person.types("revoke", "lift", "--yes", code=2)
    person.types("revoke", "csr/lifted", "--yes", "more", code=2)


def test_the_holder_revokes_their_own_certificate_and_no_other(person: Person) -> None:
    """With the certificate and its key alone, which prove who asks."""
    certified(person, "mine")
    certified(person, "other")
    pair = ("--cert", "mine.crt", "--key", "mine.key")
    refused = person.types(
        "revoke", "self", "--yes", "--cert", "mine.crt", "--key", "other.key", code=2
    )
    person.types("revoke", "csr/mine", "--yes", *pair, code=2)

    made = person.types("revoke", "self", "--yes", *pair, "--reason", "keyCompromise")
    again = person.types("revoke", "self", "--yes", *pair, code=1)

    assert "mine.crt" not in refused.stdout
    (found,) = [
        one
        for one in person.gets("revocations")
        if one["metadata"]["name"] == revocation_of(made.stdout)
    ]
    assert found["spec"]["certificate"]["requestName"] == "mine"
    assert "does not accept the credential" in again.stderr


def test_all_certificates_of_an_authority_are_revoked_by_its_name(person: Person) -> None:
    """And of a signer of the platform by its own; the list shows both."""
    person.types("ca", "new", "web", "--signer", "example.com/web")
    first = person.types("revoke", "authority/web", "--yes", "--reason", "cACompromise")
    person.types("revoke", "authority/orch.io/orch-apiserver-client", "--yes")

    lines = person.types("revocations").stdout
    assert "every certificate of the signer example.com/web issued until now" in first.stderr
    assert "authority/example.com/web" in lines
    assert "authority/orch.io/orch-apiserver-client" in lines


def test_the_revocation_of_a_token_ends_with_the_token(person: Person) -> None:
    """Its end is read from the token; the token itself is not sent."""
    person.types("account", "new", "ci/short")
    token = person.types("token", "ci/short").stdout

    made = person.types("revoke", "token", "--yes", given=token)

    found = [one for one in person.gets("revocations") if "token" in one["spec"]]
    assert revocation_of(made.stdout) == found[0]["metadata"]["name"]
    assert found[0]["status"]["expires"] == found[0]["spec"]["token"]["expires"]


def test_a_user_is_revoked_with_every_credential_and_can_come_back(person: Person) -> None:
    """The certificates that name or were requested by the user are added only on request."""
    certified(person, "jane")
    first = person.types("revoke", "user/jane", "--yes", "--reason", "keyCompromise")
    own = ("revoke", "self", "--yes", "--cert", "jane.crt", "--key", "jane.key")
    refused = person.types(*own, code=1)
    name = revocation_of(first.stdout)
    lifted = person.types("revoke", "lift", "--yes", name)
    also = person.types("revoke", "user/joe", "--yes", "--certificates")
    person.types(*own)  # jane's certificate is valid again, until she revokes it herself

    assert "1 valid certificates name or were requested by jane" in first.stderr
    assert "nauthorized" in refused.stderr
    assert lifted.stdout.strip() == "released user/jane"
    assert also.stderr.count("will revoke:") == 1
    person.types("revoke", "csr/jane", "--yes", "--certificates", code=2)
    person.types("revoke", "user/jane", "--yes", "--before", "soon", code=2)


def test_the_certificates_of_a_user_are_revoked_on_request(person: Person) -> None:
    """Each by a revocation of its own, which puts it on the revocation list."""
    certified(person, "ann")
    certified(person, "bea")

    done = person.types("revoke", "user/ann", "--yes", "--certificates")

    assert done.stderr.count("will revoke: certificate") == 1
    assert done.stdout.count("revoked, by ") == 2
