"""`orchid bundle`: trust bundles, the CAs that workloads trust.

`list` shows them, `show` the certificates of one or of a signer (or, with --pem, the bundle itself,
ready for a file), `set` creates or replaces one from files. The server validates the content. The
actions on published bundles are in published.py.
"""

import argparse
import hashlib
import sys
from pathlib import Path

from orchid.features.trust_bundles.commands import published
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks
from orchid.kernel.terminal.connection import NOT_FOUND, CommandRefused, Json, ServerConnection
from orchid.kernel.terminal.flags import names_argument
from orchid.kernel.terminal.objects import ListColumn, completed, show_list
from orchid.kernel.terminal.output import (
    USAGE,
    Complaint,
    name_of,
    print_for_programs,
    say,
    table,
)
from orchid.kernel.terminal.subcommands import add_subcommands, delete_each, run_subcommand

LARGEST = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("list", "list trust bundles", _list_arguments, _list),
            ("show", "show the certificates of bundles", _show_arguments, _show),
            ("set", "create or replace a bundle from files", _set_arguments, _set),
            ("delete", "delete bundles", asks(names_argument("bundle")), _delete),
            *published.ROWS,
        ),
    )


run = run_subcommand


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--signer", default="", help="only the bundles of this signer")


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(
        arguments,
        server,
        _url(server),
        COLUMNS,
        query=_of(arguments.signer),
        empty="no trust bundles",
    )


def _of(signer: str) -> Json:
    return {"fieldSelector": f"spec.signerName={signer}"} if signer else {}


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("name", metavar="NAME", nargs="?", default=""), "bundle")
    parser.add_argument("--signer", default="", help="all bundles of this signer, instead of one")
    parser.add_argument("--pem", action="store_true", help="print the bundle itself")


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    if bool(arguments.name) == bool(arguments.signer):
        raise Complaint("give either the NAME of a bundle or --signer", USAGE)
    if arguments.name:
        bundles = [server.get(_url(server, arguments.name))]
    else:
        bundles = list(server.items(_url(server), _of(arguments.signer)))
        if not bundles:
            raise Complaint(f"{arguments.signer} has no trust bundle")
    if print_for_programs(arguments.output, bundles[0] if arguments.name else bundles):
        return 0
    # Several bundles of one signer may hold the same CA; each is shown once.
    blocks = dict.fromkeys(_text(each).rstrip("\n") for each in bundles)
    if arguments.pem:
        say("\n".join(blocks))
    else:
        _show_certificates("\n".join((*blocks, "")))
    return 0


def _delete(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return delete_each(arguments, server, _url)


def _show_certificates(text: str) -> None:
    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.credentials.x509 import certificates
    from orchid.kernel.credentials.x509.trust import trust_anchors

    rows = []
    try:
        for data in trust_anchors.anchors(text):
            certificate = certificates.parse(data)
            rows.append(
                (
                    certificate.subject.rfc4514_string() or "-",
                    times.until(certificate.not_valid_after_utc),
                    hashlib.sha256(data).hexdigest(),
                )
            )
    except (Refusal, ValueError) as problem:
        raise Complaint(f"the bundle cannot be read: {problem}") from None
    table(("SUBJECT", "EXPIRES", "SHA-256"), rows, empty="the bundle is empty")


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of a signer's bundle: SIGNER:NAME, / as :")
    parser.add_argument("files", metavar="FILE", nargs="+", help="PEM; '-' is standard input")
    parser.add_argument("--signer", default="", help="the signer whose certificates it verifies")


def _set(arguments: argparse.Namespace, server: ServerConnection) -> int:
    text = "".join(_read(name) for name in arguments.files)
    try:
        bundle = server.get(_url(server, arguments.name))
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        answer, done = server.post(_url(server), _new(arguments, server, text)), "created"
    else:
        # With the version that was read, so that no concurrent change is lost.
        spec = {**bundle["spec"], "trustBundle": text}
        if arguments.signer:
            spec["signerName"] = arguments.signer
        answer = server.put(_url(server, arguments.name), {**bundle, "spec": spec})
        done = "replaced" if _text(bundle) != text else "unchanged:"
    if not print_for_programs(arguments.output, answer):
        say(f"{done} {arguments.name}")
    return 0


def _new(arguments: argparse.Namespace, server: ServerConnection, text: str) -> Json:
    spec: Json = {"trustBundle": text}
    if arguments.signer:
        spec["signerName"] = arguments.signer
    return {
        "apiVersion": server.api_version("certificates", "v1beta1"),
        "kind": "ClusterTrustBundle",
        "metadata": {"name": arguments.name},
        "spec": spec,
    }


def _read(name: str) -> str:
    try:
        if name == "-":
            text = sys.stdin.read(LARGEST + 1)
        else:
            with Path(name).open(encoding="utf-8") as file:
                text = file.read(LARGEST + 1)
    except OSError as error:
        raise Complaint(f"cannot read {name}: {error.strerror}", USAGE) from None
    except UnicodeDecodeError:
        raise Complaint(f"{name} is not text; a bundle is PEM", USAGE) from None
    if len(text) > LARGEST:
        raise Complaint(f"{name} is larger than a bundle may be", USAGE)
    return text if text.endswith("\n") else f"{text}\n"


def _url(server: ServerConnection, *parts: str) -> str:
    return server.group("certificates", "v1beta1", "clustertrustbundles", *parts)


def _text(bundle: Json) -> str:
    found: str = bundle["spec"].get("trustBundle") or ""
    return found


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("SIGNER", lambda one: one["spec"].get("signerName") or "-"),
    ListColumn("CERTIFICATES", lambda one: _text(one).count("-----BEGIN CERTIFICATE-----")),
    ListColumn("AGE", lambda one: times.age(one["metadata"].get("creationTimestamp"))),
)
