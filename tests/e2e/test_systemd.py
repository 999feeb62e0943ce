"""Blocks that need systemd (`sh needs=systemd`), run unchanged on a real one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.systemd_machine import Machine, booted
from tests.e2e.test_deploy import until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy" / "README.md"
OPERATIONS = ROOT / "docs" / "operations.md"
BLOCK = re.compile(r"^```sh needs=systemd\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYWHERE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL = "make install PREFIX=/opt/orchid\n"  # fetches packages: run by hand, see systemd_machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    folder = tmp_path / "machine"
    folder.mkdir()
    with booted(folder) as machine:
        yield machine


def typed(machine: Machine, text: str) -> str:
    """The output of a command; a command that fails is a failure of the page."""
    done = machine.type(text)
    journal = "" if done.returncode == 0 else machine.type("journalctl --lines 30 -o cat").stdout
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{journal}"
    return done.stdout


@pytest.mark.system_package("etcd", "prometheus", "openssl", "curl")
def test_page_leads_to_a_supervised_server_with_etcd_and_a_dashboard(machine: Machine) -> None:
    """Installed, enabled, killed and back, restored, moved to etcd, and shown by Prometheus."""
    install, start, etcd, move, prometheus = BLOCK.findall(PAGE.read_text())
    (certificate,) = ANYWHERE.findall(PAGE.read_text())
    assert install.startswith(INSTALL)

    typed(machine, install.removeprefix(INSTALL))
    first = typed(machine, start)
    typed(machine, "systemctl kill --signal KILL orchid")
    until(lambda: "NRestarts=1" in machine.type("systemctl show orchid").stdout, "a restart")
    until(lambda: machine.type("systemctl is-active orchid").returncode == 0, "it serves again")
    backup, restore = BLOCK.findall(OPERATIONS.read_text())
    restored = typed(machine, f"install -d -o orchid /backup\n{backup}{restore}")
    typed(machine, etcd)
    moved = typed(machine, move)
    administrator = "export KUBECONFIG=/var/lib/orchid/admin.kubeconfig\n"
    typed(machine, f"cp -r deploy /tmp/deploy; cd /tmp\n{administrator}{certificate}{prometheus}")
    page = until(lambda: dashboard(machine), "Prometheus has read the server")

    assert "orchid serves https://127.0.0.1:6443" in first
    assert first.splitlines()[-1].startswith("0 wrong, 0 soon")
    assert "restored" in restored
    assert "1 of 1 etcd endpoints can be reached" in moved
    assert moved.splitlines()[-1].startswith("0 wrong, 0 soon")
    assert 'class="bad"' not in page


def dashboard(machine: Machine) -> str:
    page = machine.type("curl --silent http://localhost:9090/consoles/orchid.html").stdout
    return page if 'class="good">answers' in page else ""
