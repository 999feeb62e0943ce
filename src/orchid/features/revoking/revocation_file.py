"""The file of revocations beside the database: each line has the object at a key, or null.

    {"key": "identity/credentialrevocations/stolen", "object": {...}}   created or changed
    {"key": "identity/credentialrevocations/stolen", "object": null}    deleted

A server appends to it (features/revoking/revocation_copy.py), and `orchid restore` reads it, so
that an old backup makes no revoked credential valid. The objects are not interpreted here.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "revocations.jsonl"
LONGEST: Final = 512 << 20  # bytes; far more than any number of revocations needs


class _Line(msgspec.Struct):
    key: str
    object: msgspec.Raw


_decode = msgspec.json.Decoder(_Line).decode


def line(key: str, data: bytes | None) -> bytes:
    """The current object at a key, as a line."""
    entry = None if data is None else msgspec.Raw(data)
    return msgspec.json.encode({"key": key, "object": entry}) + b"\n"


class FileTooLarge(ValueError):
    """The file is larger than any that a server writes, so it is not read."""


def read(path: Path) -> dict[str, bytes]:
    """The revocations in the file, by key; lines that cannot be read are skipped."""
    return read_counted(path)[0]


def read_counted(path: Path) -> tuple[dict[str, bytes], int]:
    """The revocations in the file, by key, and the number of lines that cannot be read.

    A last line without an end is not counted: a crash has truncated it.
    """
    objects: dict[str, bytes] = {}
    unreadable = 0
    if not path.exists():
        return objects, unreadable
    size = path.stat().st_size
    if size > LONGEST:
        raise FileTooLarge(
            f"{path} has {size} bytes, more than the {LONGEST} that are read: without it, revoked "
            "credentials may become valid. Move it away if its revocations are not needed"
        )
    for text in path.read_bytes().splitlines(keepends=True):
        try:
            entry = _decode(text)
        except msgspec.MsgspecError:
            unreadable += bool(text.strip()) and text.endswith(b"\n")
            continue
        if bytes(entry.object) == b"null":
            objects.pop(entry.key, None)
        else:
            objects[entry.key] = bytes(entry.object)
    return objects, unreadable


def write(path: Path, lines: Iterable[bytes]) -> None:
    """Replace the file."""
    partial = path.with_name(f".{path.name}.partial")
    _put(partial, lines, os.O_TRUNC)
    partial.replace(path)


def append(path: Path, lines: Iterable[bytes]) -> None:
    """Append to the file; a truncated last line is ended first."""
    _put(path, lines if _ends_whole(path) else [b"\n", *lines], os.O_APPEND)


def _ends_whole(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _put(path: Path, lines: Iterable[bytes], how: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
