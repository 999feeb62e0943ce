"""kubectl as a person types it, against a server under test.

    kubectl = Kubectl(server.kubeconfig, home)
    kubectl("-n", "walk", "get", "sa").says("default")

A call that fails raises with both its outputs, unless it was made through `fails`. Each home has a
discovery cache of its own, as each person has. The program is the one on the path, or the one that
ORCHID_KUBECTL names; where releases have different words, a test asks for `release`.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SECONDS = 60.0
PROGRAM = os.environ.get("ORCHID_KUBECTL", "kubectl")
NEWEST = (999, 0)  # a program built from source calls itself 0.0.0


@dataclass(frozen=True)
class Said:
    """The output of one command."""

    command: str
    code: int
    out: str
    err: str

    def says(self, *texts: str) -> "Said":
        """Insist that each text was printed."""
        for text in texts:
            assert text in self.out + self.err, f"{text!r} is not in what was printed:\n{self}"
        return self

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        """The words of a table, without its first line."""
        return [line.split() for line in self.lines[1:]]

    def __str__(self) -> str:
        return f"$ {self.command}\nexit code {self.code}\n{self.out}{self.err}"


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl with one configuration."""

    kubeconfig: Path
    home: Path
    program: str = PROGRAM

    @cached_property
    def release(self) -> tuple[int, int]:
        """The program's own version: (1, 36)."""
        version = json.loads(self("version", "--client", "-o", "json").out)["clientVersion"]
        numbers = re.match(r"v(\d+)\.(\d+)\.", version["gitVersion"])
        assert numbers, version
        major, minor = map(int, numbers.groups())
        return (major, minor) if major else NEWEST

    def __call__(self, *words: str, stdin: str = "", **environ: str) -> Said:
        said = self.run(*words, stdin=stdin, **environ)
        assert said.code == 0, str(said)
        return said

    def fails(self, *words: str, stdin: str = "") -> Said:
        said = self.run(*words, stdin=stdin)
        assert said.code != 0, str(said)
        return said

    def run(self, *words: str, stdin: str = "", **environ: str) -> Said:
        done = subprocess.run(
            [self.program, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**self.environ(), **environ},
        )
        return Said(" ".join((self.program, *words)), done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """A command that runs on, until the block ends; both its outputs come as one."""
        process = subprocess.Popen(
            [self.program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environ(),
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def environ(self) -> dict[str, str]:
        here = {"HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}
        return {"PATH": os.environ["PATH"], **here}
