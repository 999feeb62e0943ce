"""`orchid serve`: start the server.

assembly/ builds and runs it. With systemd (Type=notify) the command reports when it serves.
"""

import argparse
import asyncio
import contextlib
import os
import shlex
import socket
from typing import Any

from orchid.commands.server.serving_flags import add_settings as configure
from orchid.commands.server.serving_flags import until_signal
from orchid.kernel.settings.checking import Settings
from orchid.kernel.terminal.output import say
from orchid.kernel.wire.naming import CLIENT

__all__ = ["configure", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    from orchid.kernel.base import process_memory

    process_memory.prepare()  # before the imports, which are most of the start
    from orchid.assembly import serving

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        await serving.serve(settings, stop, _announce)

    return until_signal(arguments, serve)


def _announce(settings: Any, files: Any) -> None:
    """The next commands to type."""
    kubeconfig, authority = (
        shlex.quote(str(path)) for path in (files.kubeconfig, files.ca_certificate)
    )
    say(
        f"orchid serves {settings.url}\n"
        f"  orchid status --kubeconfig {kubeconfig}\n"
        f"  orchid console --kubeconfig {kubeconfig}\n"
        f"  {CLIENT} --kubeconfig {kubeconfig} get serviceaccounts -A\n"
        f"  curl --cacert {authority} {settings.url}/readyz"
    )
    _notify_supervisor(os.environ.get("NOTIFY_SOCKET", ""))


def _notify_supervisor(address: str) -> None:
    """Notify systemd that the start is complete (sd_notify(3)); no listener is no failure."""
    if not address:
        return
    if address.startswith("@"):  # the notation of an abstract socket
        address = f"\0{address[1:]}"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor,
    ):
        supervisor.setblocking(False)
        supervisor.sendto(b"READY=1", address)
