"""Somebody who types commands, for the tests of commands against a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Person:
    """Somebody in a directory of their own, with a kubeconfig."""

    def __init__(self, home: Path, kubeconfig: Path) -> None:
        self.home = home
        self.kubeconfig = kubeconfig

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "KUBECONFIG": str(self.kubeconfig),
        }

    def types(
        self, *words: str, given: str = "", code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; its exit code must be as expected and a traceback is never seen."""
        done = subprocess.run(
            [sys.executable, "-m", "orchid", *words],
            cwd=self.home,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stderr or done.stdout
        return done

    def gets(self, *words: str, given: str = "", code: int = 0) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.types(*words, "-o", "json", given=given, code=code).stdout)
