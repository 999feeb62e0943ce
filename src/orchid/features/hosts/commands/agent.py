"""`orchid agent`: keep the credentials of this host fresh in files.

    orchid agent                  run until it is stopped
    orchid agent --once           check everything once, for a timer
    orchid agent status           what the agent reports
    orchid agent check            check the configuration only

Exit codes of --once and status: 0 all fresh, 1 failed, 3 a request waits for approval.
"""

import argparse
import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchid.kernel.base.clock import utc
from orchid.kernel.terminal import times
from orchid.kernel.terminal.output import (
    USAGE,
    Cell,
    Complaint,
    facts,
    print_for_programs,
    remark,
    say,
    table,
)

if TYPE_CHECKING:  # imported by the actions that need them: the agent's memory is limited
    from orchid.features.hosts.agent.configuration import AgentConfiguration
    from orchid.features.hosts.agent.running.status import AgentStatus, ItemStatus

CONFIGURATION = Path("/etc/orchid/agent.yaml")
MOODS = {"fresh": "good", "waiting": "waiting"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "status", "check"),
        default="run",
        help="run (default), show the status, or check the configuration",
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=CONFIGURATION,
        metavar="FILE",
        help=f"the AgentConfiguration (default: {CONFIGURATION})",
    )
    parser.add_argument("--once", action="store_true", help="check everything once and end")
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "yaml"), default="text", help="of the status"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="of the log lines"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "status":
        return _status(arguments)
    if arguments.action == "check":
        count = len(_read(arguments.config).outputs)
        say(f"{arguments.config}: {count} output{'s' if count != 1 else ''}, no mistakes")
        if not count:
            remark("without outputs the agent renews only the identity of its host")
        return 0
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from orchid.features.hosts.agent.configuration import InvalidAgentConfiguration
    from orchid.features.hosts.agent.running import program
    from orchid.features.hosts.agent.state_directory import StateUnusable
    from orchid.kernel.base import telemetry

    telemetry.configure("info", arguments.log_format)
    try:
        return (
            program.run_once(arguments.config) if arguments.once else program.run(arguments.config)
        )
    except InvalidAgentConfiguration as problem:
        raise Complaint(str(problem), USAGE) from None
    except StateUnusable as problem:
        raise Complaint(str(problem)) from None


def _read(path: Path) -> "AgentConfiguration":
    from orchid.features.hosts.agent.configuration import (
        InvalidAgentConfiguration,
        read_configuration,
    )

    try:
        return read_configuration(path)
    except InvalidAgentConfiguration as problem:
        raise Complaint(str(problem), USAGE) from None


# -- status ----------------------------------------------------------------------------------


def _status(arguments: argparse.Namespace) -> int:
    import msgspec

    from orchid.features.hosts.agent.running.status import AgentStatus
    from orchid.features.hosts.agent.state_directory import StateDirectory, read_status

    file = StateDirectory(Path(_read(arguments.config).state)).status_file
    status = read_status(file, AgentStatus)
    if status is None:
        raise Complaint(f"{file} cannot be read: no agent has run, or you are not its user")
    now = times.now() + datetime.timedelta(seconds=status.clock_skew_seconds)
    if not print_for_programs(arguments.output, msgspec.to_builtins(status)):
        _show(status, now)
    return status.exit_code(now)


def _show(status: "AgentStatus", now: datetime.datetime) -> None:
    rows: list[tuple[str, object]] = [
        *([("Identity", status.kubeconfig)] if status.kubeconfig else ()),
        *([("Host", status.name)] if status.host or not status.kubeconfig else ()),
        ("Server", status.server or "none"),
        ("Last check", f"{times.span((times.now() - status.updated).total_seconds())} ago"),
    ]
    if status.unreachable_since is not None:
        rows.append(("Unreachable", Cell(f"since {utc(status.unreachable_since)}", "bad")))
    if abs(status.clock_skew_seconds) >= 1:
        rows.append(("Clock", Cell(f"{status.clock_skew_seconds:+.0f} s to the server", "bad")))
    facts(rows)
    say("")
    items = [status.identity, *status.outputs]
    table(
        ("OUTPUT", "STATE", "EXPIRES", "RENEWS", "MESSAGE"), (_row(item, now) for item in items), ""
    )


def _row(item: "ItemStatus", now: datetime.datetime) -> tuple[object, ...]:
    state = item.shown_state(now)
    message = item.message or (f"reload pending: {item.reload}" if item.reload else "")
    return (
        item.name,
        Cell(state, MOODS.get(state, "bad")),
        times.until(item.expires) if item.expires is not None else "",
        times.until(item.renews) if item.renews is not None else "",
        message,
    )
