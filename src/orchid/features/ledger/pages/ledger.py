"""The ledger over HTTP, as specified by C2SP tlog-tiles, below /ledger/.

    checkpoint           the signed size of the log; changes
    tile/<L>/<N>[.p/<W>] hashes; never change
    tile/entries/<N>[…]  entries; never change
    key                  the verifier key; ours, not in the specification

Access is authorized before, by the path (`nonResourceURLs`). Clients create proofs themselves.
"""

from collections.abc import Awaitable, Callable

from orchid.kernel.http.messages import Response
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import TEXT, head
from orchid.kernel.store.interface import StoreError
from orchid.kernel.tlog.audit import LogSource
from orchid.kernel.tlog.tiles import BadTile, Tile
from orchid.kernel.wire.errors import MethodNotAllowed, NoSuchRoute, Unavailable

PREFIX = "/ledger/"
FOR_EVER = b"private, max-age=31536000, immutable"
_BYTES = b"Content-Type: application/octet-stream\r\n"


class LedgerPages:
    """Everything below the prefix; call it with an exchange."""

    def __init__(self, log: LogSource, vkey: Callable[[], Awaitable[str | None]]) -> None:
        self._log = log
        self._vkey = vkey

    async def __call__(self, state: RequestState) -> Response:
        if state.http.method != "GET":
            raise MethodNotAllowed
        name = state.target.path.removeprefix(PREFIX)
        try:
            return await self._answer(state, name)
        except StoreError as failure:
            raise Unavailable(f"the store does not answer: {failure}") from failure

    async def _answer(self, state: RequestState, name: str) -> Response:
        if name == "checkpoint":
            return _found(state, await self._log.checkpoint(), TEXT)
        if name == "key":
            vkey = await self._vkey()
            return _found(state, f"{vkey}\n".encode() if vkey else None, TEXT)
        try:
            tile = Tile.at(name)
        except BadTile:
            raise NoSuchRoute from None
        return _found(state, await self._log.tile(tile), _BYTES, cache=FOR_EVER)


def _found(
    state: RequestState, data: bytes | None, headers: bytes, cache: bytes = b"no-cache, private"
) -> Response:
    if data is None:
        raise NoSuchRoute
    return Response(200, head(state, headers, cache=cache), data)
