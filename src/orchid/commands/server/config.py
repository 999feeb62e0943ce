"""`orchid config show`: every setting, its value, and its source.

It takes the flags of `orchid serve` and reads the same file, so that it shows the settings of a
server with these flags. Needs no server.
"""

import argparse
import typing

import msgspec

from orchid.assembly.settings import EverySetting, written_in
from orchid.commands.server.serving_flags import add_settings, flags_of, settings_of, shown
from orchid.kernel.terminal.connection import FORMS
from orchid.kernel.terminal.output import Cell, print_for_programs, table

FLAG, FILE, DEFAULT = "flag", "file", "default"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    words = "show every setting, its value and where it came from"
    showing = actions.add_parser("show", help=words, description=f"{words.capitalize()}.")
    add_settings(showing)
    showing.add_argument("-o", "--output", choices=FORMS, default="text", help="how to show it")
    showing.add_argument("--changed", action="store_true", help="omit defaults")


def run(arguments: argparse.Namespace) -> int:
    is_changed_only = arguments.changed
    del arguments.changed
    values = settings_of(arguments).given.as_written()
    flags, written = flags_of(arguments), written_in(arguments.config)
    settings = []
    for field in msgspec.structs.fields(EverySetting):
        name = field.encode_name
        source = FLAG if name in flags else FILE if name in written else DEFAULT
        if source != DEFAULT or not is_changed_only:
            settings.append({"setting": name, "value": values[name], "from": source})
    if not print_for_programs(arguments.output, settings):
        rows = [
            (
                each["setting"],
                Cell(each["from"], "" if each["from"] == DEFAULT else "good"),
                _text(each["value"]),
            )
            for each in settings
        ]
        titles = ("SETTING", "FROM", "VALUE")
        table(titles, rows, empty="every setting has its default", is_wide=True)
    return 0


def _text(value: typing.Any) -> str:
    return shown(tuple(value) if isinstance(value, list) else value)
