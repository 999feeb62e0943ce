"""TLS on one connection: a protocol to the TCP transport below, a transport to the protocol above.

Start with `data_received` and `write`. OpenSSL works on two memory buffers; this module moves bytes
between them and the socket. It replaces the event loop's own TLS, which calls OpenSSL again after
every read and handles an exception, a quarter of the cost of a short request
(docs/decisions/0015-tls-channel.md).

It never interprets the data, and verifies no certificate: see files.py for the handshake.

Records without data are expensive: a key update (RFC 8446, 4.6.3) has 27 bytes and takes OpenSSL 20
us or more, and one call decrypts its whole input. So the input is small, smallest for
unauthenticated clients; after a millisecond the connection waits for its next turn; and too many
records without data end it. Clients that have sent many, or send much without authentication, wait
for a turn each time: thousands of connections with a little each would cost as much.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import Any, Final, cast

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.scheduling.shared_result import Step
from orchid.kernel.http.stages import Stages


class ServedProtocol(asyncio.Protocol):
    """The protocol above: it knows whether a request on the connection was authenticated."""

    __slots__ = ()

    @property
    def known(self) -> bool:
        return False

    def parse(self, data: bytes) -> None:
        """Read requests, and leave them for `proceed`."""
        self.data_received(data)

    def proceed(self) -> None:
        """Handle the requests that were read."""


Handshaken = Callable[["TlsChannel"], ServedProtocol]
Ended = Callable[["TlsChannel"], None]

# Encrypted per call: OpenSSL's buffers grow to the largest piece and never shrink.
_PIECE: Final = 64 << 10
# Decrypted per call: for authenticated clients, and for all others.
_PIECE_IN: Final = 8 << 10
_SMALL_PIECE_IN: Final = 2 << 10
_STRANGERS_PIECE_IN: Final = 512  # takes as long as a request
_LARGE_READ: Final = 32 << 10  # after so much, other connections get their turn
_LONGEST_TURN: Final = 0.001  # seconds of decrypting for one connection
# Bytes without data that are allowed: more than one record, which has 16 KiB and its overhead.
_MOST_EMPTY: Final = 24 << 10
# Allowed bytes on the wire per byte of data: a record with one byte has 24 to 69.
_SPARSE: Final = 80
# The same, and some more, for clients that need not wait for a turn.
_THIN: Final = 8
_SMALL_RECORDS: Final = 256
_HELD_BACK: Final = 16 << 10  # bytes of responses that may wait to be encrypted together
_Bytes = bytes | bytearray | memoryview


class TlsChannel(asyncio.Protocol, asyncio.Transport):
    """The server's end of TLS.

    Until the handshake is done, `arrived` gets its next step whenever there is data, and runs it
    now or soon. After it `opened` returns the protocol that is served from then on. A channel that
    ends before that is reported to `failed` only.
    """

    __slots__ = (
        "_arrived",
        "_backlog",
        "_closing",
        "_connected",
        "_direct",
        "_empty",
        "_failed",
        "_incoming",
        "_later",
        "_monotonic",
        "_opened",
        "_outgoing",
        "_paused",
        "_protocol",
        "_queued",
        "_received",
        "_soon",
        "_staged",
        "_stages",
        "_tls",
        "_transport",
        "_unsent",
        "_waits",
        "deadline",
    )

    _transport: asyncio.Transport

    def __init__(
        self,
        context: ssl.SSLContext,
        arrived: Callable[[Step], None],
        opened: Handshaken,
        failed: Ended,
        *,
        deadline: float,
        later: Callable[[Step], None],
        soon: Callable[[Step], None],
        stages: Stages,
        monotonic: Monotonic,
    ) -> None:
        """`later` runs a step in a next turn of the event loop, a few of them in each; `soon` in
        this one, if there is room in it. `stages` runs the steps of short requests.
        """
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._arrived = arrived
        self._opened = opened
        self._failed = failed
        self._later = later
        self._soon = soon
        self._stages = stages
        self._monotonic = monotonic
        self._protocol: ServedProtocol | None = None
        self._closing = False
        self._connected = False
        self._waits = False  # for its turn in the handshake
        self._paused = False  # the protocol above has paused reading
        self._received = b""  # a short piece that waits for its stage
        self._staged = False  # a stage will ask for that piece, even if it was handled before
        self._unsent = b""  # short responses that wait for theirs
        self._backlog = bytearray()  # received data that waits to be decrypted
        self._queued = False  # for its turn to do that
        self._direct = _STRANGERS_PIECE_IN  # bytes that are decrypted without waiting for a turn
        self._empty = 0  # bytes that came without data
        self.deadline = deadline  # for the handshake

    # Callbacks of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connected = True
        if self._closing:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._closing and self._protocol is None:
            return
        incoming, protocol = self._incoming, self._protocol
        if protocol is None:
            incoming.write(data)
            self._wait_for_turn()
            return
        if self._received:
            self._decrypt_now()  # two pieces in one turn: it is no short request
        elif len(data) <= self._direct and not (self._backlog or self._staged):
            self._received, self._staged = data, True
            self._stages.receive(self)
            return
        self._backlog += data
        if self._queued:
            return
        if self._direct == _SMALL_PIECE_IN:
            self._decrypt_backlog(rests=len(data) > _LARGE_READ)
            return
        # Of very many connections, a few get their turn.
        self._queued = True
        self._soon(self._decrypt_backlog)
        if self._queued and not self._closing:
            self._transport.pause_reading()

    @property
    def known(self) -> bool:
        """Whether a request on the connection was authenticated."""
        return self._protocol is not None and self._protocol.known

    def decrypt_received(self) -> bytes:
        """Decrypt a short piece in its stage."""
        self._staged = False
        return self._take_received()

    def _take_received(self) -> bytes:
        received, self._received = self._received, b""
        if not received or self._protocol is None:
            return b""  # it has been handled, or the connection is gone
        return self._decrypt(received, self._protocol)

    def parse(self, data: bytes) -> None:
        """Pass on decrypted data."""
        if self._protocol is not None:
            self._protocol.parse(data)

    def handle(self) -> None:
        """Let the requests in it be handled."""
        if self._protocol is not None:
            self._protocol.proceed()

    def _decrypt_now(self) -> None:
        """Do not wait for the stage, which has begun to wait before any later piece."""
        if data := self._take_received():
            self.parse(data)
            self.handle()

    def _decrypt(self, data: bytes, protocol: ServedProtocol) -> bytes:
        """Decrypt a piece; its data all together, or nothing."""
        incoming, tls = self._incoming, self._tls
        incoming.write(data)
        sent, data, ended = len(data), b"", False
        try:
            # Ciphertext is longer than its plaintext, so this is a good size to request.
            data = part = tls.read(size := incoming.pending)
            # Only a part of the requested length may have left something of its record behind.
            while part and (size := incoming.pending or (len(part) == size and tls.pending())):
                part = tls.read(size)
                data += part
            ended = not part  # a close alert
        except ssl.SSLWantReadError:
            pass  # the rest of a record is still on its way
        except ssl.SSLError:
            ended = True  # not TLS
        if self._outgoing.pending:
            self._flush()  # a response of the protocol itself, as to a key update
        if sent > _THIN * len(data) + _SMALL_RECORDS:
            self._direct = 0
        elif self._direct == _STRANGERS_PIECE_IN and protocol.known:
            self._direct = _SMALL_PIECE_IN
        if self._empty or sent > _SPARSE * len(data):
            self._empty = max(0, self._empty + sent - _SPARSE * len(data))
            if self._empty > _MOST_EMPTY:
                self.abort()
                return b""
        if ended:
            return self._last(data, protocol)
        return data

    def _last(self, data: bytes, protocol: ServedProtocol) -> bytes:
        """Pass on the last data of the peer, and close."""
        if data:
            protocol.data_received(data)
        if not self._closing:
            protocol.eof_received()
            self.close()
        return b""

    def _decrypt_backlog(self, *, rests: bool = False) -> None:
        """Decrypt received data, for a moment; the rest waits, and so does the socket.

        `rests`: let others go first in any case, since the socket would continue for megabytes.
        """
        self._queued = False
        backlog, protocol, end = self._backlog, self._protocol, self._monotonic() + _LONGEST_TURN
        while backlog and protocol is not None and not (self._closing or self._paused):
            is_trusted = protocol.known and not self._empty
            piece = bytes(backlog[: _PIECE_IN if is_trusted else _SMALL_PIECE_IN])
            del backlog[: len(piece)]
            if data := self._decrypt(piece, protocol):
                protocol.data_received(data)
            if self._monotonic() >= end:
                break
        if self._closing or self._paused:
            return
        if backlog or rests:
            self._transport.pause_reading()
            self._go_on_later()
        else:
            self._transport.resume_reading()

    def _go_on_later(self) -> None:
        if not self._queued:
            self._queued = True
            self._later(self._decrypt_backlog)

    def eof_received(self) -> bool:
        """A closed socket ends the channel: TLS has no half-closed connections here."""
        self._decrypt_now()
        if self._protocol is not None:
            self._protocol.eof_received()
        return False

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._unsent = b""
        self._decrypt_now()  # what was sent before is still handled
        self._backlog.clear()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)
        else:
            self._failed(self)
        # A hundred kilobytes, which should not wait for the garbage collector with the rest.
        del self._tls, self._incoming, self._outgoing

    # The handshake

    def _wait_for_turn(self) -> None:
        if not self._waits:
            self._waits = True
            self._arrived(self.shake_hands)
        if self._waits and self._incoming.pending > _LARGE_READ:
            self._transport.pause_reading()  # a waiting connection must not fill our memory

    def shake_hands(self) -> None:
        """Do the next step, and read the data after the last one."""
        self._waits = False
        if self._closing:
            return
        self._transport.resume_reading()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, OSError):
            self._flush()  # the alert with the reason
            self._closing = True
            self._transport.close()
        else:
            self._flush()
            self.deadline = inf
            self._protocol = self._opened(self)
            self._protocol.connection_made(self)
            if self._incoming.pending:
                self.data_received(self._incoming.read())

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    # Calls of the protocol above

    def write(self, data: _Bytes) -> None:
        if self._closing:
            return
        if self._stages.handling and len(self._unsent) + len(data) <= _HELD_BACK:
            if not self._unsent:
                self._stages.send_later(self)
            self._unsent += data
            return
        self.encrypt_unsent()
        self._encrypt(data)

    def encrypt_unsent(self) -> None:
        """Encrypt and send the responses that were held back."""
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            self._encrypt(unsent)

    def _encrypt(self, data: _Bytes) -> None:
        if len(data) <= _PIECE:
            self._tls.write(data)
            self._transport.write(self._outgoing.read())
            return
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            self._tls.write(view[start : start + _PIECE])
            self._transport.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[_Bytes]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Send a close alert and close once everything is sent; the peer's is not waited for."""
        if self._closing:
            return
        self.encrypt_unsent()
        self._closing = True
        with suppress(ssl.SSLError, OSError):  # it would wait for the peer's
            self._tls.unwrap()
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._closing = True
        self._unsent = b""
        if self._connected:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._backlog:
            self._go_on_later()
        elif not self._queued:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._transport.get_extra_info(name, default)
