"""Shells complete what the parsers understand, and the names that the server has."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchid import cli
from orchid.commands.clients import completion
from tests.system_packages import require_program


def offered(*line: str) -> list[str]:
    """The completions of a line whose last word is incomplete."""
    return completion.words(cli.build, line)


def test_every_command_is_completed() -> None:
    """The table of commands and the first words are the same."""
    assert {command.name for command in cli.COMMANDS} == set(offered(""))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("to",), ["token"]),
        (("csr", "a"), ["approve"]),
        (("csr", "new", "alice", "--gr"), ["--group"]),
        (("csr", "new", "alice", "--group", "developers", "--sig"), ["--signer"]),
        (("completion", "z"), ["zsh"]),
        (("completion", "w"), []),
        (("csr", "list", "-o", ""), ["text", "wide", "json", "yaml", "name", "csv"]),
        (("csr", "list", "--output=j"), ["--output=json"]),
        (("csr", "list", "--kubeconfig", ""), []),
        (("csr", "list", "--kubeconfig=x"), []),
        (("nonsense", "x"), []),
    ],
)
def test_words_come_from_the_parsers(line: tuple[str, ...], expected: list[str]) -> None:
    """Commands, actions, flags and choices; where a value is wanted that is a file, nothing."""
    assert offered(*line) == expected


def test_flags_are_offered_where_nothing_else_is_wanted() -> None:
    """Behind the last position, without a dash typed."""
    assert "--data-dir" in offered("serve", "")


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder with the scripts, and with an `orchid` that notes what it was asked."""
    program = tmp_path / "orchid"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"with open({str(tmp_path / 'asked')!r}, 'w') as file:\n    json.dump(sys.argv[1:], file)\n"
        "print('system:masters\\nsystem:nodes')\n"
    )
    program.chmod(0o755)
    for name, script in completion.SCRIPTS.items():
        (tmp_path / f"orchid.{name}").write_text(script)
    return tmp_path


def run(shell: Path, *command: str) -> list[str]:
    path = f"{shell}:/usr/bin:/bin"
    done = subprocess.run(
        command, cwd=shell, env={"PATH": path, "HOME": str(shell)}, capture_output=True, check=True
    )
    return done.stdout.decode().split()


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("orchid role show ", ["system:masters", "system:nodes"]),
        # A colon begins a new word for bash: what stands before it is not typed again.
        ("orchid role show system:", ["masters", "nodes"]),
        ("orchid role show --kubeconfig a=b system:m", ["masters", "nodes"]),
    ],
)
def test_bash_asks_for_the_whole_line(shell: Path, line: str, reply: list[str]) -> None:
    """The program gets the words as they were typed, and bash what is to be added to the line."""
    asked = (
        f"source ./orchid.bash; COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        '_orchid; printf "%s\\n" "${COMPREPLY[@]}"'
    )

    replies = run(shell, "bash", "--norc", "-c", asked)

    passed = json.loads((shell / "asked").read_text())
    assert replies == reply
    assert passed == ["completion", "words", *line.split(" ")]


@pytest.mark.system_package("fish")
def test_fish_asks_for_the_whole_line(shell: Path) -> None:
    """fish completes words with a colon as they are."""
    typed = "source orchid.fish; complete -C 'orchid role show --kubeconfig x system:m'"

    replies = run(shell, "fish", "--no-config", "-c", typed)

    passed = json.loads((shell / "asked").read_text())
    assert replies == ["system:masters"]
    assert passed == [
        "completion",
        "words",
        "orchid",
        "role",
        "show",
        "--kubeconfig",
        "x",
        "system:m",
    ]


def test_zsh_script_is_zsh(shell: Path) -> None:
    """Loaded without the completion system, which needs a terminal: it defines its function."""
    require_program("zsh")
    assert shutil.which("zsh")

    replies = run(
        shell, "zsh", "-f", "-c", "compdef() { print $*; }; source ./orchid.zsh; whence -w _orchid"
    )

    assert replies == ["_orchid", "orchid", "_orchid:", "function"]
