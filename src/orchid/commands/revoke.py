"""`orchid revoke`: take a credential back, at once and for good.

    orchid revoke csr/alice --reason keyCompromise    every certificate issued for that request
    orchid revoke cert/3f8a…                          one certificate, by its serial number
    orchid revoke token < file                        one token of an account
    orchid revoke account/ci/builder                  every token of an account issued until now
    orchid revoke account/ci/builder --before 2026-11-15T10:00:00Z

Says what it will hit, and asks first on a terminal. A token is read from standard input, and only
its id is sent. With the reason certificateHold it can be lifted again, by deleting the revocation.
"""

import argparse
import base64
import binascii
import json
import sys

from orchid.commands import issued
from orchid.commands.terminal import times
from orchid.commands.terminal.connection import Json, ServerConnection, add_flags, connect, path
from orchid.commands.terminal.output import USAGE, Complaint, remark, say, tell
from orchid.credentials.revocation_list import REASONS

KIND = "CredentialRevocation"
LARGEST_TOKEN = 64 * 1024
SUBJECT = "system:serviceaccount:"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="WHAT", help="csr/NAME, cert/SERIAL, token or account/NAMESPACE/NAME"
    )
    parser.add_argument(
        "--reason", choices=tuple(REASONS), default="unspecified", help="why, as CRLs name it"
    )
    parser.add_argument("--message", default="", help="why, in a sentence")
    parser.add_argument(
        "--before", metavar="TIME", default="", help="of an account: only tokens issued until then"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_flags(parser)


def run(chosen: argparse.Namespace) -> int:
    word, _, rest = chosen.what.partition("/")
    if chosen.before and word != "account":
        raise Complaint("--before is for accounts", USAGE)
    server = connect(chosen)
    if word == "csr" and rest:
        wanted = _of_request(server, rest)
    elif word == "cert" and rest:
        wanted = [_of_serial(server, rest)]
    elif chosen.what == "token":
        wanted = [_of_token(sys.stdin.buffer.read(LARGEST_TOKEN + 1))]
    elif word == "account" and rest.count("/") == 1:
        namespace, name = rest.split("/")
        wanted = [_of_account(server, namespace, name, chosen.before)]
    else:
        raise Complaint(
            f"{chosen.what!r} is none of csr/NAME, cert/SERIAL, token, account/NAMESPACE/NAME",
            USAGE,
        )
    _confirm(chosen, [text for text, _ in wanted])
    made = [server.post(_place(server), _body(server, chosen, spec)) for _, spec in wanted]
    if tell(chosen.output, made):
        return 0
    for one in made:
        say(f"revoked, by {one['metadata']['name']}")
    return 0


Wanted = tuple[str, Json]
"""What will be hit, in words, and the part of a spec that names it."""


def _of_request(server: ServerConnection, name: str) -> list[Wanted]:
    query = {"fieldSelector": f"spec.request.name={issued.escaped(name)}"}
    found = list(server.items(issued.place(server), query))
    live = [one for one in found if issued.end_of(one) > times.now()]
    open_ = [one for one in live if not issued.revocation_of(one)]
    if not open_:
        what = "is already revoked" if live else "is recorded" if not found else "is still valid"
        some = "every certificate" if live else "no certificate"
        raise Complaint(f"{some} of the request {name!r} {what}")
    return [_certificate(one) for one in open_]


def _of_serial(server: ServerConnection, given: str) -> Wanted:
    serial = given.replace(":", "").lower().lstrip("0") or "0"
    if not all(digit in "0123456789abcdef" for digit in serial):
        raise Complaint(f"{given!r} is no serial number in hex", USAGE)
    return _certificate(server.get(issued.place(server, serial)))


def _certificate(record: Json) -> Wanted:
    spec = record["spec"]
    whose = spec.get("subject") or ", ".join(spec.get("names", ())) or "nobody"
    text = f"certificate {spec['serialNumber']} of {whose}, valid until {spec.get('notAfter', '?')}"
    named = {"serialNumber": spec["serialNumber"], "signerName": spec["signerName"]}
    return text, {"certificate": named}


def _of_token(data: bytes) -> Wanted:
    """The id of a token and its account; the token itself goes nowhere."""
    try:
        if len(data) > LARGEST_TOKEN:
            raise ValueError
        payload = data.strip().split(b".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
        jti, subject = str(claims["jti"]), str(claims["sub"])
        namespace, name = subject.removeprefix(SUBJECT).split(":")
        if not subject.startswith(SUBJECT):
            raise ValueError
    except (ValueError, KeyError, IndexError, TypeError, binascii.Error, RecursionError):
        raise Complaint("standard input has no token of an account with an id", USAGE) from None
    text = f"token {jti} of the account {namespace}/{name}"
    return text, {"token": {"jti": jti, "namespace": namespace, "name": name}}


def _of_account(server: ServerConnection, namespace: str, name: str, before: str) -> Wanted:
    server.get(path("api", "v1", "namespaces", namespace, "serviceaccounts", name))
    account: Json = {"namespace": namespace, "name": name}
    if before:
        if times.parse(before) is None:
            raise Complaint(f"{before!r} is no time, like 2026-11-15T10:00:00Z", USAGE)
        account["issuedBefore"] = before
    until = before or "now"
    return f"every token of the account {namespace}/{name} issued until {until}", {
        "account": account
    }


def _confirm(chosen: argparse.Namespace, texts: list[str]) -> None:
    for text in texts:
        remark(f"will revoke: {text}")
    if chosen.yes or chosen.what == "token" or not sys.stdin.isatty():
        return
    remark("Go on? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Complaint("nothing was revoked")


def _place(server: ServerConnection) -> str:
    return path("apis", server.names.identity, "v1alpha1", "credentialrevocations")


def _body(server: ServerConnection, chosen: argparse.Namespace, named: Json) -> Json:
    spec = {**named, "reason": chosen.reason}
    if chosen.message:
        spec["message"] = chosen.message
    return {
        "apiVersion": f"{server.names.identity}/v1alpha1",
        "kind": KIND,
        "metadata": {"generateName": f"{next(iter(named))}-"},
        "spec": spec,
    }
