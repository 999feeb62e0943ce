"""Every command of docs/mtls.md does what the page shows, with a real nginx and a real curl."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.serving import free_port
from tests.e2e.test_readme_walk import Walk, steps
from tests.system_packages import require_program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mtls.md"
FILE = re.compile(r"`([\w.]+)`:\n\n```(?:yaml|nginx)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WEB = "127.0.0.1:8443"


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """A reader in an empty directory; an nginx that was left running is ended."""
    with ExitStack() as servers:
        yield Walk(tmp_path, servers)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((tmp_path / "nginx.pid").read_text()), signal.SIGTERM)


@pytest.mark.system_package("nginx", "openssl")
def test_the_page_leads_to_mtls_as_written(walk: Walk, tmp_path: Path) -> None:
    """Authorities, policies, certificates; nginx serves with them and curl accepts it."""
    for program in ("nginx", "openssl", "curl"):
        require_program(program)
    text = PAGE.read_text()
    port = free_port()
    walk.stands_for(WEB, f"127.0.0.1:{port}")
    files = FILE.findall(text)
    for name, content in files:
        (tmp_path / name).write_text(content.replace(WEB, f"127.0.0.1:{port}"))

    walk.take(steps(text))

    assert [name for name, _ in files] == ["servers.yaml", "clients.yaml", "nginx.conf"]
