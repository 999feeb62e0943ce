"""Output of commands: tables, facts and JSON, for people on a terminal and for pipes.

On a terminal tables are drawn by rich, with colours unless NO_COLOR is set; without rich, or into a
pipe, they are plain columns. Control characters in text of others (names, subjects, messages) are
escaped, so that it cannot control the user's terminal.

A command fails with `Complaint`: one line for the person, and an exit code.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REFUSED = 1
USAGE = 2

GAP, EDGES = 3, 2  # blanks between the columns of a drawn table, and at its sides
INDENT = 2  # before text on a line of its own
LEAST_ROOM = 24  # for a column whose longest names are on lines of their own
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet evaluates text that begins with one
COLOURS = {"good": "green", "bad": "red", "waiting": "yellow", "": ""}


class Complaint(Exception):
    """An expected failure; the message is for the user of the command."""

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text)
        self.code = code


def say(text: str) -> None:
    """Print the result on standard output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise Complaint(f"cannot write the output: {error.strerror}") from None


def discard_output() -> None:
    """Without this Python would complain about what it could not write, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def remark(text: str) -> None:
    """Print a remark for people on standard error."""
    print(text, file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    """Print a value as JSON."""
    import json

    say(json.dumps(value, indent=2, ensure_ascii=False))


def say_csv(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows for a spreadsheet. Others chose the texts, so none of them may be a formula."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    for row in rows:
        cells = [each.text if isinstance(each, Cell) else str(each) for each in row]
        writer.writerow([f"'{cell}" if cell.startswith(FORMULAS) else cell for cell in cells])
    say(text.getvalue().rstrip("\n"))


def print_for_programs(form: str, value: Any) -> bool:
    """Print a value in a format for programs; False if the format is for people."""
    value = without_managed_fields(value)
    if form == "json":
        say_json(value)
    elif form == "yaml":
        from orchid.kernel.wire.codec import yaml_text

        say(yaml_text.dump(value).decode().rstrip("\n"))
    elif form == "name":
        for item in value if isinstance(value, list) else [value]:
            say(name_of(item))
    else:
        return False
    return True


def without_managed_fields(value: Any) -> Any:
    """The value without `managedFields` of its objects, as kubectl prints them."""
    if isinstance(value, list):
        return [without_managed_fields(each) for each in value]
    if isinstance(value, dict):
        shown = {name: each for name, each in value.items() if name != "managedFields"}
        return {name: without_managed_fields(each) for name, each in shown.items()}
    return value


def name_of(one: Mapping[str, Any]) -> str:
    """An object's name as commands take it: NAMESPACE/NAME, or the name alone."""
    about = one.get("metadata") or {}
    namespace, name = about.get("namespace", ""), str(about.get("name", ""))
    return f"{namespace}/{name}" if namespace else name


def printable(text: object) -> str:
    """The text with all characters escaped that could move a cursor or reorder a line."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    from unicodedata import category

    return "".join(each if category(each)[0] != "C" else _spelled(each) for each in shown)


def _spelled(character: str) -> str:
    number = ord(character)
    if number <= 0xFF:  # noqa: PLR2004 -- the last that two digits can name
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 -- as above


class Cell:
    """A text with a meaning that a terminal shows as a colour: good, bad or waiting."""

    __slots__ = ("mood", "text")

    def __init__(self, text: object, mood: str = "") -> None:
        self.text = printable(text)
        self.mood = mood

    def __repr__(self) -> str:
        return f"Cell({self.text!r}, {self.mood!r})"


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    *,
    is_wide: bool = False,
) -> None:
    """Print rows under titles; `empty` on standard error if there are none.

    A wide table is not wrapped. Any other fits the terminal: the last column wraps between words;
    else a few long names get a line of their own; where that is not enough either, a row is shown
    as facts. So no name is broken.
    """
    cells = [[each if isinstance(each, Cell) else Cell(each) for each in row] for row in rows]
    if not cells:
        remark(empty)
    elif is_wide or not _draw(titles, cells):
        say(columns([list(titles), *([cell.text for cell in row] for row in cells)]))


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print attributes, one per line; a list gets a line for each member."""
    lines: list[tuple[str, Cell]] = []
    for name, value in pairs:
        members = list(value) if isinstance(value, (list, tuple)) else [value]
        for index, member in enumerate(members):
            cell = member if isinstance(member, Cell) else Cell(member)
            lines.append((f"{name}:" if index == 0 else "", cell))
    console = _console()
    if console is None:
        say(columns([[name, cell.text] for name, cell in lines]))
        return
    from rich.text import Text

    width = max((len(name) for name, _ in lines), default=0)
    for name, cell in lines:
        line = Text(f"{name:<{width}}  ", style="bold")
        text = Text(cell.text, style=COLOURS[cell.mood] or "not bold")
        if " " not in cell.text and len(line) + len(text) > console.width >= len(text) + INDENT:
            console.print(Text(name, style="bold"))  # text to copy is not wrapped
            line = Text(" " * INDENT)
        console.print(line.append(text), soft_wrap=True)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text, each column as wide as its widest entry."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _draw(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bool:
    console = _console()
    if console is None:
        return False
    texts = [list(titles), *([cell.text for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    longest_word = max(len(word) for text in texts for word in text[-1].split() or [""])
    if sum(widths[:-1]) + GAP * (len(widths) - 1) + EDGES + longest_word > console.width:
        if _draw_ragged(console, titles, rows, widths):
            return True
        for row in rows:
            filled = [(name, cell) for name, cell in zip(titles, row, strict=True) if cell.text]
            facts((name.capitalize(), cell) for name, cell in filled)
            say("")
        return True
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in titles[:-1]:
        drawn.add_column(title, no_wrap=True)
    drawn.add_column(titles[-1])
    for row in rows:
        drawn.add_row(*(Text(cell.text, style=COLOURS[cell.mood]) for cell in row))
    console.print(drawn)
    return True


def _draw_ragged(
    console: Any, titles: Sequence[str], rows: Sequence[Sequence[Cell]], widths: list[int]
) -> bool:
    """Give the widest column the remaining width; after a longer name the line ends.

    False if there is too little room, or a name would not fit even so.
    """
    from rich.text import Text

    long = max(range(len(widths) - 1), key=widths.__getitem__, default=0)
    before = sum(widths[:long]) + GAP * long
    room = console.width - sum(widths) + widths[long] - GAP * (len(widths) - 1) - EDGES
    if room < LEAST_ROOM or before + widths[long] + EDGES > console.width:
        return False
    widths = [*widths[:long], room, *widths[long + 1 :]]
    for number, row in enumerate(([Cell(title) for title in titles], *rows)):
        line = Text(" ", style="" if number else "bold")
        for cell, width in zip(row, widths, strict=True):
            line.append(cell.text, style=COLOURS[cell.mood])
            line.append(" " * (width - len(cell.text) + GAP))
            if len(cell.text) > width:
                line.append("\n" + " " * (before + room + GAP + 1))
        line.rstrip()
        console.print(line, soft_wrap=True)
    return True


def _console() -> Any:
    """A console of rich if there are a terminal and rich; it honours NO_COLOR by itself."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False, markup=False, emoji=False)
