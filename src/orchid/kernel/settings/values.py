"""Types of settings: each parses its text while the settings are read, and remains that text.

A text that does not fit raises ValueError; reading.py adds the flag. An empty Url or Address is a
setting that is not used.
"""

from datetime import timedelta
from typing import ClassVar, Self

from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.options import duration

LAST_PORT = 65_535


class Value(str):
    """A text with a form of its own."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        value = super().__new__(cls, text)
        value.require_form()
        return value

    def require_form(self) -> None:
        """Raise ValueError if the text does not have the form; without one, every text has it."""


class Duration(Value):
    """A time span like 90s or 5m, not negative."""

    __slots__ = ()

    def require_form(self) -> None:
        try:
            seconds = self.seconds
        except BadRequest:
            raise ValueError(f"{str(self)!r} is not a duration, like 90s or 5m") from None
        if seconds < 0:
            raise ValueError("a duration may not be negative")

    @property
    def seconds(self) -> float:
        return duration(self)

    @property
    def delta(self) -> timedelta:
        return timedelta(seconds=self.seconds)


class Choice(Value):
    """One of a few words; a subclass lists them."""

    __slots__ = ()
    choices: ClassVar[tuple[str, ...]]

    def require_form(self) -> None:
        if self not in self.choices:
            raise ValueError(f"{str(self)!r} is none of {', '.join(self.choices)}")


class Url(Value):
    """A URL that clients can fetch: it is written into certificates."""

    __slots__ = ()

    def require_form(self) -> None:
        if self and not (self.startswith(("http://", "https://")) and is_plain_url(self)):
            raise ValueError(f"{str(self)!r} is not a URL like http://pki.example.com")


class Address(Value):
    """A host and a port to listen on."""

    __slots__ = ()

    def require_form(self) -> None:
        _, colon, port = self.rpartition(":")
        if self and not (colon and port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
            raise ValueError(f"{str(self)!r} is not an address and a port, like 127.0.0.1:6443")

    @property
    def parts(self) -> tuple[str, int]:
        host, _, port = self.rpartition(":")
        return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 -- ":6443" means everywhere


def is_plain_url(text: str) -> bool:
    return bool(text.partition("://")[2].rstrip("/")) and is_plain(text)


def is_plain(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and not set(text) & set(' "<>?#%')
