"""The audit log: every line arrives, in order, in a private file that may be rotated."""

import os
import stat
import threading
from pathlib import Path

import pytest

from orchid.kernel.server.audit.log_file import AuditLog, AuditLogUnusable


def wait_for(path: Path, text: bytes) -> None:
    """Wait until the writer has written; it says nothing, so its file is looked at."""
    pause = threading.Event()
    for _ in range(500):
        if path.exists() and text in path.read_bytes():
            return
        pause.wait(0.01)
    pytest.fail(f"{text!r} never arrived")


def test_lines_arrive_in_order_and_close_writes_the_rest(tmp_path: Path) -> None:
    """Closing waits for everything that was put."""
    path = tmp_path / "audit.log"
    log = AuditLog(str(path))

    for number in range(1000):
        log.put(b"%d\n" % number)
    log.close()

    assert path.read_bytes().split() == [b"%d" % number for number in range(1000)]


def test_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A new audit file has mode 0600, and an old one is continued."""
    path = tmp_path / "audit.log"
    for line in (b"first\n", b"second\n"):
        log = AuditLog(str(path))
        log.put(line)
        log.close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"first\nsecond\n"


def test_renamed_file_is_followed_by_a_new_one(tmp_path: Path) -> None:
    """After a rotation the next event goes to a new file of the old name, with no signal."""
    path, rotated = tmp_path / "audit.log", tmp_path / "audit.log.1"
    log = AuditLog(str(path))
    log.put(b"before\n")
    wait_for(path, b"before")

    path.rename(rotated)
    log.put(b"after\n")
    log.close()

    assert rotated.read_bytes() == b"before\n"
    assert path.read_bytes() == b"after\n"


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    """A log that has more waiting than it may says so, until it is written."""
    log = AuditLog(str(tmp_path / "audit.log"), most_waiting=10)

    log.put(b"more than ten bytes\n")
    was_full = log.full
    wait_for(tmp_path / "audit.log", b"bytes")
    log.close()

    assert was_full
    assert not log.full


def test_a_failed_write_is_counted_and_logged_without_the_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An event that cannot be written is lost, but not in silence; the next ones are written."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "audit.log"
    log = AuditLog(str(path))
    path.unlink()
    folder.rmdir()
    log.put(b"canary\n")
    pause = threading.Event()
    while not log.errors:
        pause.wait(0.01)

    folder.mkdir()
    log.put(b"next\n")
    log.close()

    assert log.errors == 1
    assert path.read_bytes() == b"\nnext\n"
    assert "audit.not_written" in caplog.text
    assert "canary" not in caplog.text


def test_a_write_that_takes_only_a_part_is_carried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may take fewer bytes than it is given, as on a disk that is almost full."""
    path = tmp_path / "audit.log"
    taken = os.write
    monkeypatch.setattr(os, "write", lambda file, data: taken(file, data[:3]))
    log = AuditLog(str(path))

    log.put(b"one long line\n")
    log.put(b"and another\n")
    log.close()

    assert path.read_bytes() == b"one long line\nand another\n"


def test_lines_that_are_made_later_keep_their_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread of the log makes them; one that fails is counted, and the others are written."""

    def fails() -> bytes:
        raise KeyError("canary")

    makers: list[str] = []

    def made() -> bytes:
        makers.append(threading.current_thread().name)
        return b"two\n"

    log = AuditLog(str(tmp_path / "audit.log"))
    log.put(b"one\n")
    log.put_later(made, 4)
    log.put_later(fails, 1000)
    log.put(b"three\n")
    log.close()

    assert (tmp_path / "audit.log").read_bytes() == b"one\ntwo\nthree\n"
    assert makers == ["audit-log"]
    assert (log.errors, log.full) == (1, False)
    assert "canary" not in caplog.text


def test_file_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    """A missing folder is reported at the start."""
    with pytest.raises(AuditLogUnusable, match="No such file or directory"):
        AuditLog(str(tmp_path / "missing" / "audit.log"))


def test_dash_is_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """With '-' events go to standard output, which stays open."""
    log = AuditLog("-")
    log.put(b"line\n")
    log.close()

    assert capfd.readouterr().out == "line\n"
    assert os.fstat(1)
