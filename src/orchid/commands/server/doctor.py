"""`orchid doctor`: problems of an installation, now or soon, with advice.

Takes the settings of `orchid serve` (most often just `--config FILE`), checks their files, and the
server if it runs. Changes nothing. Exit code 1 if something is wrong; future problems are warnings.
A new check is one function in a list of diagnosis/, or in `CHECKS` of a feature.
"""

import argparse
import os
import pwd
from typing import TYPE_CHECKING

from orchid.commands.server.serving_flags import add_settings, settings_of
from orchid.kernel.terminal.connection import Json
from orchid.kernel.terminal.output import REFUSED, USAGE, Cell, Complaint, say, say_json, table

if TYPE_CHECKING:
    from orchid.kernel.terminal.findings import Finding, Installation

MOODS = {"good": "good", "note": "", "soon": "waiting", "wrong": "bad"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to show it"
    )
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    findings = examined(installation(arguments))
    number = {state: sum(each.state == state for _, each in findings) for state in MOODS}
    if arguments.output == "json":
        say_json({"wrong": number["wrong"], "soon": number["soon"], "findings": _json(findings)})
    else:
        _show(findings)
        say(f"{number['wrong']} wrong, {number['soon']} soon, {number['good']} good")
    return REFUSED if number["wrong"] else 0


def installation(arguments: argparse.Namespace) -> "Installation":
    """The files of the settings, and the server if it responds."""
    from orchid.commands.diagnosis.server_checks import connected
    from orchid.kernel.settings.data_directory import located
    from orchid.kernel.terminal import times
    from orchid.kernel.terminal.findings import Installation

    settings = settings_of(arguments)
    root = settings.data_dir
    if not root.is_dir():
        raise Complaint(f"there is no directory {root}; say where it is with --data-dir", USAGE)
    owner = root.stat().st_uid
    if owner != os.geteuid():
        raise Complaint(f"{root} belongs to {_other_user(owner)}", USAGE)
    files = located(settings)
    server, refusing = connected(settings, files)
    return Installation(settings, files, times.now(), server, refusing)


def _other_user(uid: int) -> str:
    """Another user who owns the files, and how to run this command as them."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}; look as that user"
    return f"{name}; look as that user, as root with: runuser -u {name} -- orchid doctor"


def examined(here: "Installation") -> list[tuple[str, "Finding"]]:
    """Every finding with the name of its check; a check that fails is a finding too."""
    from orchid.commands.diagnosis.all_checks import all_checks
    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.terminal.findings import wrong

    findings: list[tuple[str, Finding]] = []
    for name, check in all_checks().items():
        try:
            findings += [(name, finding) for finding in check(here)]
        except (Complaint, Refusal, OSError) as problem:
            findings.append((name, wrong(f"not checked: {problem}")))
    return findings


def _json(found: list[tuple[str, "Finding"]]) -> list[Json]:
    return [
        {"check": name, "state": each.state, "text": each.text, "advice": each.advice}
        for name, each in found
    ]


def _show(findings: list[tuple[str, "Finding"]]) -> None:
    rows = []
    for name, each in findings:
        text = f"{each.text}; {each.advice}" if each.advice else each.text
        rows.append((Cell(each.state, MOODS[each.state]), name, text))
    table(("STATE", "CHECK", "FINDING"), rows, "nothing was checked")
