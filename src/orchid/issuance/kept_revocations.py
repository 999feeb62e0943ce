"""The file of revocations beside the database: each line gives the object at a key, or null.

    {"key": "identity/credentialrevocations/stolen", "object": {...}}      it was made, or changed
    {"key": "identity/credentialrevocations/stolen", "object": null}       it is gone

A server appends to it (issuance/revocation_copy.py), and `orchid restore` reads it, so that an old
backup makes no revoked credential valid. What the objects mean is not looked at here.
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
    told = None if data is None else msgspec.Raw(data)
    return msgspec.json.encode({"key": key, "object": told}) + b"\n"


class FileTooLarge(ValueError):
    """The file is larger than any that a server writes; what is revoked cannot be read from it."""


def read(path: Path) -> dict[str, bytes]:
    """What the file says is revoked, by key. A line that was cut off by a crash is left out."""
    found: dict[str, bytes] = {}
    if not path.is_file():
        return found
    size = path.stat().st_size
    if size > LONGEST:
        raise FileTooLarge(
            f"{path} has {size} bytes, more than the {LONGEST} that are read: without it, revoked "
            "credentials may become valid. Move it away if its revocations are not needed"
        )
    for text in path.read_bytes().splitlines():
        try:
            told = _decode(text)
        except msgspec.MsgspecError:
            continue
        if bytes(told.object) == b"null":
            found.pop(told.key, None)
        else:
            found[told.key] = bytes(told.object)
    return found


def write(path: Path, lines: Iterable[bytes]) -> None:
    """Replace the file."""
    partial = path.with_name(f".{path.name}.partial")
    _put(partial, lines, os.O_TRUNC)
    partial.replace(path)


def append(path: Path, lines: Iterable[bytes]) -> None:
    """Add to the end of the file; not to a line that was cut off by a crash."""
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
