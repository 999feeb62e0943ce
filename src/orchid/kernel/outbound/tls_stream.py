"""TLS to a server that is not ours, in turns of the event loop that it cannot make long.

The event loop's own TLS decrypts everything that it has received in one turn. Records without data
are expensive: a key update (RFC 8446, 4.6.3) has 27 bytes, and a quarter of a megabyte of them
takes half a second. So a turn decrypts a small piece, too many bytes without data end the
connection, and so does a handshake with more certificates than a chain has.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from orchid.kernel.outbound.failures import AnswerRefused

_PIECE: Final = 4 << 10  # decrypted in a turn
_MOST_HANDSHAKE: Final = 32 << 10  # bytes of the server: its chain, and the names of accepted CAs
# Bytes without data that are allowed: session tickets, and more than one record.
_MOST_EMPTY: Final = 24 << 10
_SPARSE: Final = 80  # allowed bytes on the wire per byte of data: a record with one byte has 23..85


class TlsStream:
    """The client's end of TLS on one connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
        server_name: str,
    ) -> None:
        """Raises ValueError for a name that no certificate has."""
        self._reader = reader
        self._writer = writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._empty = 0  # bytes that came without data
        self._is_full = False  # the last piece

    async def shake_hands(self) -> None:
        """Raises OSError, or AnswerRefused."""
        total = 0
        while not self._run(self._tls.do_handshake):
            received = await self._receive()
            if not received:
                raise ConnectionResetError
            total += received
            if total > _MOST_HANDSHAKE:
                raise AnswerRefused("TLS failed: the handshake is too long")

    @property
    def is_open(self) -> bool:
        return not (self._reader.at_eof() or self._writer.is_closing())

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    async def read(self) -> bytes:
        """The next data; b"" at the end. Raises OSError, or AnswerRefused."""
        while True:
            data, is_end = self._decrypted()
            if data or is_end:
                self._empty = max(0, self._empty - _SPARSE * len(data))
                return data
            received = await self._receive()
            if not received:
                return b""  # without a close alert: the answer knows whether it is complete
            self._empty += received
            if self._empty > _MOST_EMPTY:
                raise AnswerRefused("TLS failed: too many records without data")

    def close(self) -> None:
        # A TLS close handshake could take for ever.
        self._writer.transport.abort()

    def _decrypted(self) -> tuple[bytes, bool]:
        """The data of the records that have arrived, and whether the server has closed TLS."""
        parts: list[bytes] = []
        is_end = False

        def read() -> None:
            nonlocal is_end
            while part := self._tls.read(_PIECE):
                parts.append(part)
            is_end = True

        self._run(read)
        return b"".join(parts), is_end

    def _run(self, step: Callable[[], None]) -> bool:
        """Run a step of TLS and send its output; False if it needs more bytes of the server."""
        try:
            step()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()  # after an error, this sends the alert
        return True

    async def _receive(self) -> int:
        """Wait for a piece; returns its length, 0 at the end."""
        if self._is_full:  # more may have arrived, which would be returned in the same turn
            await asyncio.sleep(0)
        data = await self._reader.read(_PIECE)
        self._is_full = len(data) == _PIECE
        self._incoming.write(data)
        return len(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())
