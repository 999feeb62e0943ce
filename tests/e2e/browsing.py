"""A real browser at `orchid console`: Debian's chromium, by Playwright.

Start with `running_console`: the program with a kubeconfig, and the link that it prints. `browser`
is one browser for all tests of a module.
"""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import yaml
from playwright.sync_api import Browser, sync_playwright

STOP_SECONDS = 10


class Console:
    """A running `orchid console`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.link = self._read()

    def another_link(self) -> str:
        """Press Enter."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line.startswith("http://127.0.0.1:"), line
        return line


@contextmanager
def running_console(kubeconfig: Path) -> Iterator[Console]:
    """The program until the block ends; it must end with exit code 0 by SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchid", "console", "--kubeconfig", str(kubeconfig)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "BROWSER": "true"},
    )
    try:
        yield Console(process)
        process.terminate()
        assert process.wait(STOP_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        program = which("chromium")
        assert program is not None
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


def opened(page: Any, link: str) -> str:
    """Open a link; returns the URL that all pages are below."""
    page.goto(link)
    page.get_by_role("heading", name="Overview").wait_for()
    return str(page.url).rstrip("/")


def identity_of(kubeconfig: Path, place: Path) -> Path:
    """A file with the certificate and the key of a kubeconfig."""
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    words = ("client-certificate-data", "client-key-data")
    file = place / "identity.pem"
    file.write_bytes(b"".join(base64.b64decode(user[word]) for word in words))
    return file
