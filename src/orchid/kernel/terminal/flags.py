"""Arguments that several commands have in the same form: names, durations, files to write.

`write_secret` and `print_or_write` write what a command has made; a failure is one line.
"""

import argparse
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from orchid.kernel.terminal import times
from orchid.kernel.terminal.objects import completed
from orchid.kernel.terminal.output import Complaint, remark, say

Arguments = Callable[[argparse.ArgumentParser], None]


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the subcommand has only the common flags."""


def name_argument(kind: str, metavar: str = "NAME", words: str | None = None) -> Arguments:
    """One name, which the shell completes with objects of a kind (objects.NAMES)."""

    def add(parser: argparse.ArgumentParser) -> None:
        completed(parser.add_argument(metavar.lower(), metavar=metavar, help=words), kind)

    return add


def names_argument(kind: str) -> Arguments:
    """One or more names, completed in the same way."""

    def add(parser: argparse.ArgumentParser) -> None:
        completed(parser.add_argument("names", metavar="NAME", nargs="+"), kind)

    return add


def add_duration(
    parser: argparse._ActionsContainer,
    flag: str,
    example: str,
    words: str,
    *,
    dest: str | None = None,
    default: int | None = None,
) -> None:
    """A flag whose value is a duration, like 90m, 24h or 7d."""
    parser.add_argument(
        flag, dest=dest, type=times.duration_of, default=default, metavar=example, help=words
    )


def add_lifetime(
    parser: argparse.ArgumentParser, example: str, words: str, *, default: int | None = None
) -> None:
    """`--for`: the lifetime of the credential that the command requests."""
    add_duration(parser, "--for", example, words, dest="lifetime", default=default)


def add_wait(parser: argparse.ArgumentParser) -> None:
    add_duration(parser, "--wait", "1m", "wait so long (default: 1m)", default=60)


def add_certificate_and_key(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("--cert", type=Path, metavar="FILE", help=words)
    parser.add_argument("--key", type=Path, metavar="FILE", help="and its key")


def add_secret_out(parser: argparse.ArgumentParser) -> None:
    """`--out`, for `print_or_write`."""
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there, mode 0600")


def print_or_write(text: str, out: Path | None) -> None:
    """Print a text with secrets, or write it to a file that only its owner can read."""
    if out is None:
        say(text.rstrip("\n"))
        if _is_read_by_others(sys.stdout):
            remark("others can read the file it was written to; use --out FILE")
    else:
        write_secret(out, text.encode())
        say(f"wrote {out}")


def _is_read_by_others(stream: IO[str]) -> bool:
    """Whether it is a file that its group or everybody can read."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # a stream without a file, as in tests
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    from orchid.kernel.credentials.files import write_private

    try:
        write_private(path, data)
    except OSError as error:
        raise Complaint(f"cannot write {path}: {error.strerror}") from None
