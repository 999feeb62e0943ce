"""`orchid serve`: start the server.

Here it is only started and told what to say; what is built and run is assembly/.
"""

import argparse
import asyncio
import shlex
from typing import Any

from orchid.commands.serving_flags import add_settings as configure
from orchid.commands.serving_flags import until_signal
from orchid.commands.terminal.output import say
from orchid.settings import Settings
from orchid.wire.naming import CLIENT

__all__ = ["configure", "run"]


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal asks for the end."""
    from orchid.assembly import serving

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        await serving.serve(settings, stop, _announce)

    return until_signal(chosen, serve)


def _announce(settings: Any, files: Any) -> None:
    """What to type next."""
    kubeconfig, authority = (
        shlex.quote(str(path)) for path in (files.kubeconfig, files.ca_certificate)
    )
    say(
        f"orchid serves {settings.url}\n"
        f"  orchid status --kubeconfig {kubeconfig}\n"
        f"  {CLIENT} --kubeconfig {kubeconfig} get serviceaccounts -A\n"
        f"  curl --cacert {authority} {settings.url}/readyz"
    )
