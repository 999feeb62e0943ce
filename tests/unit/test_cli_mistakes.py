"""Mistyped commands: the command line suggests the probable one."""

from pathlib import Path
from typing import Any

import pytest

from orchid import cli


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["statsu"], "did you mean status?"),
        (["csr", "aprove", "alice"], "did you mean approve?"),
        (["csr", "new", "alice", "--gruop", "x"], "did you mean --group?"),
        (["serve", "--lisen=127.0.0.1:1"], "did you mean --listen?"),
    ],
)
def test_mistyped_word_gets_a_suggestion(
    typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command, an action, a flag, and a flag with its value."""
    with pytest.raises(SystemExit) as ended:
        cli.main(typed)

    assert ended.value.code == 2
    assert meant in capsys.readouterr().err


def test_suggestion_is_not_below_pages_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """`orchid serve` has a hundred flags: an error about one does not list them all."""
    with pytest.raises(SystemExit):
        cli.main(["serve", "--lisen", "127.0.0.1:1"])

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "usage: orchid serve [FLAG]..., see orchid serve --help",
        "orchid serve: error: unrecognized arguments: --lisen 127.0.0.1:1; did you mean --listen?",
    ]


@pytest.mark.parametrize("words", [["--verify", "a.b.c"], ["a.b.c", "--verify"]])
def test_word_behind_a_flag_is_taken(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`orchid token show --verify TOKEN`, in any order."""
    chosen: list[Any] = []
    monkeypatch.setattr(cli, "_run", lambda given: chosen.append(given) or 0)

    assert cli.main(["token", "show", *words]) == 0
    assert (chosen[0].token, chosen[0].verify) == ("a.b.c", True)


def test_word_with_a_default_is_taken_behind_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    monkeypatch.setattr(cli, "_run", lambda given: chosen.append(given) or 0)

    assert cli.main(["revoke", "lift", "--yes", "user-x"]) == 0
    assert chosen[0].name == "user-x"


def test_second_word_behind_a_flag_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """Only one is expected there."""
    with pytest.raises(SystemExit):
        cli.main(["token", "show", "--verify", "a.b.c", "d.e.f"])

    assert "unrecognized arguments: d.e.f" in capsys.readouterr().err


def test_word_like_no_other_gets_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is guessed where nothing is close."""
    with pytest.raises(SystemExit):
        cli.main(["csr", "zzzzzz"])

    error = capsys.readouterr().err
    assert "did you mean" not in error
    assert "choose from new, list, show" in error


def test_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Related commands are listed together."""
    cli.main([])

    shown = capsys.readouterr().out
    for title, commands in cli.GROUPS.items():
        part = shown[shown.index(f"\n{title.lower()}:\n") :].split("\n\n")[0]
        assert [f"  {command.name} " in part for command in commands] == [True] * len(commands)


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: x}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
MISTAKES: dict[str, tuple[int, str]] = {
    # Words
    "csr": (2, "the following arguments are required: ACTION"),
    "csr new": (2, "the following arguments are required: NAME"),
    "csr new ../x --kubeconfig k": (2, "'../x' cannot be the name of a request"),
    "csr new alice --for 3x": (2, "'3x' is not a duration, like 90m, 24h or 7d"),
    "csr list -o xml": (2, "unknown value 'xml'; choose from text, wide, json, yaml, name, csv"),
    "issued --expires-within soon": (2, "'soon' is not a duration, like 90m, 24h or 7d"),
    "csr renew a --cert text --kubeconfig k": (2, "text cannot be renewed"),
    "token show x --out f": (2, "--out is for the token of an account"),
    "token a/b/c --kubeconfig k": (2, "'a/b/c' is not NAMESPACE/ACCOUNT"),
    "token show nonsense": (2, "that is not a JSON web token: it does not have three parts"),
    "revoke nonsense --kubeconfig k": (2, "'nonsense' is none of csr/NAME, cert/SERIAL, token"),
    "role new x --kubeconfig k": (2, "what does it allow? give --like or --allow"),
    "role new x --allow secrets --kubeconfig k": (2, "'secrets' is not like 'get,list secrets'"),
    "completion fish2": (2, "did you mean fish?"),
    "--verson": (2, "did you mean --version?"),
    "key new text": (2, "text is already there"),
    "csr new a --ip 1.2.3 --signer e.com/a --kubeconfig k": (2, "'1.2.3' does not appear to be an"),
    "grant view --kubeconfig k": (2, "to whom? give --user, --group or --account"),
    "host place a b/c --kubeconfig k": (2, "name what the host gets: --audience, --api or"),
    "revoke user/a --before soon --kubeconfig k": (2, "'soon' is no time, like 2026-"),
    "token exchange --account a/b --github --kubeconfig k": (2, "`id-token: write`"),
    "policy apply text --kubeconfig k": (2, "text: yaml: line 1"),
    "agent --once --config nowhere": (2, "cannot read nowhere: No such file or directory"),
    # The server that is meant
    "csr list": (2, "no kubeconfig: neither --kubeconfig nor $KUBECONFIG is given"),
    "csr list --kubeconfig nowhere": (2, "--kubeconfig: there is no file nowhere"),
    "csr list --kubeconfig text": (2, "text is not a kubeconfig"),
    "csr list --kubeconfig k --context b": (2, "there is no context named 'b'"),
    "csr list --kubeconfig k": (1, "nothing listens at https://127.0.0.1:1, the server of k"),
    # Credentials
    "kubeconfig --kubeconfig k": (2, "either --account or --cert (with --key) is needed"),
    "kubeconfig --cert text --key text --kubeconfig k": (2, "run: chmod 0600 text"),
    "kubeconfig --exec --cert text --key k --kubeconfig k": (2, "--exec with --cert needs --out"),
    "credential": (2, "either --account, or --cert and --key, is needed"),
    # The server itself
    "serve --listen nonsense": (2, "'nonsense' is not an address and a port, like 127.0.0.1:6443"),
    "serve --config nowhere": (2, "--config: No such file or directory: nowhere"),
    "serve --config misspelt.toml": (2, "there is no setting 'listn'; did you mean listen?"),
    "serve --config text": (2, "text is not TOML"),
    "serve --data-dir text": (2, "--data-dir: text is not a directory"),
    "serve --naming kube": (2, "--naming: 'kube' is none of orch, kubernetes"),
    "serve --history 5": (2, "--history: '5' is not a duration, like 90s or 5m"),
    "serve --tls-cert-file text": (2, "--tls-cert-file and --tls-private-key-file go together"),
    "serve --authentication-config text": (2, "--authentication-config: line 1 is not YAML"),
    "serve --workers 0": (2, "--workers: at least 1 is needed"),
    # Its files
    "doctor --data-dir nowhere": (2, "there is no directory nowhere"),
    "backup copy": (2, "there is no orchid-data/orchid.db; say where it is with --data-dir"),
    "restore nowhere": (2, "there is no file nowhere"),
    "restore text": (1, "text cannot be read as an Orchid data file"),
    "migrate --from a --to b": (2, "one side must be a data directory and the other etcd"),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_mistake_of_a_person_gets_one_clear_sentence(
    typed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It names what is wrong and, where possible, what to do; never a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "ACTIONS_ID_TOKEN_REQUEST_URL"):
        monkeypatch.delenv(name, raising=False)
    Path("k").write_text(KUBECONFIG)
    Path("k").chmod(0o600)
    Path("text").write_text("no file that a command expects: [")
    Path("misspelt.toml").write_text('listn = "127.0.0.1:6443"\n')
    code, words = MISTAKES[typed]

    try:
        ended: object = cli.main(typed.split())
    except SystemExit as left:
        ended = left.code

    error = capsys.readouterr().err
    assert ended == code, error
    assert words in error
    assert "Traceback" not in error
    assert not [line for line in error.splitlines() if line.startswith('  File "')]
