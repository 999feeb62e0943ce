"""`orchid revocations`: all revocations, their targets and expiry.

    orchid revocations                         all, the newest last
    orchid revocations --holds                 only those that can be lifted (`orchid revoke lift`)
    orchid revocations -o wide                 with request or account, and the message

Reads CredentialRevocations and changes nothing.
"""

import argparse
from collections.abc import Iterable

from orchid.features.certificates.commands import issued
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, add_flags, connect, path
from orchid.kernel.terminal.objects import LIST_FORMS, ListColumn, add_watch, completed, show_list
from orchid.kernel.terminal.output import Cell

HOLD = "certificateHold"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--holds", action="store_true", help="only those that can be lifted")
    cluster = parser.add_argument(
        "--cluster", default="", metavar="NAME", help="only credentials of that cluster"
    )
    completed(cluster, "cluster")
    parser.add_argument("-o", "--output", choices=LIST_FORMS, default="text", help="how to show it")
    add_watch(parser)
    add_flags(parser, forms=())


def run(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    return show_list(
        arguments,
        server,
        url(server),
        COLUMNS,
        query={"fieldSelector": f"spec.cluster={arguments.cluster}"} if arguments.cluster else None,
        keep=lambda revocation: not arguments.holds or can_be_lifted(revocation),
        order=lambda revocation: revocation["metadata"].get("creationTimestamp", ""),
        empty="nothing is on hold" if arguments.holds else "nothing is revoked",
    )


def url(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.naming.identity, "v1", "credentialrevocations", *parts)


def target_of(revocation: Json) -> str:
    """The revoked credential, in the form of `orchid revoke` where there is one."""
    spec = revocation["spec"]
    if target := spec.get("certificate"):
        return f"cert/{target.get('serialNumber') or target.get('sha256', '')}"
    if target := spec.get("token"):
        return f"token/{target.get('jti', '')}"
    if target := spec.get("account"):
        return f"account/{target.get('namespace', '')}/{target.get('name', '')}"
    if target := spec.get("key"):
        return f"key/{target.get('name', '')}"
    if target := spec.get("user"):
        return f"user/{target.get('username', '')}"
    return f"authority/{spec.get('authority', {}).get('signerName', '')}"


def without_own(server: ServerConnection, records: Iterable[Json]) -> list[Json]:
    """The certificates of this server that are valid, or revoked with their user alone.

    Other programs accept them: only the revocation of a certificate is on a revocation list.
    """
    named = {_serial_of(revocation) for revocation in server.items(url(server))}
    return [
        record
        for record in filter(issued.is_ours, records)
        if issued.end_of(record) > times.now() and record["spec"]["serialNumber"] not in named
    ]


def _serial_of(one: Json) -> str:
    """The serial number of the certificate of this server that is revoked for good, or ""."""
    if "cluster" in one["spec"] or _reason(one) == HOLD:
        return ""
    return str(one["spec"].get("certificate", {}).get("serialNumber", ""))


def can_be_lifted(one: Json) -> bool:
    """Whether the server allows its deletion before the credential has expired."""
    spec = one["spec"]
    return _reason(one) == HOLD or "user" in spec or ("cluster" in spec and "account" in spec)


def _reason(one: Json) -> str:
    reason: str = one["spec"].get("reason") or "unspecified"
    return reason


def _effective(revocation: Json) -> Cell:
    conditions = revocation.get("status", {}).get("conditions", ())
    is_true = any(
        each.get("type") == "Effective" and each.get("status") == "True" for each in conditions
    )
    return Cell("yes", "good") if is_true else Cell("not yet", "waiting")


def _ends(revocation: Json) -> str:
    end = times.parse(revocation.get("status", {}).get("expires"))
    if end is None:
        return "never"
    left = (end - times.now()).total_seconds()
    return f"in {times.span(left)}" if left > 0 else "ended"


def _issued_before(revocation: Json) -> str:
    spec = revocation["spec"]
    moment: str = next(
        (
            target["issuedBefore"]
            for target in spec.values()
            if isinstance(target, dict) and "issuedBefore" in target
        ),
        "",
    )
    return moment


def _concerned(revocation: Json) -> str:
    spec = revocation["spec"]
    if target := spec.get("certificate"):
        return str(target.get("requestName") or "")
    target = spec.get("token") or {}
    return "/".join(filter(None, (target.get("namespace"), target.get("name"))))


COLUMNS = (
    ListColumn("NAME", lambda one: one["metadata"]["name"]),
    ListColumn("REVOKES", target_of),
    ListColumn("REASON", _reason),
    ListColumn("CLUSTER", lambda one: one["spec"].get("cluster", ""), is_wide=True),
    ListColumn("EFFECTIVE", _effective),
    ListColumn("ENDS", _ends),
    ListColumn("ISSUED UNTIL", _issued_before, is_wide=True),
    ListColumn("REQUEST OR ACCOUNT", _concerned, is_wide=True),
    ListColumn("MESSAGE", lambda one: one["spec"].get("message", ""), is_wide=True),
)
