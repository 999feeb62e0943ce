"""Commands that end something for good, without a terminal: `ssh server orchid revoke …`."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.person import Person
from tests.e2e.serving import running_server

PROGRAM = """
import contextlib, io, json, sys
from orchid.cli import main
results = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        results.append((main(words), said.getvalue()))
print(json.dumps(results))
"""
POLICY = """apiVersion: identity.orch.io/v1
kind: ApprovalPolicy
metadata: {name: gone}
spec: {signerNames: [example.com/web]}
"""
MADE = (
    ("account", "new", "ci/gone"),
    ("csr", "new", "gone"),
    ("csr", "new", "issued"),
    ("csr", "approve", "issued"),
    ("csr", "fetch", "issued"),
    ("policy", "apply", "gone.yaml"),
    ("role", "new", "gone", "--allow", "get secrets"),
    ("ca", "new", "web", "--signer", "example.com/web"),
    ("bundle", "set", "gone", "../data/ca.crt"),
    ("bundle", "publish", "gone", "--bundle", "gone"),
    ("host", "new", "gone.example.com", "--out", "join.kubeconfig"),
)
# The last ones revoke what those before them need.
FINAL = (
    ("csr", "delete", "gone"),
    ("policy", "delete", "gone"),
    ("role", "delete", "gone"),
    ("role", "delete", "view"),
    ("bundle", "unpublish", "gone"),
    ("bundle", "delete", "gone"),
    ("host", "revoke", "gone.example.com"),
    ("revoke", "csr/issued"),
    ("revoke", "account/ci/gone"),
    ("revoke", "user/alice", "--certificates"),
    ("revoke", "authority/web"),
    ("revoke", "key/web-1"),
    ("account", "delete", "ci/gone"),
    ("ca", "delete", "web"),
)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "gone.yaml").write_text(POLICY)
    with running_server(tmp_path / "data") as server:
        yield Person(home, server.kubeconfig)


def typed(person: Person, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """The exit code and the messages of each, in one process, which has no terminal."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        cwd=person.home,
        env=person.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return [(code, said) for code, said in json.loads(done.stdout)]


def test_nothing_ends_without_a_terminal_or_yes(person: Person) -> None:
    """What would end is still there: with --yes, the same command succeeds."""
    made = typed(person, MADE)

    refused = typed(person, FINAL)
    revocations = person.gets("revocations")
    done = typed(person, [(*words, "--yes") for words in FINAL])

    assert [code for code, _ in made] == [0] * len(MADE), made
    for code, said in refused:
        assert code != 0
        assert "nothing was changed; on a terminal it asks, elsewhere add --yes" in said
    assert revocations == []
    assert [code for code, _ in done] == [0] * len(FINAL), done
