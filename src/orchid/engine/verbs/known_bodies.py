"""Bodies of reviews that came before, byte for byte: they are not decoded and prepared again.

Whoever reviews a token at each of its uses sends the same body each time. `KnownBodies` keeps what
follows from the bytes alone: the object in them, and who owns which of its fields. What a review
finds is never kept. A body is kept when it comes a second time, and only so many are, since they
may hold tokens. Nobody is asked here who is calling: that is known when a body is decoded.
"""

from typing import Any, Final

from orchid.engine.catalog import Catalog
from orchid.engine.kind import Kind
from orchid.engine.request import KnownBody, Request
from orchid.engine.verbs.request_body import decode_object

MOST_BODIES: Final = 1024  # about 2 kB each, if they hold a token
LONGEST: Final = 4096  # bytes


class KnownBodies:
    """The last bodies that came more than once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[bytes, KnownBody] = {}
        # Of bodies that came once. No more than are kept: those that come again only after so many
        # others would push each other out, and be made anew all the same.
        self._noted: set[int] = set()

    def decode(self, kind: Kind[Any], body: bytes, request: Request) -> Any:
        """The object in the body of a request without options."""
        known = self._known.get(body)
        if known is not None and known.kind is kind:
            request.known_body = known
            return known.new
        new = decode_object(self._catalog, kind, body, request)
        if len(body) <= LONGEST and not request.warnings:
            mark, noted = hash(body), self._noted
            if mark in noted:
                self._keep(body, KnownBody(kind, new))
            elif len(noted) < MOST_BODIES:
                noted.add(mark)
            else:
                noted.clear()
        return new

    def _keep(self, body: bytes, made: KnownBody) -> None:
        known = self._known
        if len(known) >= MOST_BODIES:
            del known[next(iter(known))]
        known[body] = made
