"""`orchid csr`: request, show, decide and fetch certificates.

    orchid csr new alice --group developers    a key, and a request for its certificate
    orchid csr show alice                      the request and its requester
    orchid csr approve alice                   or deny
    orchid csr fetch alice                     waits for the certificate, writes it
    orchid csr renew alice                     the same again, before it expires

requesting.py creates requests, and decodes the content of one from its signed bytes, not from
unsigned fields.
"""

import argparse
from pathlib import Path
from typing import Any

from orchid.features.certificates.commands import policy_reason
from orchid.features.certificates.commands.request_flags import (
    file_name,
    new_arguments,
    renew_arguments,
    url,
)
from orchid.features.certificates.commands.responses import (
    bytes_of,
    certificate_of,
    condition_row,
    conditions_of,
    status_of,
    wait_for,
)
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks
from orchid.kernel.terminal.connection import CONFLICT, CommandRefused, Json, ServerConnection
from orchid.kernel.terminal.flags import add_wait, name_argument, names_argument
from orchid.kernel.terminal.objects import ListColumn, show_list
from orchid.kernel.terminal.output import Cell, Complaint, facts, name_of, print_for_programs, say
from orchid.kernel.terminal.subcommands import (
    add_subcommands,
    delete_each,
    for_each,
    run_subcommand,
)

ATTEMPTS = 5

_name_argument, _names_argument = name_argument("request"), names_argument("request")


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("new", "create a key and request a certificate for it", new_arguments, _new),
            ("list", "list requests", _list_arguments, _list),
            ("show", "decode a request", _name_argument, _show),
            ("approve", "approve requests", _decision_arguments, _approve),
            ("deny", "deny requests", _decision_arguments, _deny),
            ("fetch", "wait for a certificate and write it", _fetch_arguments, _fetch),
            ("renew", "request a certificate like an existing one", renew_arguments, _renew),
            (
                "delete",
                "delete requests; issued certificates stay valid",
                asks(_names_argument),
                _delete,
            ),
        ),
    )


run = run_subcommand


def _new(arguments: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.features.certificates.commands import requesting

    return requesting.new(arguments, server)


def _renew(arguments: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.features.certificates.commands import requesting

    return requesting.renew(arguments, server)


# -- list and show -------------------------------------------------------------------------


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pending", action="store_true", help="only undecided ones")


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(
        arguments,
        server,
        url(server),
        COLUMNS,
        keep=lambda request: not (arguments.pending and conditions_of(request)),
        empty="no requests" + (" wait for a decision" if arguments.pending else ""),
    )


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.features.certificates.commands import requesting

    request = server.get(url(server, arguments.name))
    decoded = requesting.facts_of(bytes_of(request["spec"].get("request")))
    if arguments.output == "name":
        return 0 if print_for_programs("name", request) else 1
    plain = {title: _plain(value) for title, value in decoded}
    shown = {"request": request, "state": state(request).text, "decoded": plain}
    if print_for_programs(arguments.output, shown):
        return 0
    spec = request["spec"]
    is_waiting = not conditions_of(request)
    why = policy_reason.reason(server, request) if is_waiting else ""
    facts(
        [
            ("Name", arguments.name),
            ("State", state(request)),
            *((title, value) for title, value in decoded),
            ("Usages", spec.get("usages") or ["none"]),
            ("Signer", spec.get("signerName", "")),
            ("Lifetime", _lifetime(request)),
            ("Requested by", spec.get("username", "")),
            ("Their groups", spec.get("groups") or ["none"]),
            ("Requested", f"{times.age(request['metadata'].get('creationTimestamp'))} ago"),
            *(condition_row(condition) for condition in conditions_of(request)),
            *([("Policies", why)] if why else ()),
            *(_would_be_signed(policy_reason.review(server, request)) if is_waiting else ()),
            *requesting.certificate_facts(bytes_of(status_of(request).get("certificate"))),
        ]
    )
    return 0


def _would_be_signed(review: Json) -> list[tuple[str, Any]]:
    """The certificate that an approval is for; nothing without the right to review."""
    certificate = review.get("certificate")
    if not certificate:
        return []
    seconds = certificate.get("seconds")
    lifetime = times.span(seconds) if isinstance(seconds, int) else "default of the signer"
    obstacles = review.get("obstacles")
    return [
        ("Would be signed", certificate.get("subject") or "no subject"),
        ("  names", certificate.get("names") or ["none"]),
        ("  usages", certificate.get("usages") or ["none"]),
        ("  key", certificate.get("key") or ""),
        ("  lifetime", lifetime),
        *([("  obstacles", obstacles)] if obstacles else ()),
    ]


def state(request: Json) -> Cell:
    """The state of a request, in the words of other tools."""
    types = [condition.get("type") for condition in conditions_of(request)]
    if "Denied" in types:
        return Cell("Denied", "bad")
    if "Failed" in types:
        return Cell("Failed", "bad")
    if status_of(request).get("certificate"):
        return Cell("Issued", "good")
    return Cell("Approved", "good") if "Approved" in types else Cell("Pending", "waiting")


# -- decide --------------------------------------------------------------------------------


def _decision_arguments(parser: argparse.ArgumentParser) -> None:
    _names_argument(parser)
    parser.add_argument("--reason", default="DecidedByHand", help="one word, for programs")
    parser.add_argument("--message", default="", help="a sentence, for people")


def _approve(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return _decide(arguments, server, "Approved")


def _deny(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return _decide(arguments, server, "Denied")


def _decide(arguments: argparse.Namespace, server: ServerConnection, verdict: str) -> int:
    def decide(name: str) -> tuple[str, Json]:
        return f"{verdict.lower()} {name}", _write_decision(arguments, server, name, verdict)

    return for_each(arguments, arguments.names, decide)


def _delete(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return delete_each(arguments, server, url)


def _write_decision(
    arguments: argparse.Namespace, server: ServerConnection, name: str, verdict: str
) -> Json:
    condition = {
        "type": verdict,
        "status": "True",
        "reason": arguments.reason,
        "message": arguments.message or f"{verdict} with orchid csr.",
    }
    for attempt in range(ATTEMPTS):
        request = server.get(url(server, name))
        if any(each.get("type") == verdict for each in conditions_of(request)):
            return request
        status = {**status_of(request), "conditions": [*conditions_of(request), condition]}
        try:
            return server.put(url(server, name, "approval"), {**request, "status": status})
        except CommandRefused as refused:
            # Modified concurrently: read again before deciding.
            if refused.status != CONFLICT or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


# -- fetch ---------------------------------------------------------------------------------


def _fetch_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument(
        "--out", default="", metavar="FILE", help="'-' for standard output (default: NAME.crt)"
    )
    add_wait(parser)


def _fetch(arguments: argparse.Namespace, server: ServerConnection) -> int:
    target = arguments.out or f"{file_name(arguments.name)}.crt"
    request = wait_for(server, arguments.name, arguments.wait)
    certificate = certificate_of(request)
    if target == "-":
        say(certificate.decode("ascii", "replace").rstrip("\n"))
        return 0
    try:
        Path(target).write_bytes(certificate)
    except OSError as error:
        raise Complaint(f"cannot write {target}: {error.strerror}") from None
    if not print_for_programs(arguments.output, request):
        say(f"wrote {target}")
    return 0


# -- parsing of responses ------------------------------------------------------------------


def _lifetime(request: Json) -> str:
    seconds = request["spec"].get("expirationSeconds")
    return times.span(seconds) if isinstance(seconds, int) else "default"


def _plain(value: Any) -> Any:
    return value.text if isinstance(value, Cell) else value


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("AGE", lambda one: times.age(one["metadata"].get("creationTimestamp"))),
    ListColumn("SIGNER", lambda one: one["spec"].get("signerName", "")),
    ListColumn("REQUESTED BY", lambda one: one["spec"].get("username", "")),
    ListColumn("FOR", _lifetime),
    ListColumn("STATE", state, field="state"),
    ListColumn("USAGES", lambda one: ", ".join(one["spec"].get("usages") or ()), is_wide=True),
    ListColumn("UID", lambda one: one["metadata"].get("uid", ""), is_wide=True),
)
