"""`orchid issued`: issued certificates, their requesters and expiry.

    orchid issued                                   all recorded ones, first expiry first
    orchid issued --expires-within 30d              those to be renewed soon
    orchid issued --name '*.example.com' -o pem     the certificates themselves
    orchid issued --user alice --sort issued -o csv for a spreadsheet
    orchid issued --revoked --watch                 and every certificate revoked from now on
    orchid issued --key web-1 --live                those that depend on a key

Reads the inventory (IssuedCertificate) and changes nothing. --expires-within omits revoked
certificates, and those that a later one of the same signer, subject and names replaces. A cell of a
CSV file that a spreadsheet could take for a formula begins with a quote.
"""

import argparse
import base64
import csv
import datetime
import fnmatch
import functools
import io
import re
from collections.abc import Callable
from typing import Any

from orchid.commands.terminal import times
from orchid.commands.terminal.connection import Json, ServerConnection, add_flags, connect, path
from orchid.commands.terminal.flags import add_duration
from orchid.commands.terminal.objects import LIST_FORMS, ListColumn, add_watch, completed, show_list
from orchid.commands.terminal.output import USAGE, Cell, Complaint, say

FOREVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)
CSV_COLUMNS = (
    "serial", "signer", "subject", "names", "requester", "request", "notBefore", "notAfter",
    "sha256", "revoked", "reason", "approver", "policy", "impersonator",
)  # fmt: skip
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--signer", default="", help="only those of this signer")
    cluster = parser.add_argument(
        "--cluster", default="", metavar="NAME", help="only those of that cluster"
    )
    completed(cluster, "cluster")
    key = parser.add_argument(
        "--key", default="", metavar="NAME", help="only those that this SigningKey signed"
    )
    completed(key, "key")
    parser.add_argument("--user", default="", help="only those requested by this user")
    parser.add_argument(
        "--name", default="", metavar="PATTERN", help="only for a name like '*.example.com'"
    )
    words = "only those that expire by then, and are neither revoked nor replaced"
    add_duration(parser, "--expires-within", "30d", words)
    parser.add_argument(
        "--live", action="store_true", help="only those that are neither expired nor revoked"
    )
    parser.add_argument("--revoked", action="store_true", help="only revoked ones")
    parser.add_argument(
        "--sort", choices=tuple(SORTS), default="expires", help="the order (default: expires)"
    )
    parser.add_argument(
        "-o", "--output", choices=(*LIST_FORMS, *EXPORTS), default="text", help="how to show it"
    )
    add_watch(parser)
    add_flags(parser, forms=())


def run(chosen: argparse.Namespace) -> int:
    server = connect(chosen)
    order, query = SORTS[chosen.sort], _query(chosen, _key_id(server, chosen.key))
    is_wanted = functools.partial(_is_wanted, chosen, _last_ends(server, chosen))
    if chosen.output not in EXPORTS:
        return show_list(
            chosen,
            server,
            place(server),
            COLUMNS,
            query=query,
            keep=is_wanted,
            order=order,
            empty="no certificate like that is recorded",
        )
    if chosen.watch:
        raise Complaint(f"--watch does not go with -o {chosen.output}", USAGE)
    found = [one for one in server.items(place(server), query) if is_wanted(one)]
    EXPORTS[chosen.output](sorted(found, key=order))
    return 0


def place(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.names.identity, "v1alpha1", "issuedcertificates", *parts)


def _key_id(server: ServerConnection, name: str) -> str:
    """The id of a SigningKey of an authority."""
    if not name:
        return ""
    key = server.get(path("apis", server.names.identity, "v1alpha1", "signingkeys", name))
    if not key["spec"].get("authority"):
        raise Complaint(f"{name} signs tokens; orchid key show {name} counts them", USAGE)
    return str(key["status"]["keyID"])


def _query(chosen: argparse.Namespace, key_id: str) -> dict[str, str]:
    """The selectors for the server; the other flags are applied here."""
    fields = {
        "spec.signerName": chosen.signer,
        "spec.authorityKey": key_id,
        "spec.requester.username": chosen.user,
        "spec.cluster": chosen.cluster,
        "status.revoked": "true" if chosen.revoked else "",
    }
    selector = ",".join(f"{name}={escaped(value)}" for name, value in fields.items() if value)
    return {"fieldSelector": selector} if selector else {}


def escaped(value: str) -> str:
    """A value, escaped for a field selector."""
    for mark in ("\\", ",", "="):
        value = value.replace(mark, f"\\{mark}")
    return value


LastEnds = dict[tuple[Any, ...], datetime.datetime]
"""Expiry of the last valid certificate of a signer, subject and names."""


def _last_ends(server: ServerConnection, chosen: argparse.Namespace) -> LastEnds:
    """Only for --expires-within, to omit certificates that were replaced."""
    found: LastEnds = {}
    if chosen.expires_within is not None:
        for one in filter(is_live, server.items(place(server))):
            found[_names_of(one)] = max(end_of(one), found.get(_names_of(one), end_of(one)))
    return found


def _names_of(one: Json) -> tuple[Any, ...]:
    spec = one["spec"]
    return spec.get("signerName"), spec.get("subject"), tuple(sorted(spec.get("names", ())))


def _is_wanted(chosen: argparse.Namespace, last_ends: LastEnds, one: Json) -> bool:
    now, end = times.now(), end_of(one)
    if chosen.live and not is_live(one):
        return False
    if chosen.expires_within is not None:
        limit = now + datetime.timedelta(seconds=chosen.expires_within)
        if not is_live(one) or end > limit or end < last_ends.get(_names_of(one), end):
            return False
    names = [*one["spec"].get("names", ()), *_common_names(one)]
    return not chosen.name or any(fnmatch.fnmatchcase(name, chosen.name) for name in names)


def _common_names(one: Json) -> list[str]:
    parts = re.split(r"(?<!\\),", one["spec"].get("subject", ""))  # RFC 4514
    names = [part.removeprefix("CN=") for part in parts if part.startswith("CN=")]
    return [re.sub(r"\\(.)", r"\1", name) for name in names]


def common_name(one: Json) -> str:
    """The user that a client certificate names; empty if there is none."""
    return next(iter(_common_names(one)), "")


def concerns(one: Json, user: str) -> bool:
    """Whether a certificate names a user, or was requested by one."""
    requester: str = one["spec"].get("requester", {}).get("username", "")
    return requester == user or user in _common_names(one)


def is_live(one: Json) -> bool:
    """Whether a certificate is neither expired nor revoked."""
    return end_of(one) > times.now() and not revocation_of(one)


def is_ours(one: Json) -> bool:
    """Whether a signer of this server issued it, and not a cluster."""
    return not one["spec"].get("cluster")


def end_of(one: Json) -> datetime.datetime:
    return times.parse(one["spec"].get("notAfter")) or FOREVER


def revocation_of(one: Json) -> Json:
    """Time and reason of a revocation; empty if there is none."""
    return one.get("status", {}).get("revoked") or {}


def _expires(one: Json) -> Cell:
    end = end_of(one)
    left = (end - times.now()).total_seconds()
    return Cell(f"in {times.span(left)}" if left > 0 else f"{times.span(-left)} ago")


def _names(one: Json) -> str:
    return ", ".join(one["spec"].get("names", ()))


def _approved_by(one: Json) -> str:
    """The approver, their impersonator, and the policy of the approval."""
    approver = one["spec"].get("approver", {})
    name: str = approver.get("username", "")
    if behind := approver.get("impersonator"):
        name += f" (by {behind})"
    if policy := approver.get("policy"):
        name += f" (policy {policy})"
    return name.strip()


# -- export --------------------------------------------------------------------------------


def _csv(found: list[Json]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows(map(_row, found))
    say(text.getvalue().rstrip("\n"))


def _row(one: Json) -> list[str]:
    spec, revoked = one["spec"], revocation_of(one)
    approver = spec.get("approver", {})
    cells = (
        spec.get("serialNumber", ""),
        spec.get("signerName", ""),
        spec.get("subject", ""),
        " ".join(spec.get("names", ())),
        spec.get("requester", {}).get("username", ""),
        spec.get("request", {}).get("name", ""),
        spec.get("notBefore", ""),
        spec.get("notAfter", ""),
        spec.get("sha256", ""),
        revoked.get("time", ""),
        revoked.get("reason", ""),
        approver.get("username", ""),
        approver.get("policy", ""),
        approver.get("impersonator", ""),
    )
    # Others chose these texts, and a spreadsheet evaluates text that looks like a formula.
    return [f"'{cell}" if str(cell).startswith(FORMULAS) else str(cell) for cell in cells]


def _pem(found: list[Json]) -> None:
    for one in found:
        text = base64.b64encode(base64.b64decode(one["spec"].get("certificate", ""))).decode()
        lines = [text[at : at + 64] for at in range(0, len(text), 64)]
        say("\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----")))


SORTS: dict[str, Callable[[Json], Any]] = {
    "expires": end_of,
    "issued": lambda one: one["metadata"].get("creationTimestamp", ""),
    "signer": lambda one: one["spec"].get("signerName", ""),
    "subject": lambda one: one["spec"].get("subject", ""),
    "user": lambda one: one["spec"].get("requester", {}).get("username", ""),
}
EXPORTS: dict[str, Callable[[list[Json]], object]] = {"csv": _csv, "pem": _pem}
COLUMNS = (
    ListColumn("SERIAL", lambda one: one["spec"].get("serialNumber", "")),
    ListColumn("SIGNER", lambda one: one["spec"].get("signerName", "")),
    ListColumn("SUBJECT", lambda one: one["spec"].get("subject", "") or _names(one)),
    ListColumn("REQUESTED BY", lambda one: one["spec"].get("requester", {}).get("username", "")),
    ListColumn("EXPIRES", _expires),
    ListColumn("REVOKED", lambda one: Cell(revocation_of(one).get("reason", ""), "bad")),
    ListColumn("CLUSTER", lambda one: one["spec"].get("cluster", ""), is_wide=True),
    ListColumn("APPROVED BY", _approved_by, is_wide=True),
    ListColumn("NAMES", _names, is_wide=True),
    ListColumn("REQUEST", lambda one: one["spec"].get("request", {}).get("name", ""), is_wide=True),
    ListColumn("KEY", lambda one: one["spec"].get("key", {}).get("algorithm", ""), is_wide=True),
    ListColumn("SHA-256", lambda one: one["spec"].get("sha256", ""), is_wide=True),
)
