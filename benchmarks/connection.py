"""A kept TLS connection on an event loop, with as little HTTP as the measurements need."""

import asyncio
import json
import re
import ssl

from benchmarks.setting import HEADERS

LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
NAME = re.compile(rb'"name":"([^"]+)"')


class Refused(Exception):
    """The server answered with 300 or above."""


class Connection:
    """One request at a time, with the administrator's token."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        # The server is ours and on loopback, and its certificate is as new as itself.
        tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 22))

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> bytes:
        data = json.dumps(body).encode() if body is not None else b""
        self._write(method, path, data, headers | {"Content-Length": str(len(data))})
        status, length = await self._head()
        content = await self._reader.readexactly(length)
        if status >= 300:
            raise Refused(f"{method} {path}: {status} {content.decode(errors='replace')}")
        return content

    async def watch(self, path: str, waiting: dict[bytes, asyncio.Future[None]]) -> None:
        """Resolve the future of each name whose certificate has arrived."""
        self._write("GET", path, b"", {})
        await self._head()
        while line := await self._reader.readline():
            if b'"certificate":"' in line and (name := NAME.search(line)):
                issued = waiting.pop(name[1], None)
                if issued is not None:
                    issued.set_result(None)

    async def read_stream(self, path: str) -> None:
        """Read a chunked answer to its end."""
        self._write("GET", path, b"", {})
        while not (await self._reader.read(65536)).endswith(b"0\r\n\r\n"):
            if self._reader.at_eof():
                return

    def close(self) -> None:
        self._writer.close()

    def _write(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> None:
        lines = [f"{name}: {value}" for name, value in (HEADERS | headers).items()]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: bench", *lines, "", ""])
        self._writer.write(head.encode() + data)

    async def _head(self) -> tuple[int, int]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        return int(head.split(b" ", 2)[1]), int(length[1]) if length else 0
