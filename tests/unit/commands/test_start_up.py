"""Commands that only ask the server load nothing that they do not need."""

import subprocess
import sys

import pytest

HEAVY = ("asyncio", "uvloop", "cryptography", "orchid.kernel.server", "orchid.assembly")
PROGRAM = """
import sys
from orchid import cli
cli.build([sys.argv[1]])
print(*sorted(sys.modules))
"""


@pytest.mark.parametrize(
    "command", ["account", "bundle", "can", "csr", "grant", "policy", "role", "status", "whoami"]
)
def test_command_loads_little(command: str) -> None:
    """Slow modules are imported where they are used, so that commands answer quickly."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, command], capture_output=True, text=True, check=True
    )

    assert [name for name in HEAVY if name in done.stdout.split()] == []
