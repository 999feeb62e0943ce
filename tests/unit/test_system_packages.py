"""scripts/system-packages installs programs for the tests, and starts none of their services."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "system-packages"
TOOLS = ("bash", "chmod", "env", "grep", "mktemp", "mv", "rm", "sort", "tail", "touch")
FORBIDDEN = 101  # of invoke-rc.d: the action is forbidden
ALLOWED = "#!/bin/sh\nexit 0\n"
APT_GET = """#!/usr/bin/env bash
case "$*" in
  *install*wrk)
    "$POLICY_RC_D" nginx start
    echo "$?" >"$POLICY_RC_D.answer"
    touch {bin}/wrk
    chmod 755 {bin}/wrk ;;
  *install*) exit 100 ;;
esac
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy-rc.d"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A machine of root with apt-get, which knows wrk alone."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        path = shutil.which(name)
        assert path is not None
        (programs / name).symlink_to(path)
    write(programs / "id", "#!/usr/bin/env bash\necho 0\n")
    write(programs / "apt-get", APT_GET.format(bin=programs))
    return programs


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def run(programs: Path, policy: Path) -> str:
    environment = {**os.environ, "PATH": str(programs), "POLICY_RC_D": str(policy)}
    return subprocess.run(
        [programs / "bash", SCRIPT], env=environment, capture_output=True, text=True, check=True
    ).stdout


def asked(policy: Path) -> int:
    """The answer that the installation of wrk got."""
    return int(policy.with_name("policy-rc.d.answer").read_text())


def test_services_are_not_started_and_may_be_later(programs: Path, policy: Path) -> None:
    """policy-rc.d forbids it while packages are installed, and is gone afterwards."""
    output = run(programs, policy)

    assert asked(policy) == FORBIDDEN
    assert not policy.exists()
    assert "installed, without starting their services: wrk\n" in output
    assert "could not install etcd-server:" in output


def test_the_policy_of_the_machine_is_restored(programs: Path, policy: Path) -> None:
    """Whatever it said before."""
    write(policy, ALLOWED)

    run(programs, policy)

    assert asked(policy) == FORBIDDEN
    assert policy.read_text() == ALLOWED
    assert os.access(policy, os.X_OK)


def test_a_killed_run_leaves_nothing_for_good(programs: Path, policy: Path) -> None:
    """Its policy is removed by the next run, and that of the machine is restored."""
    write(policy, ALLOWED)
    write(programs / "apt-get", "#!/usr/bin/env bash\nkill -KILL $PPID\n")
    with pytest.raises(subprocess.CalledProcessError):
        run(programs, policy)
    assert policy.read_text() != ALLOWED
    write(programs / "apt-get", APT_GET.format(bin=programs))

    run(programs, policy)

    assert policy.read_text() == ALLOWED


def test_an_interrupted_run_restores_the_policy(programs: Path, policy: Path) -> None:
    """As by Ctrl+C."""
    write(policy, ALLOWED)
    write(programs / "apt-get", "#!/usr/bin/env bash\nkill -TERM $PPID\n")

    with pytest.raises(subprocess.CalledProcessError):
        run(programs, policy)

    assert policy.read_text() == ALLOWED


def test_without_a_policy_nothing_is_installed(programs: Path, tmp_path: Path) -> None:
    """Where it cannot be written, services would start."""
    output = run(programs, tmp_path / "missing" / "policy-rc.d")

    assert "nothing is installed" in output
    assert not (programs / "wrk").exists()
