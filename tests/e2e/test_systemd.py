"""Blocks that need systemd (`sh needs=systemd`), run unchanged on a real one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.systemd_machine import Machine, booted
from tests.e2e.test_deploy import until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy" / "README.md"
BACKUP = ROOT / "docs" / "how-to" / "backup.md"
HOSTS = ROOT / "docs" / "hosts.md"
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
    backup, restore = BLOCK.findall(BACKUP.read_text())
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


SERVER = """
ln -sf /opt/orchid/bin/orchid /usr/local/bin/orchid
systemd-run --unit server orchid serve --data-dir /var/lib/server
until [ -e /var/lib/server/admin.kubeconfig ] &&
  orchid status --kubeconfig /var/lib/server/admin.kubeconfig; do sleep 0.2; done
"""
PREPARED = """
export KUBECONFIG=/var/lib/server/admin.kubeconfig
install -d -m 0755 /etc/orchid
orchid ca new servers --signer example.com/servers
orchid policy apply /tmp/own-names.yaml --for-group system:nodes
orchid host new app-1.example.com --out /etc/orchid/join.kubeconfig
cat > /etc/systemd/system/nginx.service <<END
[Service]
ExecStart=/bin/sleep infinity
ExecReload=/bin/touch /run/reloaded
END
systemctl daemon-reload
systemctl start nginx
"""


def test_hosts_page_leads_to_an_agent_that_reloads_nginx(machine: Machine) -> None:
    """The unit joins, writes its files within its sandbox, reloads a unit, and stops cleanly."""
    page = HOSTS.read_text()
    (policy,) = re.findall(r"^cat > own-names.yaml <<END\n(.*?)^END$", page, re.M | re.S)
    configuration = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)[0]
    (start,) = BLOCK.findall(page)
    typed(machine, SERVER)
    typed(machine, f"cat > /tmp/own-names.yaml <<'END'\n{policy}END\n{PREPARED}")

    typed(machine, f"cat > /etc/orchid/agent.yaml <<'END'\n{configuration}END\n")
    status = typed(machine, start)
    files = typed(machine, "stat -L -c '%n %U %G %a' /etc/orchid/web/tls.key; ls /run/reloaded")
    stopped = typed(machine, "systemctl stop orchid-agent; systemctl show -P Result orchid-agent")

    assert "app-1.example.com: 1 of 1 outputs fresh" in status
    assert "/etc/orchid/web/tls.key root www-data 640" in files
    assert stopped.strip() == "success"
