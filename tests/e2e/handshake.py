"""A TLS handshake on loopback between two contexts, and what each side saw of the other."""

import socket
import ssl
import threading
from typing import Any


def shaken(
    accepting: ssl.SSLContext, calling: ssl.SSLContext, server_name: str
) -> tuple[Any, bytes | None]:
    """Give the server's certificate as the client saw it, and the client's as DER, if any.

    Whatever the client does not like about the server is raised.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    clients: list[bytes | None] = []

    def serve() -> None:
        connection, _ = listener.accept()
        try:
            with connection, accepting.wrap_socket(connection, server_side=True) as secured:
                clients.append(secured.getpeercert(binary_form=True))
                secured.sendall(b".")
        except OSError:
            return  # the other side did not like us, and says so itself

    server = threading.Thread(target=serve)
    server.start()
    try:
        with (
            socket.create_connection(listener.getsockname()) as raw,
            calling.wrap_socket(raw, server_hostname=server_name) as connection,
        ):
            connection.recv(1)  # the server has made up its mind about us
            seen = connection.getpeercert()
    finally:
        server.join()
        listener.close()
    return seen, clients[0]
