"""A renewal that is killed at any of its system calls: files, requests, network and the reload."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[5]
LEAST_KILLS = 25


def test_a_killed_renewal_leaves_a_pair_and_is_completed() -> None:
    """After each kill: one matching pair; after the next start: fresh, and reloaded.

    Each 17th system call here; all of them in `make torture`.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.killed_renewals", "--every", "17"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = re.match(r"(\d+) kills, 0 with harm", done.stdout)
    assert found
    assert int(found[1]) >= LEAST_KILLS
