"""Scripts that complete commands, from the parsers themselves."""

import subprocess
from pathlib import Path

import pytest

from orchid import cli
from orchid.commands import completion

WORDS = completion.words_of(cli.build())


def test_every_command_is_completed() -> None:
    """The table of commands and the first words are the same."""
    assert {command.name for command in cli.COMMANDS} <= set(WORDS[""].words)


def test_actions_and_flags_are_completed() -> None:
    """Two words deep, with the flags of each."""
    assert {"new", "list", "show", "approve", "deny", "fetch"} <= set(WORDS["csr"].words)
    assert {"--group", "--signer", "--kubeconfig"} <= set(WORDS["csr new"].words)
    assert "show" in WORDS["token"].words
    assert "--data-dir" in WORDS["serve"].words


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["orchid", "to"], ["token"]),
        (["orchid", "csr", "a"], ["approve"]),
        (["orchid", "csr", "new", "alice", "--gr"], ["--group"]),
        (["orchid", "completion", "z"], ["zsh"]),
    ],
)
def test_bash_completes(tmp_path: Path, typed: list[str], expected: list[str]) -> None:
    """The script is loaded and asked as bash would ask it."""
    script = tmp_path / "orchid.bash"
    script.write_text(completion.bash(WORDS))
    asked = (
        f"source {script}; COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}; "
        '_orchid; printf "%s\\n" "${COMPREPLY[@]}"'
    )

    answer = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, check=True
    )

    assert answer.stdout.split() == expected


def test_bash_completes_names_from_the_server(tmp_path: Path) -> None:
    """The script asks the program, as itself, which names there are."""
    program = tmp_path / "orchid"
    program.write_text('#!/bin/sh\necho "$*" >> asked; echo alice; echo bob; echo albert\n')
    program.chmod(0o755)
    (tmp_path / "orchid.bash").write_text(completion.bash(WORDS))
    asked = (
        "source ./orchid.bash; COMP_WORDS=(orchid csr approve al); COMP_CWORD=3; "
        '_orchid; printf "%s\\n" "${COMPREPLY[@]}"'
    )

    answer = subprocess.run(
        ["bash", "--norc", "-c", asked],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.split() == ["alice", "albert"]
    assert (tmp_path / "asked").read_text() == "completion names request\n"


def test_zsh_and_fish_get_the_same_words() -> None:
    """Every word that bash completes stands in the other scripts too."""
    zsh, fish = completion.zsh(WORDS), completion.fish(WORDS)

    assert f'"csr") following=({" ".join(WORDS["csr"].words)}); sort= ;;' in zsh
    assert "sort=request ;;" in zsh
    assert "-a '(orchid completion names request 2>/dev/null)'" in fish
    assert "complete -c orchid -n '__fish_use_subcommand' -a token" in fish
    assert (
        "complete -c orchid -n '__fish_seen_subcommand_from csr; and "
        "__fish_seen_subcommand_from new' -l group" in fish
    )
