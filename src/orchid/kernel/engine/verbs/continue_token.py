"""The continue token: the start of the next page, and its revision.

Opaque to clients, but readable: unpadded base64url of
`{"v":"meta.orch.io/v1","rv":7,"start":"/last-key\\u0000"}`. A received token is not trusted: the
start key stays inside the listed collection.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from orchid.kernel.wire.errors import BadRequest, Expired
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.status import ListMeta
from orchid.kernel.wire.struct import Wire

LATEST = -1

TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


class Position(msgspec.Struct, frozen=True):
    """Continue with the first key at or after `start`, as of `revision`."""

    start: str
    revision: int


class _Token(Wire):
    v: str = ""
    rv: int = 0
    start: str = ""


def encode(last_key: str, revision: int, naming: Naming) -> str:
    """The token for the page after `last_key`, relative to the collection."""
    return encode_start(last_key + "\0", revision, naming)


def encode_start(start: str, revision: int, naming: Naming) -> str:
    token = _Token(v=f"{naming.meta}/v1", rv=revision, start="/" + start)
    return urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def decode(text: str, naming: Naming) -> Position:
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(raw, type=_Token)
    except (ValueError, binascii.Error, RecursionError) as failure:
        raise _bad(str(failure)) from None
    version = f"{naming.meta}/v1"
    if token.v != version:
        raise _bad(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise _bad(f"incorrect encoded start resourceVersion (version {version})")
    if not token.start:
        raise _bad(f"encoded start key empty (version {version})")
    start = token.start.removeprefix("/")
    if any(part in (".", "..") for part in start.rstrip("\0").split("/")):
        raise _bad(token.start)
    return Position(start, max(token.rv, LATEST))


def expired(position: Position, naming: Naming) -> Expired:
    """410, with a token that continues from the same key at the latest revision."""
    error = Expired(TOO_OLD)
    error.metadata = ListMeta(continue_=encode_start(position.start, LATEST, naming))
    return error


def _bad(why: str) -> BadRequest:
    return BadRequest(f"invalid continue token: continue key is not valid: {why}")
