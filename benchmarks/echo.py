"""A bare TLS server that answers every request with the same bytes: a floor for latency.py.

    python -m benchmarks.echo PORT CERTIFICATE KEY

It reads no more of a request than that it has come, so each must come in one piece.
"""

import asyncio
import ssl
import sys
from typing import cast

import uvloop

BODY = b"x" * 500  # about as long as an account
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Echo(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)


async def serve(port: int, certificate: str, key: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, ssl=tls)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), *sys.argv[2:]))
