"""`orchid bundle`: trust bundles, the authorities that workloads are to trust.

`list` shows them, `show` what certificates one holds (or, with --pem, the bundle itself, ready for
a file), `set` makes or replaces one from files. What a bundle may hold is the server's to judge.
"""

import argparse
import hashlib
import sys
from pathlib import Path

from orchid.commands.terminal import times
from orchid.commands.terminal.connection import NOT_FOUND, CommandRefused, Json, ServerConnection
from orchid.commands.terminal.output import USAGE, Complaint, say, say_json, table
from orchid.commands.terminal.subcommands import add_subcommands, run_subcommand

LARGEST = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("list", "list trust bundles", _list_arguments, _list),
            ("show", "show the certificates of a bundle", _show_arguments, _show),
            ("set", "make a bundle from files, or replace it", _set_arguments, _set),
        ),
    )


run = run_subcommand


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--signer", default="", help="only the bundles of this signer")


def _list(chosen: argparse.Namespace, server: ServerConnection) -> int:
    query = {"fieldSelector": f"spec.signerName={chosen.signer}"} if chosen.signer else {}
    found = list(server.items(_place(server), query))
    if chosen.output == "json":
        say_json(found)
        return 0
    table(
        ("NAME", "SIGNER", "CERTIFICATES", "AGE"),
        [
            (
                each["metadata"]["name"],
                each["spec"].get("signerName") or "-",
                str(_text(each).count("-----BEGIN CERTIFICATE-----")),
                times.age(each["metadata"].get("creationTimestamp")),
            )
            for each in found
        ],
        empty="no trust bundles",
    )
    return 0


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", default="")
    parser.add_argument("--signer", default="", help="all bundles of this signer, instead of one")
    parser.add_argument("--pem", action="store_true", help="print the bundle itself")


def _show(chosen: argparse.Namespace, server: ServerConnection) -> int:
    if bool(chosen.name) == bool(chosen.signer):
        raise Complaint("give the name of a bundle, or --signer", USAGE)
    found = _chosen(chosen, server)
    text = "".join(map(_text, found))
    if chosen.output == "json":
        say_json(found if chosen.signer else found[0])
    elif chosen.pem:
        say(text.rstrip("\n"))
    else:
        _show_certificates(text)
    return 0


def _chosen(chosen: argparse.Namespace, server: ServerConnection) -> list[Json]:
    if chosen.name:
        return [server.get(_place(server, chosen.name))]
    query = {"fieldSelector": f"spec.signerName={chosen.signer}"}
    found = list(server.items(_place(server), query))
    if not found:
        raise Complaint(f"{chosen.signer} has no trust bundle")
    return found


def _show_certificates(text: str) -> None:
    from orchid.credentials import certificates, trust_anchors
    from orchid.credentials.refusals import Refusal

    rows = []
    try:
        for data in trust_anchors.anchors(text):
            found = certificates.parse(data)
            rows.append(
                (
                    found.subject.rfc4514_string() or "-",
                    times.until(found.not_valid_after_utc),
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


def _set(chosen: argparse.Namespace, server: ServerConnection) -> int:
    text = "".join(_read(name) for name in chosen.files)
    try:
        found = server.get(_place(server, chosen.name))
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        answer, done = server.post(_place(server), _new(chosen, server, text)), "made"
    else:
        # The version that was read goes along, so that nobody's change is lost unseen.
        spec = {**found["spec"], "trustBundle": text}
        if chosen.signer:
            spec["signerName"] = chosen.signer
        answer = server.put(_place(server, chosen.name), {**found, "spec": spec})
        done = "replaced" if _text(found) != text else "unchanged:"
    if chosen.output == "json":
        say_json(answer)
    else:
        say(f"{done} {chosen.name}")
    return 0


def _new(chosen: argparse.Namespace, server: ServerConnection, text: str) -> Json:
    spec: Json = {"trustBundle": text}
    if chosen.signer:
        spec["signerName"] = chosen.signer
    return {
        "apiVersion": server.api_version("certificates", "v1beta1"),
        "kind": "ClusterTrustBundle",
        "metadata": {"name": chosen.name},
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


def _place(server: ServerConnection, *parts: str) -> str:
    return server.group("certificates", "v1beta1", "clustertrustbundles", *parts)


def _text(bundle: Json) -> str:
    found: str = bundle["spec"].get("trustBundle") or ""
    return found
