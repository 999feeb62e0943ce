"""Get: one object, as fresh as requested."""

from typing import TypeVar

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import BadRequest, Timeout
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.status import StatusCause
from orchid.kernel.wire.text import quote

T = TypeVar("T", bound=Object)

LARGEST_VERSION = 2**64 - 1
MOST_DIGITS = len(str(LARGEST_VERSION))
FUTURE_PATIENCE = 3.0  # seconds to wait for a revision that has not happened yet


class Reading:
    """The verb get."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def get(self, kind: Kind[T], request: Request) -> Entry[T]:
        version = request.options.resource_version
        if version in ("", "0"):
            if not version:
                await self._feed.fresh_for_request()
        else:
            await at_least(self._feed, parse_version(version))
        target = request.target
        return self._feed.cache(kind).find(kind, target.namespace, target.name)


def parse_version(text: str, *, of: str = "resourceVersion: Invalid value: ") -> int:
    """A resourceVersion of a client; anything but a number is an error.

    `of` begins the message for one from the query; one in a body has no such prefix.
    """
    try:
        return revision_number(text)
    except ValueError as fault:
        named = f"{of}{quote(text)}: " if of else ""
        raise BadRequest(f"{named}strconv.ParseUint: parsing {quote(text)}: {fault}") from None


def revision_number(text: str) -> int:
    """An unsigned 64-bit decimal number; raises ValueError with the reason."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("invalid syntax")
    digits = text.lstrip("0")
    # More digits cannot fit, and the interpreter refuses to convert very many.
    if len(digits) > MOST_DIGITS or int(digits or "0") > LARGEST_VERSION:
        raise ValueError("value out of range")
    return int(digits or "0")


async def at_least(feed: Feed, revision: int) -> None:
    """Wait a moment for a revision; raises Timeout if it does not come."""
    if not await feed.reach_within(revision, FUTURE_PATIENCE, bounded=True):
        raise version_too_large(revision, feed.revision)


def version_too_large(asked: int, current: int) -> Timeout:
    return Timeout(
        f"Too large resource version: {asked}, current: {current}",
        StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version"),
        retry_after=1,
    )
