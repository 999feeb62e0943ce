"""A TLS server on loopback that answers with prepared bytes, for calls that go out."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trustme

CA = trustme.CA()
PEM = CA.cert_pem.bytes().decode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers every request with the same bytes and keeps what it was sent."""

    def __init__(self, answers: list[bytes | None]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.client_certificates: list[bool] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/hook?x=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        self.client_certificates.append(tls.getpeercert(binary_form=True) is not None)
        head = await reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.requests.append(head + await reader.readexactly(length))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:  # say nothing until the client goes
            await reader.read()
        else:
            writer.write(answer)
        writer.close()


@asynccontextmanager
async def serving(*answers: bytes | None) -> AsyncIterator[Server]:
    server = Server(list(answers))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    context.load_verify_locations(cadata=PEM)
    context.verify_mode = ssl.CERT_OPTIONAL
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
