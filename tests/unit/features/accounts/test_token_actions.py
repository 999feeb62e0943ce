"""`orchid token`: what each action sends, prints and refuses."""

import base64
import io
import json
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
TOKENS = "/api/v1/namespaces/ci/serviceaccounts/builder/token"
REVIEWS = f"/apis/{ORCH.authentication}/v1/tokenreviews"
BATCHES = f"/apis/{ORCH.identity}/v1beta1/tokenreviewbatches"
ANSWER = {"status": {"token": "abc", "expirationTimestamp": "2026-01-01T00:00:00Z"}}
LARGEST = 64 << 10


class Terminal(io.StringIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def server() -> Server:
    server = Server()
    server.on("POST", TOKENS, ANSWER, 201)
    return server


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Iterator[Run]:
    with commands(server, tmp_path) as run:
        yield run


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def token_of(**claims: Any) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "ES256", "kid": "k"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode() for part in parts), "c2ln"])


def test_a_token_is_requested(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With what was said, and nothing else; alone on standard output."""
    words = ("--audience", "a", "--audience", "b", "--for", "1h", "--bound-to", "pod/web-0")
    assert run("token", "ci/builder") == 0
    assert capsys.readouterr().out == "abc\n"
    assert run("token", "ci/builder", *words, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == ANSWER
    assert run("token", "ci/builder", "--out", tmp_path / "token") == 0

    plain, full, _ = server.sent("POST")
    assert plain["spec"] == {}
    assert (plain["kind"], plain["apiVersion"]) == ("TokenRequest", f"{ORCH.authentication}/v1")
    assert full["spec"] == {
        "audiences": ["a", "b"],
        "expirationSeconds": 3600,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web-0"},
    }
    assert (tmp_path / "token").read_text() == "abc\n"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert "abc" not in capsys.readouterr().out


@pytest.mark.parametrize(("lifetime", "code"), [("599s", 2), ("600s", 0)])
def test_a_token_lasts_ten_minutes(
    run: Run, capsys: pytest.CaptureFixture[str], lifetime: str, code: int
) -> None:
    assert run("token", "ci/builder", "--for", lifetime) == code
    assert ("--for: a token lasts at least 10m" in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (("--for", "31d"), True),
        (("--for", "30d"), False),
        (("--for", "31d", "--bound-to", "pod/a"), False),
        ((), False),
    ],
)
def test_a_long_token_is_remarked_on(
    run: Run, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], warned: bool
) -> None:
    """With the command that revokes it; the end of a bound object ends the token anyway."""
    assert run("token", "ci/builder", *words) == 0
    assert ("orchid revoke account/ci/builder" in capsys.readouterr().err) == warned


OUT = "--out is for the token of an account"
SHOW_ALONE = "with `show` alone"
EXCHANGE_ALONE = "goes with `orchid token exchange` alone"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("show", "x", "--out", "f"), OUT),
        (("review", "--out", "f"), OUT),
        (("exchange", "--out", "f"), OUT),
        (("ci/builder", "x"), SHOW_ALONE),
        (("ci/builder", "--verify"), SHOW_ALONE),
        (("review", "x"), SHOW_ALONE),
        (("review", "--verify"), SHOW_ALONE),
        (("show", "x", "--for", "1h"), "not with show"),
        (("show", "x", "--bound-to", "pod/a"), "not with show"),
        (("review", "--for", "1h"), "not with review"),
        (("review", "--bound-to", "pod/a"), "not with review"),
        *(
            ((action, *flag), EXCHANGE_ALONE)
            for action in ("ci/builder", "review")
            for flag in (
                ("--account", "a/b"),
                ("--from", "f"),
                ("--github",),
                ("--gitlab",),
                ("--explain",),
                ("--server", "https://a"),
                ("--certificate-authority", "f"),
                ("--outside-audience", "a"),
            )
        ),
    ],
)
def test_a_flag_that_would_do_nothing_is_a_mistake(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], words: Any, reason: str
) -> None:
    """Each with each action that has no use for it; no server is asked."""
    assert run("token", *words) == 2

    assert reason in capsys.readouterr().err
    assert not server.calls


@pytest.mark.parametrize(
    ("stdin", "reason"),
    [
        (io.StringIO(" \n"), "no token: standard input is empty"),
        (io.StringIO("x" * (LARGEST + 1)), "that is too long for a token"),
        (Terminal(), "no token: give one, or '-'"),
    ],
)
def test_each_refusal_of_standard_input(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stdin: io.StringIO,
    reason: str,
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)

    assert run("token", "show") == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("claims", "words", "sent"),
    [
        ({"aud": "a"}, (), ["a"]),
        ({"aud": ["a", 7, "b"]}, (), ["a", "b"]),
        ({"aud": 7}, (), []),
        ({"aud": "a"}, ("--audience", "x"), ["x"]),
    ],
)
def test_a_token_is_verified_for_its_audiences(  # noqa: PLR0917 -- the columns of the table
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], claims: Any, words: Any, sent: Any
) -> None:
    """Or for those that were named."""
    user = {"username": "ann", "groups": ["dev"]}
    status = {"authenticated": True, "user": user, "audiences": ["z"]}
    server.on("POST", REVIEWS, {"status": status}, 201)
    token = token_of(**claims)

    assert run("token", "show", token, "--verify", *words) == 0

    (review,) = server.sent("POST")
    assert review["spec"] == {"token": token, "audiences": sent}
    assert (review["kind"], review["apiVersion"]) == ("TokenReview", f"{ORCH.authentication}/v1")
    text = capsys.readouterr().out
    assert "yes, by the server" in text
    assert "ann" in text
    assert "z" in text


@pytest.mark.parametrize(
    ("error", "words", "calls"),
    [
        ("invalid bearer token", (), [["a"], []]),
        ("invalid bearer token", ("--audience", "x"), [["x"]]),
        ("it has expired", (), [["a"]]),
    ],
)
def test_an_outside_token_is_verified_for_the_audience_of_the_server(  # noqa: PLR0917 -- the columns of the table
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], error: str, words: Any, calls: Any
) -> None:
    """Only if no authenticator recognizes it for its own audiences, and none was named."""
    server.on("POST", REVIEWS, {"status": {"authenticated": False, "error": error}}, 201)

    assert run("token", "show", token_of(aud="a"), "--verify", *words) == 1

    assert [sent["spec"]["audiences"] for sent in server.sent("POST")] == calls
    assert f"REFUSED: {error}" in capsys.readouterr().out


@pytest.mark.parametrize("status", [{}, {"authenticated": "true"}])
def test_what_does_not_say_true_is_refused(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], status: Any
) -> None:
    server.on("POST", REVIEWS, {"status": status}, 201)

    assert run("token", "show", token_of(), "--verify") == 1
    assert "REFUSED: no reason given" in capsys.readouterr().out
    assert run("token", "show", token_of(), "--verify", "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["verified"] is False


def test_each_claim_is_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Times as times, and what is no text as JSON."""
    token = token_of(iss="i", sub="s", exp=0, iat=60, nbf="later", extra={"ü": 1})
    assert run("token", "show", token) == 0

    text = re.sub(" +", " ", capsys.readouterr().out)
    for part in (
        "Algorithm: ES256", "Key: k", "Issuer: i", "Subject: s", "Audiences: none",
        "1970-01-01 00:00:00 UTC", "1970-01-01 00:01:00 UTC", "later", '{"ü": 1}',
    ):  # fmt: skip
        assert part in text, part


def test_tokens_are_reviewed_in_batches(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], typed: Callable[[str], None]
) -> None:
    """By number; a line each, in the order of the lines; one that is refused is exit code 1."""
    good = {"authenticated": True, "user": {"username": "ann"}}
    bad = {"authenticated": False, "error": "expired"}

    def review(sent: Any) -> Any:
        tokens = sent["spec"]["tokens"]
        return 201, {"status": {"results": [bad if each == "b" else good for each in tokens]}}

    server.on("POST", BATCHES, review)
    typed("a\n\n" * 1000 + "b\n")
    assert run("token", "review", "--audience", "x") == 1

    first, second = server.sent("POST")
    assert (len(first["spec"]["tokens"]), second["spec"]["tokens"]) == (1000, ["b"])
    assert first["spec"]["audiences"] == ["x"]
    assert first["kind"] == "TokenReviewBatch"
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["1", "yes", "ann"]
    assert lines[1001] == ["1001", "no", "expired"]

    typed("a")
    assert run("token", "review", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == [good]


def test_a_batch_has_a_size(server: Server, run: Run, typed: Callable[[str], None]) -> None:
    """Tokens that fill a batch exactly are in one; a byte more is another."""
    good = {"authenticated": True}
    server.on(
        "POST", BATCHES, lambda sent: {"status": {"results": [good] * len(sent["spec"]["tokens"])}}
    )
    half = "x" * (1 << 19)
    for last, sizes in ((half, [2]), (f"{half}x", [1, 1])):
        server.calls.clear()
        typed(f"{half}\n{last}")
        assert run("token", "review") == 0
        assert [len(sent["spec"]["tokens"]) for sent in server.sent("POST")] == sizes


@pytest.mark.parametrize(
    ("stdin", "reason"),
    [
        (io.StringIO("\n \n"), "no tokens: standard input is empty"),
        (Terminal(), "no tokens: give a file with a token a line"),
    ],
)
def test_a_review_needs_tokens(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stdin: io.StringIO,
    reason: str,
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)

    assert run("token", "review") == 2
    assert reason in capsys.readouterr().err
    assert not server.calls


def test_the_tokens_of_a_review_have_a_size(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], typed: Callable[[str], None]
) -> None:
    """A file that is no list of tokens does not fill the memory."""
    typed("x" * ((64 << 20) + 1))

    assert run("token", "review") == 2
    assert "more than 64 MiB of tokens" in capsys.readouterr().err
    assert not server.calls


def test_a_refusal_names_the_account_with_its_namespace(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name without a namespace is of the one of the kubeconfig, which the caller may not know."""
    refusal = {"kind": "Status", "message": 'serviceaccounts "builder" not found'}
    server.on("POST", TOKENS, refusal, 404)

    assert run("token", "ci/builder") == 1
    assert capsys.readouterr().err == 'orchid: ci/builder: serviceaccounts "builder" not found\n'
