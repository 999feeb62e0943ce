"""`orchid status`: health, version, user and object counts of the server.

The exit code is 1 if the server is not ready. A count that the user may not read is shown as such
and is no failure. The server certificate that expires first, and conditions of the machine, are
shown to users who may read the metrics.
"""

import argparse
import datetime
import re

from orchid.features.sign_in.commands import whoami
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import (
    FORBIDDEN,
    CommandRefused,
    Json,
    ServerConnection,
    add_flags,
    connect,
    path,
)
from orchid.kernel.terminal.output import REFUSED, Cell, facts, print_for_programs

WELL = 200
DECIDED = ("Approved", "Denied")
SOON = datetime.timedelta(days=30)
CONDITION = re.compile(r'^orchid_host_condition\{condition="(\w+)"\} 1$', re.MULTILINE)
CERTIFICATE_END = re.compile(
    r'^orchid_certificate_end_seconds\{certificate="([\w-]+)"\} (\d+)', re.MULTILINE
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    ready, failing = readiness(server)
    state: Json = {
        "server": server.access.server,
        "version": server.get("/version").get("gitVersion", ""),
        "ready": ready,
        "failing": failing,
        "conditions": conditions(server),
        "naming": server.naming.name,
        "user": whoami.user_of(whoami.ask(server)),
        "counts": counts(server),
        "endsFirst": ends_first(server),
        "kubeconfig": server.source,
    }
    if not print_for_programs(arguments.output, state):
        show(state)
    return 0 if ready else REFUSED


def readiness(server: ServerConnection) -> tuple[bool, list[str]]:
    """Whether /readyz succeeds, and the failing checks."""
    status, text = server.text("/readyz?verbose")
    failing = [line[3:].split(" ")[0] for line in text.splitlines() if line.startswith("[-]")]
    return status == WELL, failing


def conditions(server: ServerConnection) -> list[str]:
    """The conditions of the machine that the server reports; none for users who may not see it."""
    status, text = server.text("/metrics")
    return CONDITION.findall(text) if status == WELL else []


def ends_first(server: ServerConnection) -> Json | None:
    """The server certificate that expires first; None for users who may not see it."""
    status, text = server.text("/metrics")
    ends = CERTIFICATE_END.findall(text) if status == WELL else ()
    if not ends:
        return None
    name, seconds = min(ends, key=lambda each: int(each[1]))
    moment = datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
    return {"certificate": name, "end": moment.isoformat()}


def counts(server: ServerConnection) -> Json:
    """The number of objects of each kind; None where the user may not list them."""
    requests = server.group("certificates", "v1", "certificatesigningrequests")
    return {
        "namespaces": _count(server, path("api", "v1", "namespaces")),
        "serviceaccounts": _count(server, path("api", "v1", "serviceaccounts")),
        "certificatesigningrequests": _count(server, requests),
        "undecided": _undecided(server, requests),
        "clustertrustbundles": _count(
            server, server.group("certificates", "v1beta1", "clustertrustbundles")
        ),
    }


def _count(server: ServerConnection, url: str) -> int | None:
    try:
        return server.count(url)
    except CommandRefused as refused:
        if refused.status == FORBIDDEN:
            return None
        raise


def _undecided(server: ServerConnection, url: str) -> int | None:
    try:
        return sum(not is_decided(each) for each in server.items(url))
    except CommandRefused as refused:
        if refused.status == FORBIDDEN:
            return None
        raise


def is_decided(request: Json) -> bool:
    conditions = request.get("status", {}).get("conditions") or ()
    return any(each.get("type") in DECIDED for each in conditions)


def show(state: Json) -> None:
    ready = Cell("yes", "good")
    if not state["ready"]:
        ready = Cell(f"no: {', '.join(state['failing']) or 'the server does not say why'}", "bad")
    counted, troubles = state["counts"], state["conditions"]
    requests = _shown(counted["certificatesigningrequests"])
    if count := counted["undecided"]:
        verb = "waits" if count == 1 else "wait"
        requests = f"{requests}, of which {count} {verb} for a decision"
    facts(
        [
            ("Server", state["server"]),
            ("Version", state["version"]),
            ("Ready", ready),
            *([("Conditions", Cell(", ".join(troubles), "bad"))] if troubles else []),
            ("Naming", state["naming"]),
            ("You are", state["user"].get("username", "")),
            ("Namespaces", _shown(counted["namespaces"])),
            ("Accounts", _shown(counted["serviceaccounts"])),
            ("Requests", requests),
            ("Bundles", _shown(counted["clustertrustbundles"])),
            *_shown_end(state["endsFirst"]),
            ("Kubeconfig", state["kubeconfig"]),
        ]
    )


def _shown_end(first: Json | None) -> list[tuple[str, Cell]]:
    if first is None:
        return []
    end = datetime.datetime.fromisoformat(first["end"])
    soon = end - times.now() < SOON
    text = f"{first['certificate']} certificate, {times.until(end)}"
    return [("Ends first", Cell(f"{text}: replace it" if soon else text, "bad" if soon else ""))]


def _shown(number: int | None) -> str:
    return "you may not list them" if number is None else str(number)
