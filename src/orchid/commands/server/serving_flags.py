"""Shared by commands with server settings: flags, and work until a signal.

There is one flag for each setting, made from its declaration in assembly/settings.py. An
invalid setting ends the start with one line and exit code 2; a store that does not respond, with 1.
"""

import argparse
import asyncio
import resource
import signal
import typing
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from orchid.assembly.settings import EverySetting, read
from orchid.kernel.settings.checking import Settings, check
from orchid.kernel.settings.errors import BadSettings, NotAvailable
from orchid.kernel.settings.given import Many
from orchid.kernel.terminal.output import REFUSED, USAGE, Complaint

Work = Callable[[Settings, asyncio.Event], Awaitable[None]]
_NOT_SETTINGS = ("run", "config", "kubeconfig", "output")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """One flag per setting."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as a TOML file")
    hints = typing.get_type_hints(EverySetting, include_extras=True)
    for field in msgspec.structs.fields(EverySetting):
        kind, *words = typing.get_args(hints[field.name])
        options: dict[str, Any] = {"metavar": field.encode_name.rsplit("-", 1)[-1].upper()}
        if kind == Many:
            options |= {"action": _Several}
        parser.add_argument(
            f"--{field.encode_name}",
            dest=field.encode_name,
            default=argparse.SUPPRESS,
            help=f"{words[0].description} (default: {shown(field.default)})".replace("%", "%%"),
            **options,
        )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings from flags and file, validated."""
    try:
        return check(read(arguments.config, flags_of(arguments)))
    except BadSettings as problem:
        raise Complaint(str(problem), USAGE) from None


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings from flags."""
    return {key: value for key, value in vars(arguments).items() if key not in _NOT_SETTINGS}


def until_signal(arguments: argparse.Namespace, work: Work) -> int:
    """Run a command until SIGTERM or SIGINT."""
    import uvloop

    from orchid.kernel.base import telemetry

    settings = settings_of(arguments)
    # No core dump: it would hold every key and every secret.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    telemetry.configure(settings.given.log_level, settings.given.log_format)

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await work(settings, stop)

    try:
        uvloop.run(run())
    except BadSettings as problem:
        raise _complaint(problem) from None
    except BaseExceptionGroup as group:
        foreseen = group.subgroup(BadSettings)
        if foreseen is None:
            raise
        raise _complaint(foreseen.exceptions[0]) from None
    return 0


def _complaint(problem: BaseException) -> Complaint:
    return Complaint(str(problem), REFUSED if isinstance(problem, NotAvailable) else USAGE)


def shown(default: Any) -> str:
    """A default as a person would write it."""
    if isinstance(default, tuple):
        return ",".join(default) or "none"
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if default != "" else "none"


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
        texts = [value for value in str(values).split(",") if value]
        setattr(namespace, self.dest, [*before, *texts])
