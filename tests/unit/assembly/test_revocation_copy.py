"""The copy of revocations beside the database: what it says after changes and crashes."""

import stat
from pathlib import Path
from typing import Any

from orchid.assembly import revocation_copy
from orchid.commands.restore import revoked_in


class Shown:
    """As much of an entry as a line shows."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def line(key: str, data: bytes | None) -> bytes:
    entry: Any = None if data is None else Shown(data)
    return revocation_copy.line(key, entry)


def test_what_was_lifted_is_not_put_back(tmp_path: Path) -> None:
    """The last line about a key counts."""
    path = tmp_path / revocation_copy.FILE
    revocation_copy.write(path, [line("a", b'{"x":1}'), line("b", b'{"x":2}')])

    revocation_copy.append(path, [line("a", None), line("c", b'{"x":3}')])

    assert revocation_copy.read(path) == {"b": b'{"x":2}', "c": b'{"x":3}'}
    assert revoked_in(path) == ["b", "c"]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """A crash in the middle of writing costs that line alone."""
    path = tmp_path / revocation_copy.FILE
    revocation_copy.write(path, [line("a", b'{"x":1}'), line("b", b'{"x":2}')[:-9]])

    assert revocation_copy.read(path) == {"a": b'{"x":1}'}
    assert revoked_in(path) == ["a"]


def test_without_a_file_nothing_was_revoked(tmp_path: Path) -> None:
    """As on the first start."""
    assert revocation_copy.read(tmp_path / "none") == {}
    assert revoked_in(tmp_path / "none") == []


def test_the_file_is_for_its_owner(tmp_path: Path) -> None:
    """It names accounts and requests."""
    path = tmp_path / revocation_copy.FILE

    revocation_copy.write(path, [])

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
