"""The command line by itself: quick to answer, and never a traceback for what was foreseen."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchid import cli
from orchid.kernel.base.version import __version__

HEAVY = (
    "asyncio", "apsw", "cryptography", "hpack", "http.client", "msgspec", "rich", "ssl", "uvloop",
    "yaml",
)  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    """Each of these costs more than all that help needs."""
    code = (
        "import sys\nfrom orchid.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert answer.stderr.strip() == "[]"
    assert all(command.help in answer.stdout for command in cli.COMMANDS)


@pytest.mark.parametrize("command", [command.name for command in cli.COMMANDS])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` works for each, and exits with 0."""
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])

    assert ended.value.code == 0
    assert f"orchid {command}" in capsys.readouterr().out


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing typed is no mistake."""
    assert cli.main([]) == 0
    assert "certificates:" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As the package has it."""
    with pytest.raises(SystemExit):
        cli.main(["--version"])

    assert capsys.readouterr().out == f"orchid {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["help"], "csr"),
        (["help", "csr"], "usage: orchid csr "),
        (["help", "csr", "new"], "usage: orchid csr new "),
        (["version"], f"orchid {__version__}"),
    ],
)
def test_help_and_version_are_words_too(
    typed: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in kubectl and git."""
    with pytest.raises(SystemExit) as ended:
        cli.main(typed)

    assert ended.value.code == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("typed", [["--kubeconfig", "x", "status"], ["-A", "account", "list"]])
def test_a_flag_before_the_command_has_a_message(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """kubectl takes flags anywhere; here they belong to the command."""
    with pytest.raises(SystemExit) as ended:
        cli.main(typed)

    assert ended.value.code == 2
    assert f"flags come after the command: orchid COMMAND {typed[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "typed", [["nonsense"], ["csr"], ["csr", "nonsense"], ["token"], ["whoami", "--kube", "x"]]
)
def test_mistakes_in_typing_exit_with_two(typed: list[str]) -> None:
    """Abbreviated flags are mistakes too: a later flag must not change what they mean."""
    with pytest.raises(SystemExit) as ended:
        cli.main(typed)

    assert ended.value.code == 2


@pytest.mark.parametrize("typed", [["status"], ["whoami"], ["csr", "list"], ["bundle", "list"]])
def test_without_a_kubeconfig_the_places_are_named(
    typed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2 and one line that says what was looked for, and what to type."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert cli.main(typed) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "orchid serve" in error


def test_settings_that_make_no_sense_exit_with_two() -> None:
    """The server does not start, and says which setting it is."""
    answer = subprocess.run(
        [sys.executable, "-m", "orchid", "serve", "--listen", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )  # in a process of its own: a start switches garbage collection off

    assert answer.returncode == 2
    assert answer.stderr.startswith("orchid: --listen: 'nowhere'")
