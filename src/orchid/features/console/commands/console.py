"""`orchid console`: requests, certificates and revocations in a browser, on this machine.

    orchid console                    prints a link that opens the console once, within a minute
    orchid console --open             and opens it in the browser
    orchid console --port 8123        at a fixed port, for `ssh -L 8123:127.0.0.1:8123`

The pages use the credential of the kubeconfig, so that every page and action has the rights of its
user. It listens on loopback only. Enter prints another link; Ctrl-C ends it and every session.
"""

import argparse
import asyncio
import contextlib
import functools
import os
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path

from orchid.kernel.terminal import kubeconfig_file
from orchid.kernel.terminal.connection import add_flags
from orchid.kernel.terminal.output import USAGE, Complaint, remark, say

PORTS = range(1024, 65_536)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="open the link in the browser")
    parser.add_argument(
        "--port", type=int, default=0, metavar="PORT", help="the port (default: a free one)"
    )
    add_flags(parser, forms=())


def run(arguments: argparse.Namespace) -> int:
    if arguments.port and arguments.port not in PORTS:
        raise Complaint(f"--port must be between {PORTS.start} and {PORTS.stop - 1}", USAGE)
    try:
        import jinja2  # noqa: F401 -- an extra
    except ImportError:
        raise Complaint(
            "the console needs the extra console: pip install 'orchid-identity[console]'", USAGE
        ) from None
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    from orchid.features.console.api import Api
    from orchid.features.console.kubeconfig import KubeconfigTransport
    from orchid.features.console.live import Changes
    from orchid.features.console.page import Viewer
    from orchid.features.console.pages import PAGES
    from orchid.features.console.rendering import Renderer
    from orchid.features.console.sign_in.local import LinkSignIn
    from orchid.features.console.site import Site
    from orchid.features.console.web.loopback import LoopbackListener
    from orchid.kernel.base.clock import SystemClock
    from orchid.kernel.outbound.remote import InvalidRemote

    kubeconfig = kubeconfig_file.find(arguments.kubeconfig, os.environ)
    load = functools.partial(kubeconfig_file.load, kubeconfig, arguments.context)
    try:
        transport = KubeconfigTransport(load(), load, SystemClock.monotonic)
    except InvalidRemote as problem:
        raise Complaint(f"{kubeconfig}: {problem}", USAGE) from None
    renderer = Renderer()
    viewer = Viewer(Api(transport), Changes(), transport.server, transport.expiry)
    sign_in = LinkSignIn(Site(renderer, PAGES), renderer, viewer, SystemClock.monotonic)
    listener = LoopbackListener(sign_in, SystemClock.monotonic)
    try:
        sign_in.listens_at(await listener.start(arguments.port))
    except OSError as error:
        raise Complaint(f"cannot listen at port {arguments.port}: {error.strerror}") from None
    opened: Path | None = None
    try:
        link = sign_in.new_link()
        _show_link(link)
        if arguments.open:
            opened = _open(link)
        remark(f"server: {transport.server}, by {kubeconfig}")
        remark("Enter prints another link; Ctrl-C ends the console")
        await _until_stopped(lambda: _show_link(sign_in.new_link()))
    finally:
        if opened is not None:
            opened.unlink(missing_ok=True)
        await listener.close()
        await transport.close()
    return 0


def _show_link(link: str) -> None:
    say(link)
    sys.stdout.flush()


def _open(link: str) -> Path:
    """Open the link by a file that only its user can read; returns the file.

    All users of the machine can read the command line of a browser, and one of them would be faster
    than it.
    """
    with tempfile.NamedTemporaryFile(
        "w", prefix="orchid-console-", suffix=".html", delete=False
    ) as file:
        file.write(f'<meta http-equiv="refresh" content="0; url={link}"><a href="{link}">Go on</a>')
    path = Path(file.name)
    if not webbrowser.open(path.as_uri()):
        remark("no browser could be started; open the link yourself")
    return path


async def _until_stopped(next_link: Callable[[], None]) -> None:
    """Wait for Ctrl-C or SIGTERM; a line of input requests another link."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    keyboard = sys.stdin.fileno()

    def on_line() -> None:
        if os.read(keyboard, 4096):
            next_link()
        else:
            loop.remove_reader(keyboard)  # the end of the input

    with contextlib.suppress(OSError):  # a file or /dev/null cannot be waited for
        loop.add_reader(keyboard, on_line)
    await stopped.wait()
    loop.remove_reader(keyboard)
