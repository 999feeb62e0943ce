"""The peer of a transport: who it is, and what it has not read yet."""

import asyncio
import fcntl
import sys
import termios
from typing import Any

from orchid.kernel.http.messages import Peer
from orchid.kernel.http.tls.files import intermediates_of


def peer_of(transport: asyncio.BaseTransport, *, verified_by_tls: bool) -> Peer:
    """Describe who is at the other end, with the certificate it showed, if any."""
    name: Any = transport.get_extra_info("peername")
    address = host_and_port(name[0], name[1]) if isinstance(name, tuple) else ""
    tls: Any = transport.get_extra_info("ssl_object")
    certificate = tls.getpeercert(True) if tls is not None else None
    if certificate is None:
        return Peer(address)
    return Peer(address, certificate, chain=intermediates_of(tls), verified_by_tls=verified_by_tls)


def host_and_port(host: str, port: int) -> str:
    """An address as in a URL: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Count bytes that wait in a transport and behind it in the kernel.

    The kernel buffers megabytes, and takes more from the transport only when much of that is gone:
    a client behind a slow line would seem to read nothing for minutes.
    """
    socket = transport.get_extra_info("socket")
    try:
        held = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
    except (AttributeError, OSError, ValueError):  # no socket, or closed by now
        return transport.get_write_buffer_size()
    return transport.get_write_buffer_size() + int.from_bytes(held, sys.byteorder)
