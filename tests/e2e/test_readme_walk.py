"""Every command in the README does what the README shows.

The ```console blocks of a section are typed into one shell, in an empty directory. `orchid serve`
is started beside it, on a free port in place of the one in the text. What differs from one time to
the next (ids, fingerprints, times, ages) is compared by its form; a line `...` stands for the rest.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.serving import free_port, running_server

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVE = "orchid serve"
MARK = "@@@@"
PATIENCE = 60.0  # seconds
VOLATILE = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<serial>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"(?<=^revoked, by )\S+$"), "<name>"),
    (re.compile(r"\bin \d+h\d+m\b"), "<span>"),
    (re.compile(r"(?<=^Key:         )[\w-]{43}$"), "<kid>"),
    (re.compile(r"^[\w-]{43}(?=  ES256)"), "<kid>"),
    (re.compile(r"(?<=^Entries:    )\d+"), "<count>"),
    (re.compile(r"(?<=/ledger\+)[\w+/=]+"), "<key>"),
    (re.compile(r"\b(in )?(\d+[dhms])+( ago)?(?=\)|$)"), "<span>"),
)


@dataclass(frozen=True)
class Step:
    """A command, and what the README says it prints."""

    command: str
    shown: list[str]


def steps(text: str) -> list[Step]:
    """The commands of all console blocks in a text, in order."""
    found: list[Step] = []
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            else:
                found[-1].shown.append(line)
    return found


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", README.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def by_form(lines: list[str]) -> list[str]:
    """Lines with what is new each time replaced by what it is."""
    found = []
    for line in lines:
        text = line
        for pattern, name in VOLATILE:
            text = pattern.sub(name, text)
        found.append(text)
    return found


class Walk:
    """One reader: a directory, its servers and a shell."""

    def __init__(self, home: Path, servers: ExitStack) -> None:
        self._home = home
        self._servers = servers
        self._addresses: dict[str, str] = {}

    def stands_for(self, written: str, real: str) -> None:
        """Replace an address of the text by a free one."""
        self._addresses[written] = real

    def take(self, all_steps: list[Step]) -> None:
        """Type everything, then compare everything."""
        typed = [step for step in all_steps if not step.command.startswith(SERVE)]
        for step in all_steps:
            if step.command.startswith(SERVE):
                self._serve(step)
        for step, printed in zip(typed, self._type(typed), strict=True):
            self._compare(step, printed)

    def _serve(self, step: Step) -> None:
        flags = shlex.split(step.command)[2:]
        given = dict(zip(flags[::2], flags[1::2], strict=True))
        written = given.pop("--listen", "127.0.0.1:6443")
        data_dir = given.pop("--data-dir", "orchid-data")
        port = free_port()
        self._addresses[written] = f"127.0.0.1:{port}"
        rest = [word for pair in given.items() for word in pair]
        server = self._servers.enter_context(
            running_server(self._home / data_dir, *rest, port=port)
        )
        announced = server.log_text().replace(f"{self._home}/", "").splitlines()
        self._compare(step, announced[: len(step.shown)])
        self._wait_for_controllers(server.data_dir / "admin.kubeconfig")

    def _wait_for_controllers(self, kubeconfig: Path) -> None:
        """A reader is slower than the controllers: each namespace has its account and bundle."""
        command = [sys.executable, "-m", "orchid", "status", "--kubeconfig", str(kubeconfig)]
        end = time.monotonic() + PATIENCE
        while True:
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            lines = dict(line.split(":", 1) for line in printed.splitlines())
            namespaces, accounts, bundles = (
                int(lines[name]) for name in ("Namespaces", "Accounts", "Bundles")
            )
            if accounts >= namespaces and bundles > namespaces:
                return
            assert time.monotonic() < end, printed
            time.sleep(0.1)

    def _type(self, typed: list[Step]) -> list[list[str]]:
        script = "\n".join(f"{self._here(step.command)} 2>&1\necho '{MARK}'" for step in typed)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        shell = subprocess.run(
            ["bash", "-o", "pipefail", "-c", script],
            cwd=self._home,
            env={"PATH": path, "HOME": str(self._home), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert shell.stderr == ""
        # The mark may stand behind an answer that ends without a new line.
        return [part.strip("\n").splitlines() for part in shell.stdout.split(MARK)[:-1]]

    def _compare(self, step: Step, printed: list[str]) -> None:
        expected, found = by_form(step.shown), by_form([self._there(line) for line in printed])
        if expected[-1:] == ["..."]:
            expected.pop()
            found = found[: len(expected)]
        assert found == expected, f"$ {step.command}"

    def _here(self, text: str) -> str:
        for written, real in self._addresses.items():
            text = text.replace(written, real)
        return text

    def _there(self, text: str) -> str:
        for written, real in self._addresses.items():
            text = text.replace(real, written)
        return text


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    with ExitStack() as servers:
        yield Walk(tmp_path, servers)


def test_the_five_minutes_are_as_written(walk: Walk) -> None:
    """From the start of a server to a certificate in use, revoked, and on record."""
    walk.take(steps(sections()["Five minutes"]))


def test_no_console_block_is_left_out() -> None:
    """A block in another section would be shown, and run by nobody."""
    assert [title for title, text in sections().items() if steps(text)] == ["Five minutes"]
