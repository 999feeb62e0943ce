"""A bare TLS server that answers every request with the same bytes: what no server can do without.

    python -m benchmarks.echo PORT CERTIFICATE KEY BYTES

It reads no more of a request than that it has come, so each must come in one piece. `running` has
one for as long as a block lasts.
"""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import uvloop

from tests.e2e.serving import free_port

USUAL_BYTES = 500  # about as long as an account
CERTIFY = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"


class Echo(asyncio.Protocol):
    """One connection."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer)


@contextmanager
def running(
    directory: Path, core: int, answer_bytes: int = USUAL_BYTES
) -> Iterator[tuple[int, int]]:
    """A server of our own, on one core: its port and its process."""
    certificate, key, port = directory / "echo.crt", directory / "echo.key", free_port()
    made = [*CERTIFY.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    command = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.echo", str(port)]
    command += [str(certificate), str(key), str(answer_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it listens now
            yield port, process.pid
        finally:
            process.kill()


async def serve(port: int, certificate: str, key: str, answer_bytes: int) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % answer_bytes + b"x" * answer_bytes
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo(answer), "127.0.0.1", port, ssl=tls)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
