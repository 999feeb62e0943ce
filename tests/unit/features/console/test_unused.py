"""The console costs nothing where it is not used."""

import subprocess
import sys

from orchid.cli import COMMANDS

SERVER = ["orchid.assembly.server", "orchid.assembly.serving"]
REST = [command.module for command in COMMANDS if command.name != "console"]


def test_nothing_else_loads_the_console() -> None:
    """Neither the pages nor the template engine: not in the server, not in another command."""
    program = (
        "import importlib, sys\n"
        f"for name in {[*SERVER, *REST]!r}: importlib.import_module(name)\n"
        "unused = ('orchid.features.console.', 'jinja2')\n"
        "known = ('feature', 'identity', 'kinds', 'kinds.console_session', 'settings')\n"
        "loaded = [name for name in sys.modules if name.startswith(unused)]\n"
        "print([name for name in loaded if name.partition('console.')[2] not in known])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
