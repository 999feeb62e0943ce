"""Mistyped commands: the command line suggests the probable one."""

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
    assert "One of: new, list, show" in error


def test_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Related commands are listed together."""
    cli.main([])

    shown = capsys.readouterr().out
    for title, commands in cli.GROUPS.items():
        part = shown[shown.index(f"\n{title.lower()}:\n") :].split("\n\n")[0]
        assert [f"  {command.name} " in part for command in commands] == [True] * len(commands)
