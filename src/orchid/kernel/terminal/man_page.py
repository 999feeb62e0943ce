"""Manual pages (man(7)), made from the declarations of the flags and the help.

`pages(parser)` returns one page for the program and one for each command, by file name; the name of
an action, like orchid-csr-new, leads to the page of its command. `make man` writes them. Nothing
here knows a command.
"""

import argparse
import re
from collections.abc import Iterator

from orchid.kernel.base.version import __version__
from orchid.kernel.terminal.parser_tree import subparsers

SECTION = 1


def pages(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The text of every page, by the name of its file."""
    texts = {f"{parser.prog}.{SECTION}": page(parser)}
    for name, command in subparsers(parser).items():
        texts[f"{parser.prog}-{name}.{SECTION}"] = page(command)
        for action in subparsers(command):
            shown = f".so man{SECTION}/{parser.prog}-{name}.{SECTION}\n"
            texts[f"{parser.prog}-{name}-{action}.{SECTION}"] = shown
    return texts


def page(parser: argparse.ArgumentParser) -> str:
    """A page: name, synopsis, description and options."""
    title = parser.prog.replace(" ", "-")
    description = parser.description or ""
    lines = [
        f'.TH "{title.upper()}" {SECTION} "" "orchid {__version__}" "Orchid"',
        ".nh",  # a hyphenated word cannot be copied
        ".ad l",
        ".SH NAME",
        f"{_escaped(title)} \\- {_escaped(description.rstrip('.'))}",
        ".SH SYNOPSIS",
        *_verbatim(_usage(parser)),
    ]
    if parser.epilog:
        lines += [".SH DESCRIPTION", *_verbatim(parser.epilog)]
    lines += _options(parser)
    for each in subparsers(parser).values() if " " in parser.prog else ():
        lines += [f".SH {_escaped(each.prog.rpartition(' ')[2].upper())}"]
        lines += [_escaped(each.description or ""), ".PP", *_verbatim(_usage(each))]
        lines += _options(each, heading=".PP")
    lines += [".SH EXIT STATUS", "0 success; 1 refused or failed; 2 usage error"]
    return "\n".join((*lines, ""))


def _usage(parser: argparse.ArgumentParser) -> str:
    return parser.format_usage().removeprefix("usage: ").rstrip("\n")


def _options(parser: argparse.ArgumentParser, heading: str = ".SH OPTIONS") -> list[str]:
    lines = [heading]
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        lines += [".TP", f"\\fB{_escaped(formatter._format_action_invocation(action))}\\fR"]
        if action.help:
            lines.append(_escaped(formatter._expand_help(action)))
    return lines


def _verbatim(text: str) -> Iterator[str]:
    yield ".nf"
    yield from map(_escaped, text.splitlines())
    yield ".fi"


def _escaped(text: str) -> str:
    """Text escaped for roff: no escapes, no requests, dashes that can be copied."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    plain = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in plain)
    return re.sub(r"^([.'])", r"\\&\1", plain)
