"""Tables, facts and the taming of what others wrote."""

import json
import re
import sys

import pytest

from orchid.kernel.terminal.output import (
    Cell,
    columns,
    facts,
    print_for_programs,
    printable,
    say_csv,
    table,
)


class Terminal:
    """Standard output that says it is a terminal, and what was written there."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def begin(self) -> None:
        """To be called by the test: what is standard output in a fixture is another object."""
        self._monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    @property
    def text(self) -> str:
        return self._capsys.readouterr().out


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal(capsys, monkeypatch)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Grüße, 世界", "Grüße, 世界"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r", "a\\x0ab\\x0d"),
        ("\u202egpj", "\\u202egpj"),
        ("\udc80", "\\udc80"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    """Control characters in a request do not reach the terminal of its reader."""
    assert printable(text) == shown


def test_a_pipe_gets_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Each column is as wide as its widest entry, and no line ends in blanks."""
    table(("NAME", "STATE"), [("alice", Cell("Issued", "good")), ("b", "")], empty="none")

    assert capsys.readouterr().out == "NAME   STATE\nalice  Issued\nb\n"


def test_an_empty_table_leaves_the_pipe_empty(capsys: pytest.CaptureFixture[str]) -> None:
    """A program counts no lines, a person reads why."""
    table(("NAME",), [], empty="no requests")

    out, err = capsys.readouterr()
    assert (out, err) == ("", "no requests\n")


def test_a_fact_with_several_values_takes_several_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only the first line has the name."""
    facts([("User", "me"), ("Groups", ["a", "b"])])

    assert capsys.readouterr().out == "User:    me\nGroups:  a\n         b\n"


def test_a_terminal_gets_colours(terminal: Terminal) -> None:
    """Good values are green."""
    terminal.begin()

    table(("STATE",), [(Cell("Issued", "good"),)], empty="")

    assert "\x1b[32mIssued" in terminal.text


def test_no_color_is_honoured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR there are no colors."""
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.begin()

    table(("STATE",), [(Cell("Issued", "good"),)], empty="")

    shown = terminal.text
    assert "Issued" in shown
    assert "\x1b[3" not in shown


def test_markup_in_a_value_is_only_text(terminal: Terminal) -> None:
    """A subject that looks like rich's own markup is shown as it is."""
    terminal.begin()

    facts([("Subject", "[red]CN=x[/red] :smile:")])

    assert "[red]CN=x[/red] :smile:" in terminal.text


def test_without_rich_a_terminal_gets_plain_text(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich is an extra; nothing depends on it."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal.begin()

    table(("STATE",), [(Cell("Issued", "good"),)], empty="")

    assert terminal.text == "STATE\nIssued\n"


def test_columns_of_nothing() -> None:
    """No rows, no text."""
    assert columns([]) == ""


@pytest.mark.parametrize("width", [20, 40, 60, *range(70, 90), 120])
def test_no_name_is_broken_in_two(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """A name can be copied from the terminal, however narrow it is."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    names = ("system:serviceaccount:ci:builder", "kubernetes.io/kube-apiserver-client")
    terminal.begin()

    table(("NAME", "SIGNER", "WHY"), [(*names, "it was asked for by somebody else")], empty="")

    shown = terminal.text
    assert all(name in shown for name in names)
    assert "somebody" in shown


def test_wide_tables_are_as_wide_as_they_are(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide output has one line per row."""
    monkeypatch.setenv("COLUMNS", "20")
    terminal.begin()

    table(("A", "B"), [("x" * 30, "y" * 30)], empty="", is_wide=True)

    assert f"{'x' * 30}  {'y' * 30}" in terminal.text


def plain(text: str) -> list[str]:
    """Lines without what makes them bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_a_few_long_names_do_not_stretch_a_table(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others keep their lines; after a long one the row goes on below, in its columns."""
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.begin()

    table(("NAME", "RULES", "AGE"), [("view", "2", "1h"), ("system:" + "x" * 40, "1", "2h")], "")

    assert [line.rstrip() for line in plain(terminal.text)] == [
        " NAME" + " " * 33 + "RULES   AGE",
        " view" + " " * 33 + "2       1h",
        " system:" + "x" * 40,
        " " * 38 + "1       2h",
    ]


def test_a_value_to_be_copied_is_not_broken_in_two(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fingerprint that does not fit beside its name is printed below it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.begin()

    facts([("Revocation lists", "yes"), ("SHA-256", "a" * 64)])

    assert plain(terminal.text) == [
        "Revocation lists:  yes",
        "SHA-256:",
        "  " + "a" * 64,
    ]


def test_csv_is_read_by_a_spreadsheet_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Quotes and commas are quoted; a text of others is never a formula."""
    rows = [(Cell("a,b", "good"), 'say "x"'), ("=HYPERLINK(1)", "-2"), ("@x", "")]

    say_csv(("name", "value"), rows)

    assert capsys.readouterr().out == (
        'name,value\n"a,b","say ""x"""\n\'=HYPERLINK(1),\'-2\n\'@x,\n'
    )


def test_managed_fields_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As in kubectl: of an object, of those in a list, and of one inside another."""
    one = {"metadata": {"name": "a", "managedFields": [{"manager": "orchid"}]}, "spec": {"x": [1]}}

    print_for_programs("json", [one, {"request": one}])

    plain = {"metadata": {"name": "a"}, "spec": {"x": [1]}}
    assert json.loads(capsys.readouterr().out) == [plain, {"request": plain}]
    assert "managedFields" in one["metadata"]
