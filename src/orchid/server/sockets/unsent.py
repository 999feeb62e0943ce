"""The number of written bytes that the peer has not read yet."""

import asyncio
import fcntl
import sys
import termios


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
