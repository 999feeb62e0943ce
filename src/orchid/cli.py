"""The command line: `orchid serve` and its kin.

Modules are imported where a command needs them, so that `orchid --help` answers at once. A
mistake of the caller's is one line on standard error and exit code 2, never a traceback.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orchid.version import __version__

USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if not hasattr(chosen, "run"):
        parser.print_help()
        return 0
    code: int = chosen.run(chosen)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="orchid", description="The identity plane of Kubernetes without Kubernetes."
    )
    parser.add_argument("--version", action="version", version=f"orchid {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    serve = commands.add_parser("serve", help="start the server", description="Start the server.")
    _add_settings(serve)
    serve.set_defaults(run=_serve)
    controllers = commands.add_parser(
        "controllers",
        help="run the controllers of a server in a process of their own",
        description="Run the controllers of a server that was started with --controllers ''.",
    )
    _add_settings(controllers)
    controllers.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="how to reach the server (default: admin.kubeconfig in the data directory)",
    )
    controllers.set_defaults(run=_controllers)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, from its declaration."""
    import typing

    import msgspec

    from orchid.settings import Given, Many

    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as a TOML file")
    hints = typing.get_type_hints(Given, include_extras=True)
    for field in msgspec.structs.fields(Given):
        hint = hints[field.name]
        kind, *words = typing.get_args(hint)
        options: dict[str, Any] = {"metavar": field.encode_name.rsplit("-", 1)[-1].upper()}
        if kind == Many:
            options |= {"action": _Several}
        parser.add_argument(
            f"--{field.encode_name}",
            dest=field.encode_name,
            default=argparse.SUPPRESS,
            help=f"{words[0].description} (default: {_shown(field.default)})".replace("%", "%%"),
            **options,
        )


class _Several(argparse.Action):
    """A flag that may be repeated, and whose value may list several, separated by commas."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, [])
        given = [value for value in str(values).split(",") if value]
        setattr(namespace, self.dest, [*before, *given])


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default) or "none"
    return str(default) if default != "" else "none"


def _serve(chosen: argparse.Namespace) -> int:
    from orchid import assembly

    async def serve(settings: Any, stop: Any) -> None:
        await assembly.serve(settings, stop, _announce)

    return _until_signal(chosen, serve)


def _controllers(chosen: argparse.Namespace) -> int:
    from orchid import assembly

    async def control(settings: Any, stop: Any) -> None:
        default = settings.data_dir / "admin.kubeconfig"
        await assembly.control(settings, chosen.kubeconfig or default, stop)

    return _until_signal(chosen, control)


def _until_signal(chosen: argparse.Namespace, work: Callable[[Any, Any], Any]) -> int:
    """Do the work of a command until SIGTERM or SIGINT asks it to end."""
    import asyncio
    import signal

    import uvloop

    from orchid import telemetry
    from orchid.settings import BadSettings, check, read

    own = ("run", "config", "kubeconfig")
    flags = {key: value for key, value in vars(chosen).items() if key not in own}
    try:
        settings = check(read(chosen.config, flags))
    except BadSettings as problem:
        return _complain(problem)
    telemetry.configure(settings.given.log_level, settings.given.log_format)

    async def until_signal() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await work(settings, stop)

    try:
        uvloop.run(until_signal())
    except BadSettings as problem:
        return _complain(problem)
    except BaseExceptionGroup as group:
        foreseen = group.subgroup(BadSettings)
        if foreseen is None:
            raise
        return _complain(foreseen.exceptions[0])
    return 0


def _complain(problem: BaseException) -> int:
    print(f"orchid: {problem}", file=sys.stderr)
    return USAGE_ERROR


def _announce(settings: Any, files: Any) -> None:
    """What to type next."""
    print(
        f"orchid serves {settings.url}\n"
        f"  kubectl --kubeconfig {files.kubeconfig} get serviceaccounts -A\n"
        f"  curl --cacert {files.ca_certificate} {settings.url}/readyz",
        flush=True,
    )
