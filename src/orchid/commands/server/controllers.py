"""`orchid controllers`: run the controllers of a server in a process of their own.

For a server with `--controllers ''`. See assembly/ and controllers/.
"""

import argparse
import asyncio
from pathlib import Path

from orchid.commands.server.serving_flags import add_settings, until_signal
from orchid.kernel.settings.checking import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig of the server (default: admin.kubeconfig in the data directory)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Work until a signal."""
    from orchid.assembly.controllers import remote_controllers

    async def control(settings: Settings, stop: asyncio.Event) -> None:
        default = settings.data_dir / "admin.kubeconfig"
        await remote_controllers.control(settings, arguments.kubeconfig or default, stop)

    return until_signal(arguments, control)
