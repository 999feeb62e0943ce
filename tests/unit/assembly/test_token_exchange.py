"""Token exchange is off unless it is configured."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.api.world import api

async def main():
    async with api(Path(sys.argv[1]) / "data"):
        print(*sorted(sys.modules))

asyncio.run(main())
"""
OF_EXCHANGE = (
    "orchid.features.exchange.exchanger",
    "orchid.features.exchange.judging",
    "orchid.features.exchange.exchange",
    "orchid.features.introspection.addresses",
)


def test_nothing_of_token_exchange_is_imported_when_it_is_off(tmp_path: Path) -> None:
    """Neither its code nor its cost."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "orchid.features.introspection.revocation" in loaded
    assert [name for name in loaded if name.startswith(OF_EXCHANGE)] == []
