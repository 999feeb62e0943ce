"""The peer of a transport."""

import asyncio
from typing import Any

from orchid.server.sockets.messages import Peer
from orchid.server.sockets.tls import intermediates_of


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
