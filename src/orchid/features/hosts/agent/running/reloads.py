"""Reloads of services after a change of files: a systemd unit, a signal, or a command.

An action has its own process group, which is killed at the timeout, and no shell. Its environment
has PATH, ORCHID_OUTPUT and ORCHID_DIRECTORY only. Up to 4 KiB of its output are logged.
"""

import contextlib
import logging
import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from orchid.features.hosts.agent.configuration import Output, Reload
from orchid.features.hosts.agent.generations import ROOT, OutputRefused, passed_paths
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.credentials.files import read_unlinked
from orchid.kernel.credentials.refusals import Refusal

log = logging.getLogger(__name__)

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOGGED_OUTPUT: Final = 4096
RETRY_SECONDS: Final = (10.0, 60.0, 300.0)  # then at each check
POLL_SECONDS: Final = 0.5
_LARGEST_PID_FILE: Final = 4096  # that of PostgreSQL has eight lines

monotonic = SystemClock.monotonic

Alive = Callable[[], None]  # called about once a second while an action runs


class ReloadFailed(Exception):
    """The action did not succeed; it stays pending."""


def run_reload(action: Reload, output: Output, is_alive: Alive) -> None:
    """Run one action to its end, or raise ReloadFailed."""
    if action.signal:
        _send_signal(action)
        return
    words = list(action.command)
    if action.systemd:
        words = ["systemctl", "try-reload-or-restart", "--", action.systemd]
    environment = {
        "PATH": PATH,
        "ORCHID_OUTPUT": output.name,
        "ORCHID_DIRECTORY": output.directory,
    }
    _run(words, environment, action.timeout, is_alive)


def _send_signal(action: Reload) -> None:
    """Send a signal to the process that the first line of a file names."""
    file = Path(action.pid_file)
    try:
        data, status = read_unlinked(file, _LARGEST_PID_FILE)
        text = data.decode("ascii", "replace")
        process = int(text.partition("\n")[0].strip())
        if process <= 1:
            raise ValueError
    except Refusal as refusal:
        raise ReloadFailed(str(refusal)) from None
    except ValueError:
        raise ReloadFailed(f"{file} does not hold the number of a process") from None
    try:
        _refuse_other_owner(file, status, process)
        os.kill(process, getattr(signal, f"SIG{action.signal}"))
    except OutputRefused as problem:
        raise ReloadFailed(str(problem)) from None
    except OSError as error:
        raise ReloadFailed(f"cannot signal process {process}: {error.strerror}") from None


def _refuse_other_owner(file: Path, written: os.stat_result, process: int) -> None:
    """A user who could write or replace the file may have the agent signal own processes only.

    A link in the directory of another user could name a file of root.
    """
    if written.st_nlink != 1:
        raise ReloadFailed(f"{file} has other names, where it may have another purpose")
    writers = {written.st_uid}
    for path, _ in passed_paths(file.parent):
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode) and _is_open(status):
            raise ReloadFailed(f"{path} can be written by other users")
        writers.add(status.st_uid)
    others = writers - {os.geteuid(), ROOT}
    if others and others != {Path(f"/proc/{process}").stat().st_uid}:
        raise ReloadFailed(f"process {process} does not belong to the owner of {file}")


def _is_open(directory: os.stat_result) -> bool:
    """Whether users who do not own a directory can replace the files of others in it."""
    by_others = directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bool(by_others) and not directory.st_mode & stat.S_ISVTX


def _run(words: list[str], environment: dict[str, str], seconds: int, is_alive: Alive) -> None:
    try:
        process = subprocess.Popen(  # noqa: S603 -- the administrator's configuration names it
            words,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ReloadFailed(f"cannot run {words[0]}: {error.strerror}") from None
    try:
        text = _output(process, seconds, is_alive)
    except BaseException as error:
        _kill_group(process)
        if isinstance(error, TimeoutError):
            message = f"{words[0]} did not end within {seconds} seconds and was killed"
            raise ReloadFailed(message) from None
        raise
    finally:
        assert process.stdout is not None
        process.stdout.close()
    if text:
        log.info("output of %s: %s", words[0], text)
    if process.returncode != 0:
        raise ReloadFailed(f"{words[0]} ended with exit code {process.returncode}")


def _output(process: subprocess.Popen[bytes], seconds: float, is_alive: Alive) -> str:
    """Wait for the end of a process; the beginning of what it printed.

    A child that it leaves behind may hold its output open: only the process itself is awaited.
    """
    assert process.stdout is not None
    output = bytearray()
    deadline = monotonic() + seconds
    os.set_blocking(process.stdout.fileno(), False)
    while True:
        has_ended = process.poll() is not None
        with contextlib.suppress(BlockingIOError):
            while data := os.read(process.stdout.fileno(), 65536):
                output += data[: LOGGED_OUTPUT - len(output)]
        if has_ended:
            return output.decode("utf-8", "replace").strip()
        left = deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        is_alive()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, POLL_SECONDS))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End everything that the action started and that is still in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
