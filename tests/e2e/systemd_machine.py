"""A systemd of its own, in namespaces: what deploy/ says about a machine is typed on one.

`booted()` gives a `Machine`. Its files are those of this machine, under an overlay in memory; its
processes, network, mounts and control groups are its own, and all of it is gone at the end. It
takes root and the right to make namespaces; elsewhere the test is skipped by name.

Orchid is at /opt/orchid as `make install` puts it there, but with the packages of the tests:
nothing is fetched.
"""

import contextlib
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.system_packages import MISSING, require_program

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork")
UNWANTED = ("systemd-udevd", "systemd-udev-trigger", "systemd-modules-load", "systemd-logind")

# The first process of the namespaces: $1 is an empty folder, $2 this project, $3 its packages.
BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
root="$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$root"
mkdir -p "$root/source" "$root/packages" "$root/old"
mount --bind "$2" "$root/source"
mount --bind "$3" "$root/packages"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for place in run tmp dev; do mount -t tmpfs -o mode=0755 tmpfs "$root/$place"; done
chmod 1777 "$root/tmp"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/rc?.d
for unit in $4; do ln -sf /dev/null "$root/etc/systemd/system/$unit.service"; done
cd "$root"
pivot_root . old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  sh -c 'umount -l /old; exec /lib/systemd/systemd --system systemd.unit=multi-user.target'
"""
INSTALL = """
set -e
rm -rf /opt/orchid
{python} -m venv --without-pip /opt/orchid
printf '/source/src\\n/packages\\n' > "$(echo /opt/orchid/lib/python3*/site-packages)/orchid.pth"
printf '#!/opt/orchid/bin/python\\nimport sys\\nfrom orchid.cli import main\\nsys.exit(main())\\n' \
  > /opt/orchid/bin/orchid
chmod 0755 /opt/orchid/bin/orchid
"""


@dataclass(frozen=True)
class Machine:
    """A systemd that runs, by the process that is its first."""

    first: int

    def type(self, text: str) -> subprocess.CompletedProcess[str]:
        """Type commands as root, in a checkout; all output in one text."""
        inside = ("nsenter", "--target", str(self.first), "--all", "--root", "--wd")
        clean = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.run(
            [*inside, "bash", "-e", "-c", f"cd /source\n{text}"],
            env={**clean, "HOME": "/root", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """Boot, and end it all when the block ends."""
    require_program("systemd-analyze")
    python = _python()
    with _control_group() as group:
        unshare = ["unshare", *NAMESPACES, "bash", "-c", BOOT, "boot"]
        places = [str(folder), str(ROOT), sysconfig.get_path("platlib"), " ".join(UNWANTED)]
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        with (folder.parent / "boot.log").open("wb") as log:
            outer = subprocess.Popen(
                ["bash", "-c", enter, "enter", *unshare, *places],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            machine = _wait(outer)
            installed = machine.type(INSTALL.replace("{python}", python))
            assert installed.returncode == 0, installed.stdout
            yield machine
        finally:
            for first in _children(outer.pid):
                os.kill(int(first), 9)  # the first process takes all others with it
            outer.kill()
            outer.wait(PATIENCE)


def _python() -> str:
    """A Python like ours that the unit may reach: homes are closed to it."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for place in (Path("/usr/bin"), Path("/usr/local/bin")):
        if (place / name).exists():
            return str(place / name)
    pytest.skip(f"{MISSING}{name} in /usr/bin")


@contextlib.contextmanager
def _control_group() -> Iterator[Path]:
    """A control group of the unified sort, for this machine alone."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = [Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"]
    allowed = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or not found or allowed.returncode or sys.platform != "linux":
        pytest.skip(f"{MISSING}namespaces (root, and the right to make them)")
    group = found[0] / f"orchid-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        for inner in sorted(group.rglob("*/"), reverse=True):
            _remove(inner)
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a control group, once the last process in it is gone."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _wait(outer: "subprocess.Popen[bytes]") -> Machine:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and outer.poll() is None:
        for first in _children(outer.pid):
            machine = Machine(int(first))
            with contextlib.suppress(subprocess.TimeoutExpired):
                if machine.type("systemctl is-system-running").stdout.strip() == "running":
                    return machine
        time.sleep(0.2)
    raise AssertionError("systemd did not come up")


def _children(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
