"""`orchid policy`: which files it takes, what it sends, and what it prints."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchid.features.approving.commands.policy import LARGEST
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
GROUP = ORCH.identity
POLICIES = f"/apis/{GROUP}/v1/approvalpolicies"
REVIEWS = f"/apis/{GROUP}/v1/approvalreviews"
SPEC = {"signerNames": ["s"], "otherwise": "Deny"}


@pytest.fixture
def server() -> Server:
    made = Server()
    made.on("POST", POLICIES, lambda sent: sent, 201)
    made.on("PUT", f"{POLICIES}/web", lambda sent: sent)
    return made


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    Path("request.pem").write_text("PEM")
    with commands(server, tmp_path) as made:
        yield made


def policy(name: str = "web", version: str = "v1", **spec: Any) -> Any:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ApprovalPolicy",
        "metadata": {"name": name, "resourceVersion": "7"},
        "spec": {**SPEC, **spec},
    }


def file_of(*documents: Any) -> str:
    text = "\n---\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents)
    Path("policy.yaml").write_text(text)
    return "policy.yaml"


@pytest.mark.parametrize(
    ("stored", "done", "verb"),
    [
        (None, "created web", "POST"),
        (policy(otherwise="x"), "replaced web", "PUT"),
        (policy(), "unchanged: web", "PUT"),
    ],
)
def test_a_policy_is_created_or_replaced(  # noqa: PLR0917 -- the columns of the table
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], stored: Any, done: str, verb: str
) -> None:
    """In the version that was read, so that no change by others is lost; strictly."""
    if stored:
        server.get(f"{POLICIES}/web", stored)

    assert run("policy", "apply", file_of(policy(version="v1alpha1"))) == 0

    (sent,) = server.sent(verb)
    assert sent["spec"] == SPEC
    assert sent["apiVersion"] == f"{GROUP}/v1"
    assert capsys.readouterr().out == f"{done}\n"
    assert sent["metadata"]["resourceVersion"] == "7"


def test_every_policy_of_a_file_is_applied(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several documents, or of a list; another version is left to the server."""
    both = {"kind": "List", "items": [policy("a"), policy("b", "v9")]}
    assert run("policy", "apply", file_of(policy("a"), policy("b"))) == 0
    assert run("policy", "apply", file_of(both), "-o", "json") == 0

    names = [sent["metadata"]["name"] for sent in server.sent("POST")]
    assert names == ["a", "b", "a", "b"]
    assert server.sent("POST")[-1]["apiVersion"] == f"{GROUP}/v9"
    assert "created a\ncreated b\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("documents", "text"),
    [
        ((policy(), policy()), "two policies have the same name"),
        (({**policy(), "kind": "Role"},), "Role: orchid policy takes only"),
        (("- a",), "no object: orchid policy takes only"),
        (({"kind": "List", "items": []},), "has no ApprovalPolicy"),
        (({**policy(), "metadata": {}},), "a policy has no name"),
        (({**policy(), "metadata": {"name": 7}},), "a policy has no name"),
        (("{",), "policy.yaml: "),
        (('{"kind": "ApprovalPolicy", "kind": "ApprovalPolicy"}',), "occurs twice"),
        (("#" * (LARGEST + 1),), "is too large"),
    ],
)
def test_each_refusal_of_a_file(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], documents: Any, text: str
) -> None:
    assert run("policy", "apply", file_of(*documents)) == 2

    assert text in capsys.readouterr().err
    assert not server.sent("POST")
    assert run("policy", "apply", "gone.yaml") == 2


def test_a_policy_that_cannot_be_read_is_not_made(server: Server, run: Run) -> None:
    server.get(f"{POLICIES}/web", {"message": "no"}, 403)

    assert run("policy", "apply", file_of(policy())) == 1
    assert not server.sent("POST")


def test_policies_are_listed_and_shown(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they can be applied elsewhere."""

    def with_ready(status: str) -> Any:
        return {**policy(), "status": {"conditions": [{"type": "Ready", "status": status}]}}

    other = {**policy("other"), "spec": {}}
    server.listed(POLICIES, with_ready("True"), with_ready("False"), other)
    server.get(f"{POLICIES}/web", with_ready("True"))

    assert run("policy", "list") == 0
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [
        ["web", "s", "Deny", "yes"],
        ["web", "s", "Deny", "no"],
        ["other", "any", "leave", "no"],
    ]
    assert run("policy", "show", "web") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"apiVersion: {GROUP}/v1\nkind: ApprovalPolicy\n")
    assert "resourceVersion" not in shown
    assert "otherwise: Deny" in shown


STATUS = {
    "outcome": "Approve",
    "message": "because",
    "policies": [
        {
            "name": "web",
            "selected": True,
            "usable": False,
            "checks": [{"field": "names", "value": "x", "allowed": False, "message": "too many"}],
        },
        {"name": "other", "selected": False, "usable": False, "message": "not its signer"},
        {
            "name": "third",
            "selected": True,
            "usable": True,
            "checks": [{"field": "key", "allowed": True}],
        },
    ],
}


def test_an_explanation_has_each_check(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for another requester, if one is named."""
    server.on("POST", REVIEWS, {"status": STATUS})

    assert run("policy", "explain", "r") == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Outcome: Approve" in rows
    assert "Why: because" in rows
    assert rows[-4] == "web use no the requester may not use this policy"
    assert rows[-3] == "names x no too many"
    assert rows[-2] == "other none not its signer"
    assert rows[-1] == "third key yes"
    assert run("policy", "explain", "r", "--user", "bob", "--group", "dev") == 0
    assert run("policy", "explain", "r", "--group", "dev") == 2
    plain, other = [sent["spec"] for sent in server.sent("POST")]
    assert plain == {"requestName": "r"}
    assert other == {"requestName": "r", "user": {"username": "bob", "groups": ["dev"]}}


@pytest.mark.parametrize(("outcome", "code"), [("Approve", 0), ("Deny", 1), ("Leave", 1)])
def test_a_policy_is_tested_with_a_request(
    server: Server, run: Run, outcome: str, code: int
) -> None:
    """Nothing is stored; the exit code is the outcome."""
    server.on("POST", REVIEWS, {"status": {**STATUS, "outcome": outcome}})
    flags = ("--request", "request.pem", "--usage", "client auth", "--for", "1h")

    assert run("policy", "test", file_of(policy()), *flags) == code

    (sent,) = server.sent("POST")
    assert sent["kind"] == "ApprovalReview"
    assert sent["spec"] == {
        "request": base64.b64encode(b"PEM").decode(),
        "signerName": "s",
        "usages": ["client auth"],
        "policy": SPEC,
        "expirationSeconds": 3600,
    }


@pytest.mark.parametrize(
    ("signers", "flags", "signer"),
    [
        (["s", "x.io/*"], (), "s"),
        (["s", "t"], ("--signer", "t"), "t"),
        (["s", "t"], (), ""),
        (["x.io/*"], (), ""),
        ([], (), ""),
    ],
)
def test_the_signer_of_a_test_is_that_of_the_policy(
    server: Server, run: Run, signers: list[str], flags: Any, signer: str
) -> None:
    """If it names one alone."""
    server.on("POST", REVIEWS, {"status": STATUS})
    file = file_of(policy(signerNames=signers))

    assert run("policy", "test", file, "--request", "request.pem", *flags) == (0 if signer else 2)

    assert [sent["spec"]["signerName"] for sent in server.sent("POST")] == [signer] * bool(signer)


def test_one_policy_is_tested_at_a_time(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_of(policy("a"), policy("b"))

    assert run("policy", "test", file, "--request", "request.pem") == 2
    assert "has 2 policies; test one at a time" in capsys.readouterr().err
