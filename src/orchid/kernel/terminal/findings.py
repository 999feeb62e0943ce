"""Findings of checks, and the installation that is checked."""

import datetime
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.terminal.connection import ServerConnection

GOOD: Final = "good"
NOTE: Final = "note"  # neither good nor bad: something could not be checked, with the reason
SOON: Final = "soon"  # it will be wrong if nobody acts
WRONG: Final = "wrong"


class Finding(msgspec.Struct, frozen=True):
    """A finding; `advice` says what to do about it."""

    state: str
    text: str
    advice: str = ""


def good(text: str) -> Finding:
    return Finding(GOOD, text)


def note(text: str) -> Finding:
    return Finding(NOTE, text)


def soon(text: str, advice: str = "") -> Finding:
    return Finding(SOON, text, advice)


def wrong(text: str, advice: str = "") -> Finding:
    return Finding(WRONG, text, advice)


class Installation(msgspec.Struct, frozen=True):
    """A server's settings and files, and the server itself if it responds.

    `refusing`: a server that responds, but does not accept the credential of its administrator.
    """

    settings: Settings
    files: DataDirectory
    now: datetime.datetime
    server: ServerConnection | None = None
    refusing: ServerConnection | None = None


Check = Callable[[Installation], Iterable[Finding]]
