"""Modules that somebody left in the working directory: no process that we start imports them.

The attacker can write into the directory in which the server, or a user's command, was started.
Each planted module leaves a mark, and then fails.
"""

import asyncio
import datetime
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchid.assembly import serving
from orchid.features.certificates.commands import kubeconfig
from orchid.kernel.base import helper_process
from orchid.kernel.credentials.authorities import rsa_process
from orchid.kernel.expressions.cel import Compiler, ExpressionInput
from orchid.kernel.expressions.isolated import CHEAP, Evaluator
from orchid.kernel.workers.launching import Launcher, discard
from tests.e2e.serving import Server, free_port, wait_until_ready

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
SAMPLE = {"dnsNames": [""]}
SLOW = "request.dnsNames.exists(n, n.matches('^n[0-9]+'))"
PLANTED = (
    "cryptography.py",
    "json.py",
    "socket.py",
    "msgspec.py",
    "uvloop.py",
    "sitecustomize.py",
    "orchid/__init__.py",
    "orchid/__main__.py",
    "orchid/worker.py",
)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Planted modules in the working directory; the path of the mark that none may leave."""
    directory = tmp_path / "shared"
    mark = tmp_path / "mark"
    for name in PLANTED:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(mark)!r}, 'a').write(__file__)\nraise SystemExit('planted')\n")
    monkeypatch.chdir(directory)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield mark
    assert not mark.exists()


def test_the_process_that_makes_a_private_key_imports_nothing_planted(planted: Path) -> None:
    """The key of an authority is made by our code alone."""
    assert rsa_process.generate(2048).key_size == 2048


def test_an_empty_entry_of_the_module_path_is_not_the_working_directory(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PYTHONPATH=$PYTHONPATH:/opt/modules` has an empty entry if the variable was not set."""
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/opt/modules")

    assert rsa_process.generate(2048).key_size == 2048


async def test_the_process_that_evaluates_an_expression_imports_nothing_planted(
    planted: Path,
) -> None:
    """Policies are evaluated by our code alone."""
    expression = Compiler().signing_condition(SLOW, SAMPLE)
    names = [f"n{number}.example.com" for number in range(900)]
    given = ExpressionInput({"request": {"dnsNames": names}, "user": {}, "now": NOW})
    assert expression.cost(given) > CHEAP, "so that it goes to a process"

    assert await Evaluator(SAMPLE).elsewhere([expression], given) == [True]


async def test_a_worker_imports_nothing_planted(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the parent has the directory on its own path, as `python -m` leaves it."""
    monkeypatch.syspath_prepend(str(Path.cwd()))
    with closing(socket.socket()) as counter:
        launcher = Launcher(serving.WORKER_PROGRAM, counter.fileno(), [])
        launched = await launcher.launch(listens=False)
        launched.link.close()
        try:
            async with asyncio.timeout(60):
                code = await launched.process.wait()
        finally:
            await discard(launched)
    assert code == 3, "it started, and found that its parent was gone"


def test_a_server_among_planted_modules_serves_with_workers(planted: Path, tmp_path: Path) -> None:
    """The whole program, as the deployments start it."""
    port, log = free_port(), tmp_path / "log"
    data = tmp_path / "data"
    flags = ("serve", "--data-dir", str(data), "--listen", f"127.0.0.1:{port}", "--workers", "2")
    with log.open("wb") as output:
        process = subprocess.Popen(
            helper_process.command("orchid", *flags),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(process, port, data, log, 0.0)
    try:
        wait_until_ready(server, float("inf"))
        server.stop()
    finally:
        server.kill()


@pytest.mark.parametrize("search_path", ["", "."])
def test_the_plugin_of_a_kubeconfig_runs_nothing_planted(
    planted: Path, monkeypatch: pytest.MonkeyPatch, search_path: str
) -> None:
    """kubectl runs it in the directory in which the user is, with the user's credentials."""
    trap = Path("orchid-program")
    trap.write_text(f"#!/bin/sh\ntouch {planted}\n")
    trap.chmod(0o755)
    monkeypatch.setattr(
        kubeconfig.shutil, "which", lambda _: "./orchid-program" if search_path else None
    )

    done = subprocess.run(
        [*kubeconfig._our_command(), "--version"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_every_program_of_ours_is_started_by_the_one_function() -> None:
    """`sys.executable` and `-m` appear in one file of the source."""
    source = Path(helper_process.__file__).parent
    found = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "sys.executable" in path.read_text() or '"-m"' in path.read_text()
    ]

    assert found == ["helper_process.py"], json.dumps(found)
