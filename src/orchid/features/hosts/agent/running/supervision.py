"""Messages to systemd (sd_notify): ready, status text, and the watchdog.

Without NOTIFY_SOCKET everything here does nothing.
"""

import contextlib
import os
import socket
from collections.abc import Mapping


class Supervisor:
    """The service manager that started this process, if any."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._is_ready = False
        self._status = ""

    def alive(self) -> None:
        """Reset the watchdog."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Show a status in `systemctl status`."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def ready(self) -> None:
        """Complete the start, once."""
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(text.replace("\n", " ").encode(), self._address)


def of_environment() -> Supervisor:
    return Supervisor(os.environ)
