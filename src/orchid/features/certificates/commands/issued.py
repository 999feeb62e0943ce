"""`orchid issued`: issued certificates, their requesters and expiry.

    orchid issued                                   all recorded ones, first expiry first
    orchid issued web example.com                   those with both words, in any property
    orchid issued --expires-within 30d              those to be renewed soon
    orchid issued --name '*.example.com' -o pem     the certificates themselves
    orchid issued --user alice --sort issued -o csv for a spreadsheet
    orchid issued --revoked --watch                 and every certificate revoked from now on
    orchid issued --key web-1 --live                those that depend on a key

Searches the inventory (CertificateSearch) and changes nothing. --expires-within omits revoked
certificates, and those that a later one of the same signer, subject and names replaces. A cell of a
CSV file that a spreadsheet could take for a formula begins with a quote.
"""

import argparse
import base64
import datetime
import fnmatch
from collections.abc import Callable, Iterator
from typing import Final

from orchid.kernel.credentials.spiffe_ids import account_id, domain_id
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, add_flags, connect, path
from orchid.kernel.terminal.flags import add_duration
from orchid.kernel.terminal.objects import SHOW_FORMS, ListColumn, add_watch, completed, show_list
from orchid.kernel.terminal.output import (
    USAGE,
    Cell,
    Complaint,
    print_for_programs,
    say,
    say_csv,
    table,
)
from orchid.kernel.wire.user import account_of

SPIFFE: Final = domain_id("")
FOREVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)
SERVER: Final = "system:apiserver"  # the user of the server
EMPTY: Final = "no certificates found"
FOR_PEOPLE: Final = ("text", "wide")
PAGE: Final = 1_000  # items of a search
CSV_COLUMNS = (
    "serial", "signer", "subject", "names", "requester", "request", "notBefore", "notAfter",
    "sha256", "revoked", "reason", "approver", "policy", "impersonator",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="only those with this word in the subject, a name, the requester, the request or the "
        "serial number",
    )
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
        "-o", "--output", choices=(*SHOW_FORMS, *EXPORTS), default="text", help="how to show it"
    )
    add_watch(parser)
    add_flags(parser, forms=())


def run(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    if arguments.watch:
        return _watch(server, arguments)
    matches = [record for record in _search(server, arguments) if _is_named(arguments.name, record)]
    if arguments.output in FOR_PEOPLE:
        shown = [each for each in COLUMNS if arguments.output == "wide" or not each.is_wide]
        rows = [[each.value(record) for each in shown] for record in matches]
        table([each.title for each in shown], rows, empty=EMPTY, is_wide=arguments.output == "wide")
        return 0
    names = [record["metadata"]["name"] for record in matches]
    listed = server.items(url(server), _query(server, arguments))
    records = {record["metadata"]["name"]: record for record in listed}
    whole = [records[name] for name in names if name in records]
    if arguments.output in EXPORTS:
        EXPORTS[arguments.output](whole)
    else:
        print_for_programs(arguments.output, whole)
    return 0


def _watch(server: ServerConnection, arguments: argparse.Namespace) -> int:
    for flag, is_given in (
        (f"-o {arguments.output}", arguments.output in EXPORTS),
        ("--expires-within", arguments.expires_within is not None),
        ("words", bool(arguments.words)),
    ):
        if is_given:
            raise Complaint(f"--watch does not go with {flag}", USAGE)
    return show_list(
        arguments,
        server,
        url(server),
        COLUMNS,
        query=_query(server, arguments),
        keep=lambda record: (
            _is_named(arguments.name, record) and (not arguments.live or is_live(record))
        ),
        order=end_of,
        empty=EMPTY,
    )


def _search(server: ServerConnection, arguments: argparse.Namespace) -> Iterator[Json]:
    """The certificates in the requested order, without the certificates themselves."""
    soon = arguments.expires_within is not None
    spec: Json = {
        "text": " ".join(arguments.words),
        "signerNames": [arguments.signer] if arguments.signer else [],
        "requesters": [arguments.user] if arguments.user else [],
        "clusters": [arguments.cluster] if arguments.cluster else [],
        "authorityKeys": [_key_id(server, arguments.key)] if arguments.key else [],
        "endsWithin": f"{max(1, int(arguments.expires_within))}s" if soon else "",
        "omitReplaced": soon,
        "state": "Revoked" if arguments.revoked else "Live" if arguments.live or soon else "All",
        "sort": SORTS[arguments.sort],
        "limit": PAGE,
    }
    searches = path("apis", server.naming.identity, "v1alpha1", "certificatesearches")
    while True:
        status = server.post(searches, {"spec": spec})["status"]
        yield from map(_record, status["items"])
        if not (after := status.get("next")):
            return
        spec["after"] = after


def _record(item: Json) -> Json:
    """An item of a search in the form of an IssuedCertificate."""
    revoked = {"time": item.get("revoked"), "reason": item.get("reason", "")}
    return {
        "metadata": {"name": item["name"]},
        "spec": {
            **item,
            "requester": {"username": item.get("requester", "")},
            "request": {"name": item.get("request", "")},
            "approver": {
                "username": item.get("approver", ""),
                "policy": item.get("policy", ""),
                "impersonator": item.get("impersonator", ""),
            },
            "key": {"algorithm": item.get("keyAlgorithm", "")},
        },
        "status": {"revoked": revoked} if item.get("revoked") else {},
    }


def url(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.naming.identity, "v1", "issuedcertificates", *parts)


def _key_id(server: ServerConnection, name: str) -> str:
    """The id of a SigningKey of an authority."""
    if not name:
        return ""
    key = server.get(path("apis", server.naming.identity, "v1beta1", "signingkeys", name))
    if not key["spec"].get("authority"):
        raise Complaint(f"{name} signs tokens; orchid key show {name} counts them", USAGE)
    return str(key["status"]["keyID"])


def _query(server: ServerConnection, arguments: argparse.Namespace) -> dict[str, str]:
    """The selectors of a list."""
    fields = {
        "spec.signerName": arguments.signer,
        "spec.authorityKey": _key_id(server, arguments.key),
        "spec.requester.username": arguments.user,
        "spec.cluster": arguments.cluster,
        "status.revoked": "true" if arguments.revoked else "",
    }
    selector = ",".join(f"{name}={escaped(value)}" for name, value in fields.items() if value)
    return {"fieldSelector": selector} if selector else {}


def escaped(value: str) -> str:
    """A value, escaped for a field selector."""
    for mark in ("\\", ",", "="):
        value = value.replace(mark, f"\\{mark}")
    return value


def _is_named(pattern: str, one: Json) -> bool:
    names = filter(None, [*one["spec"].get("names", ()), common_name(one)])
    return not pattern or any(fnmatch.fnmatchcase(name, pattern) for name in names)


def common_name(record: Json) -> str:
    """The user that a client certificate names; empty if there is none.

    A server of an earlier version does not say it; it is in the certificate then.
    """
    spec = record["spec"]
    if "username" in spec or not spec.get("certificate"):
        return str(spec.get("username", ""))
    from orchid.kernel.credentials.x509.issued_facts import common_name_of

    return common_name_of(base64.b64decode(spec["certificate"]))


def concerns(record: Json, user: str) -> bool:
    """Whether a certificate names a user, also by a SPIFFE ID, or was requested by one."""
    requester: str = record["spec"].get("requester", {}).get("username", "")
    if user in (requester, common_name(record)):
        return True
    account = account_of(user)
    own = account_id("", *account).removeprefix(domain_id("")) if account else None
    return any(f"/{name.removeprefix(SPIFFE).partition('/')[2]}" == own for name in _svids(record))


def is_svid(one: Json) -> bool:
    """Whether it is an X.509-SVID (SPIFFE)."""
    return bool(_svids(one))


def _svids(one: Json) -> list[str]:
    return [name for name in one["spec"].get("names", ()) if name.startswith(SPIFFE)]


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


def _signer(record: Json) -> str:
    """The signer; that of a certificate of the server itself names no signer that issues."""
    spec = record["spec"]
    is_requested = spec.get("request", {}).get("name") or spec.get("cluster")
    if not is_requested and spec.get("requester", {}).get("username") == SERVER:
        return "the server itself"
    return str(spec.get("signerName", ""))


def _names(one: Json) -> str:
    return ", ".join(one["spec"].get("names", ()))


def _approved_by(record: Json) -> str:
    """The approver, their impersonator, and the policy of the approval."""
    approver = record["spec"].get("approver", {})
    name: str = approver.get("username", "")
    if behind := approver.get("impersonator"):
        name += f" (by {behind})"
    if policy := approver.get("policy"):
        name += f" (policy {policy})"
    return name.strip()


# -- export --------------------------------------------------------------------------------


def _csv(found: list[Json]) -> None:
    say_csv(CSV_COLUMNS, map(_row, found))


def _row(record: Json) -> list[str]:
    spec, revoked = record["spec"], revocation_of(record)
    approver = spec.get("approver", {})
    return [
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
    ]


def _pem(found: list[Json]) -> None:
    for one in found:
        text = base64.b64encode(base64.b64decode(one["spec"].get("certificate", ""))).decode()
        lines = [text[at : at + 64] for at in range(0, len(text), 64)]
        say("\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----")))


SORTS: Final = {
    "expires": "end",
    "issued": "issued",
    "signer": "signer",
    "subject": "subject",
    "user": "requester",
}
EXPORTS: dict[str, Callable[[list[Json]], object]] = {"csv": _csv, "pem": _pem}
COLUMNS = (
    ListColumn("SERIAL", lambda one: one["spec"].get("serialNumber", "")),
    ListColumn("SIGNER", _signer),
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
