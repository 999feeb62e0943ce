"""`orchid token exchange`: what it sends, prints and refuses."""

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.wire.naming import EXEC_GROUP, EXEC_INFO, EXPIRES_PARAMETER, ORCH
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
ENDPOINT = "/oauth2/token"
REVIEWS = f"/apis/{ORCH.identity}/v1alpha1/namespaces/ci/tokenexchangereviews"
ANSWER = {"access_token": "abc", "expires_in": 600}
LARGEST = 64 << 10
GITHUB_URL, GITHUB_SECRET = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was sent to the endpoint, which answers with a token."""
    sent: list[Any] = []

    def post_form(self: ServerConnection, target: str, fields: Any) -> Any:
        sent.append((target, fields, self.access))
        return ANSWER

    monkeypatch.setattr(ServerConnection, "post_form", post_form)
    return sent


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    for name in (EXEC_INFO, GITHUB_URL, GITHUB_SECRET, "ORCHID_ID_TOKEN", "MY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    Path("outside.jwt").write_text("outside\n")
    with commands(server, tmp_path) as run:
        yield lambda *words: run("token", "exchange", *words)


FILE = ("--from", "outside.jwt")


def test_an_outside_token_is_exchanged(
    run: Run, forms: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The form has the token, the audiences and the lifetime; the path has the account."""
    words = ("--account", "ci/builder", "--audience", "a", "--audience", "b", "--for", "20m")
    assert run(*FILE, *words) == 0
    assert capsys.readouterr().out == "abc\n"
    assert run(*FILE, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == ANSWER

    (target, fields, access), (plain, few, _) = forms
    assert target == f"{ENDPOINT}?account=ci/builder"
    assert plain == ENDPOINT
    values = dict(few)
    assert values["subject_token"] == "outside"
    assert values["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert values["subject_token_type"] == "urn:ietf:params:oauth:token-type:jwt"
    assert "audience" not in values
    assert EXPIRES_PARAMETER not in values
    assert [value for name, value in fields if name == "audience"] == ["a", "b"]
    assert (EXPIRES_PARAMETER, "1200") in fields
    assert not access.user  # the credential of the kubeconfig is not sent
    assert access.given_token is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("x",), "exchange takes neither TOKEN"),
        (("--verify",), "exchange takes neither TOKEN"),
        (("--bound-to", "pod/a"), "exchange takes neither TOKEN"),
        ((*FILE, "--github"), "exclude each other"),
        ((*FILE, "--gitlab"), "exclude each other"),
        (("--github", "--gitlab"), "exclude each other"),
        (("--account", "builder", *FILE), "'builder' is not NAMESPACE/NAME"),
        (("--account", "/b", *FILE), "is not NAMESPACE/NAME"),
        (("--account", "a/", *FILE), "is not NAMESPACE/NAME"),
        (("--account", "a/b/c", *FILE), "is not NAMESPACE/NAME"),
        (("--from", "gone"), "--from: "),
        (("--from", "large"), "--from: "),
        (("--from", "empty"), "no token: use --from, --github or --gitlab"),
        (("--gitlab",), "$ORCHID_ID_TOKEN is not set: add it to id_tokens"),
        (("--gitlab", "MY_TOKEN"), "$MY_TOKEN is not set"),
        (("--github",), "the job needs the permission"),
        (("--explain", *FILE), "--explain needs --account"),
        (("--explain", "--account", "builder", *FILE), "is not NAMESPACE/NAME"),
        (
            ("--server", "https://a.test", "--certificate-authority", "gone", *FILE),
            "--certificate-authority: ",
        ),
    ],
)
def test_each_refusal_of_words(
    run: Run, forms: list[Any], capsys: pytest.CaptureFixture[str], words: Any, reason: str
) -> None:
    """A mistake of the caller; nothing is sent."""
    Path("empty").write_text(" \n")
    Path("large").write_text("x" * (LARGEST + 1))

    assert run(*words) == 2

    assert reason in capsys.readouterr().err
    assert not forms


def test_standard_input_is_bounded(
    run: Run,
    forms: list[Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The longest token is sent, a longer one is not."""
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * LARGEST))
    assert run() == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * (LARGEST + 1)))
    assert run() == 2

    assert "that is too long for a token" in capsys.readouterr().err
    assert len(forms) == 1


@pytest.mark.parametrize(("words", "name"), [((), "ORCHID_ID_TOKEN"), (("MY_TOKEN",), "MY_TOKEN")])
def test_the_token_of_a_gitlab_job(
    run: Run, forms: list[Any], monkeypatch: pytest.MonkeyPatch, words: Any, name: str
) -> None:
    """From the variable that is named, or the default one."""
    monkeypatch.setenv(name, "job")

    assert run("--gitlab", *words) == 0
    assert dict(forms[0][1])["subject_token"] == "job"


@pytest.mark.parametrize(
    ("url", "secret", "reason"),
    [
        ("http://a.test/x", "s", "the job needs the permission"),
        ("https:///x", "s", "the job needs the permission"),
        ("https://a.test/x", "", "the job needs the permission"),
        ("https://a.test:port/x", "s", "is not a URL"),
    ],
)
def test_each_refusal_of_a_github_job(  # noqa: PLR0917 -- the columns of the table
    run: Run,
    forms: list[Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    secret: str,
    reason: str,
) -> None:
    """Its secret is sent by https alone, to a host."""
    monkeypatch.setenv(GITHUB_URL, url)
    monkeypatch.setenv(GITHUB_SECRET, secret)

    assert run("--github") == 2

    assert reason in capsys.readouterr().err
    assert not forms


class GitHub:
    """The token endpoint of a job, instead of a connection."""

    status, body = 200, b'{"value": "job"}'
    calls: list[tuple[Any, ...]]

    def __init__(self, host: str, port: int, **_: Any) -> None:
        self.calls.append((host, port))

    def request(self, method: str, target: str, headers: Any) -> None:
        self.calls.append((method, target, headers["Authorization"]))

    def getresponse(self) -> "GitHub":
        return self

    def read(self, _: int) -> bytes:
        return self.body

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("words", "url", "target"),
    [
        ((), "https://a.test/x?v=1", "/x?v=1&audience=https%3A%2F%2Forchid.test"),
        (("--outside-audience", "o"), "https://a.test/x", "/x?audience=o"),
    ],
)
def test_the_token_of_a_github_job(  # noqa: PLR0917 -- the columns of the table
    run: Run,
    forms: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    words: Any,
    url: str,
    target: str,
) -> None:
    """For the server, unless another audience is named; the query of the URL stays."""
    monkeypatch.setenv(GITHUB_URL, url)
    monkeypatch.setenv(GITHUB_SECRET, "s")
    monkeypatch.setattr(GitHub, "calls", [], raising=False)
    monkeypatch.setattr("http.client.HTTPSConnection", GitHub)

    assert run("--github", *words) == 0

    assert GitHub.calls == [("a.test", 443), ("GET", target, "Bearer s")]
    assert dict(forms[0][1])["subject_token"] == "job"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (403, b'{"value": "job"}', "GitHub answered with status 403 and no token"),
        (200, b'{"value": 7}', "GitHub answered with status 200 and no token"),
        (200, b"[]", "GitHub answered with status 200 and no token"),
        (200, b"{", "no token from GitHub at a.test: its answer is malformed"),
    ],
)
def test_each_bad_answer_of_github(  # noqa: PLR0917 -- the columns of the table
    run: Run,
    forms: list[Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes,
    reason: str,
) -> None:
    monkeypatch.setenv(GITHUB_URL, "https://a.test/x")
    monkeypatch.setenv(GITHUB_SECRET, "s")
    monkeypatch.setattr(GitHub, "calls", [], raising=False)
    monkeypatch.setattr(GitHub, "status", status)
    monkeypatch.setattr(GitHub, "body", body)
    monkeypatch.setattr("http.client.HTTPSConnection", GitHub)

    assert run("--github") == 1

    assert reason in capsys.readouterr().err
    assert not forms


def plugin(monkeypatch: pytest.MonkeyPatch, info: str = "") -> None:
    version = f"{EXEC_GROUP}/v1"
    monkeypatch.setenv(EXEC_INFO, info or json.dumps({"apiVersion": version}))


@pytest.mark.parametrize(
    ("metadata", "words", "audiences"),
    [
        ({"issuer": "https://i"}, (), ["https://i"]),
        ({"issuer": "https://i"}, ("--audience", "a"), ["a"]),
        ({}, (), []),
        (None, (), []),
    ],
)
def test_a_credential_plugin(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    forms: list[Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    metadata: Any,
    words: Any,
    audiences: list[str],
) -> None:
    """For the audience of the API if the server names it; with the end of the token."""
    plugin(monkeypatch)
    if metadata is not None:
        server.get("/.well-known/oauth-authorization-server", metadata)

    assert run(*FILE, *words) == 0

    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], printed["status"]["token"]) == ("ExecCredential", "abc")
    assert printed["apiVersion"] == f"{EXEC_GROUP}/v1"
    end = datetime.fromisoformat(printed["status"]["expirationTimestamp"])
    assert timedelta(minutes=5) < end - datetime.now(UTC) <= timedelta(minutes=10)
    assert [value for name, value in forms[0][1] if name == "audience"] == audiences


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ("{", "is not an ExecCredential"),
        ("{}", "is not an ExecCredential"),
        ("[]", "is not an ExecCredential"),
        ('{"apiVersion": "other/v1"}', "asks for other/v1, which is not known"),
    ],
)
def test_another_plugin_protocol_is_refused(  # noqa: PLR0917 -- the columns of the table
    run: Run,
    forms: list[Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    info: str,
    reason: str,
) -> None:
    """The token is not printed."""
    plugin(monkeypatch, info)

    assert run(*FILE) == 2

    output = capsys.readouterr()
    assert reason in output.err
    assert not output.out


def test_the_server_of_a_flag(run: Run, forms: list[Any], tmp_path: Path) -> None:
    """With its CAs; without them those of the system."""
    (tmp_path / "ca.pem").write_text("CA")

    run("--server", "https://a.test", "--certificate-authority", tmp_path / "ca.pem", *FILE)
    run("--server", "https://a.test", *FILE)

    assert [(access.server, access.authority) for _, _, access in forms] == [
        ("https://a.test", b"CA"),
        ("https://a.test", b""),
    ]


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "without --token-exchange-config"), (400, "no policy")]
)
def test_a_refused_exchange(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    reason: str,
) -> None:
    """Unauthorized means that the server exchanges nothing; else its own reason is printed."""
    answer = (status, b'{"error_description": "no policy"}')
    monkeypatch.setattr(ServerConnection, "_exchange", lambda *_: answer)

    assert run(*FILE) == 1

    output = capsys.readouterr()
    assert reason in output.err
    assert not output.out


def test_an_exchange_is_explained(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each check of each policy, and exit code 1 if none allows it; no token is printed."""
    field = {"field": "issuer", "allowed": True, "wanted": "i", "seen": "i", "message": "equal"}
    other = {"field": "subject", "allowed": False}
    status = {
        "allowed": False,
        "message": "no policy allows it",
        "policies": [{"name": "p", "checks": [field, other]}],
    }
    server.on("POST", REVIEWS, {"status": status}, 201)
    words = ("--explain", "--account", "ci/builder", "--audience", "a", *FILE)

    assert run(*words) == 1

    (sent,) = server.sent("POST")
    assert sent["spec"] == {"token": "outside", "account": "builder", "audiences": ["a"]}
    version = f"{ORCH.identity}/v1alpha1"
    assert (sent["kind"], sent["apiVersion"]) == ("TokenExchangeReview", version)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "no policy allows it"
    assert [line.split() for line in lines[2:]] == [
        ["p", "issuer", "yes", "i", "i", "equal"],
        ["p", "subject", "no"],
    ]
    assert run(*words, "-o", "json") == 1
    assert json.loads(capsys.readouterr().out) == status


def test_an_exchange_that_is_allowed(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0; without policies there is no table."""
    server.on("POST", REVIEWS, {"status": {"allowed": True}}, 201)

    assert run("--explain", "--account", "ci/builder", *FILE) == 0
    assert not capsys.readouterr().out
