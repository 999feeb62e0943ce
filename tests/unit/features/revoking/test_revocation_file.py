"""The copy of revocations beside the database: what it says after changes and crashes."""

import stat
from pathlib import Path

import pytest

from orchid.features.revoking import revocation_file
from orchid.features.revoking.revocation_file import line


def test_what_was_lifted_is_not_put_back(tmp_path: Path) -> None:
    """The last line about a key counts."""
    path = tmp_path / revocation_file.FILE
    revocation_file.write(path, [line("a", b'{"x":1}'), line("b", b'{"x":2}')])

    revocation_file.append(path, [line("a", None), line("c", b'{"x":3}')])

    assert revocation_file.read(path) == {"b": b'{"x":2}', "c": b'{"x":3}'}


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """A crash in the middle of writing costs that line alone."""
    path = tmp_path / revocation_file.FILE
    revocation_file.write(path, [line("a", b'{"x":1}'), line("b", b'{"x":2}')[:-9]])

    assert revocation_file.read(path) == {"a": b'{"x":1}'}


def test_nothing_is_added_to_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """`orchid restore` adds revocations to the file that a crash left."""
    path = tmp_path / revocation_file.FILE
    revocation_file.write(path, [line("a", b'{"x":1}'), line("b", b'{"x":2}')[:-9]])

    revocation_file.append(path, [line("c", b'{"x":3}')])

    assert revocation_file.read(path) == {"a": b'{"x":1}', "c": b'{"x":3}'}


def test_without_a_file_nothing_was_revoked(tmp_path: Path) -> None:
    """As on the first start."""
    assert revocation_file.read(tmp_path / "none") == {}


def test_the_file_is_for_its_owner(tmp_path: Path) -> None:
    """It names accounts and requests."""
    path = tmp_path / revocation_file.FILE

    revocation_file.write(path, [])

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"garbage\n", 1),
        (b'\x00\x00\n{"key":"a"}\n', 2),
        (b'{"key":"a","object":{"x"', 0),  # a crash has truncated it
        (b"\n\n", 0),
        (b"", 0),
    ],
)
def test_lines_that_cannot_be_read_are_counted(tmp_path: Path, text: bytes, count: int) -> None:
    """But not the last one, if a crash has truncated it; the others are read."""
    path = tmp_path / revocation_file.FILE
    path.write_bytes(line("b", b'{"x":2}') + text)

    assert revocation_file.read_counted(path) == ({"b": b'{"x":2}'}, count)
