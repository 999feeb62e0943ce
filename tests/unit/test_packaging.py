"""The systemd unit that we ship is as hardened as it says."""

import re
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "packaging" / "orchid.service"
MOST_EXPOSED = 1.5


@pytest.mark.system_package("systemd-analyze")
def test_unit_is_exposed_to_little() -> None:
    """systemd's own judgement, from 0 (nothing) to 10."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]

    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    judged = re.search(r"exposure level for orchid.service: ([0-9.]+)", answer.stdout)
    assert judged is not None, answer.stderr
    assert float(judged[1]) <= MOST_EXPOSED


@pytest.mark.parametrize(
    "line",
    [
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "SystemCallFilter=@system-service",
        "StateDirectoryMode=0700",
        "UMask=0077",
        "LimitCORE=0",
    ],
)
def test_unit_keeps_its_promises(line: str) -> None:
    """What matters most is there, whether or not systemd is."""
    assert line in UNIT.read_text().splitlines()
