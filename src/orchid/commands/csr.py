"""`orchid csr`: request, look at, decide and fetch certificates.

    orchid csr new alice --group developers   a key, and a request for its certificate
    orchid csr show alice                     what is asked for, and by whom
    orchid csr approve alice                  or deny
    orchid csr fetch alice                    waits for the certificate, writes it

The key is made here and never leaves: the server sees the request alone. What a request asks for is
read out of its signed bytes (certificate_request.py), not taken from anybody's word.
"""

import argparse
import base64
import binascii
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchid.commands.terminal import times
from orchid.commands.terminal.connection import CONFLICT, CommandRefused, Json, ServerConnection
from orchid.commands.terminal.output import (
    USAGE,
    Cell,
    Complaint,
    facts,
    remark,
    say,
    say_json,
    table,
)
from orchid.commands.terminal.subcommands import add_subcommands, run_subcommand

KIND = "CertificateSigningRequest"
DIGITAL_SIGNATURE = "digital signature"
SIGNERS = {
    "client": lambda names: names.client_signer,
    "node-client": lambda names: names.node_client_signer,
    "node-serving": lambda names: names.node_serving_signer,
    "legacy": lambda names: names.legacy_signer,
}
USAGES = {"node-serving": "server auth"}
ATTEMPTS = 5
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("new", "make a key and request a certificate for it", _new_arguments, _new),
            ("list", "list requests", _list_arguments, _list),
            ("show", "decode a request", _name_argument, _show),
            ("approve", "approve requests", _decision_arguments, _approve),
            ("deny", "deny requests", _decision_arguments, _deny),
            ("fetch", "wait for a certificate and write it", _fetch_arguments, _fetch),
        ),
    )


run = run_subcommand


# -- new -----------------------------------------------------------------------------------


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the request, and of the key's file")
    parser.add_argument("--user", default="", help="common name of the subject (default: NAME)")
    for flag, words in (
        ("--group", "organization of the subject: a group of the user's"),
        ("--dns", "host name that the certificate is for"),
        ("--ip", "address that the certificate is for"),
        ("--uri", "URI that the certificate is for"),
        ("--email", "mail address that the certificate is for"),
        ("--usage", "what the key may do (default: what the signer usually grants)"),
    ):
        parser.add_argument(flag, action="append", default=[], help=f"{words}; may be repeated")
    parser.add_argument(
        "--signer",
        default="client",
        help=f"{', '.join(SIGNERS)}, or a full name like example.com/signer (default: client)",
    )
    parser.add_argument(
        "--for", dest="lifetime", type=times.duration_of, metavar="24h", help="how long it lasts"
    )
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="use this key instead of making NAME.key"
    )


def _new(chosen: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.commands import certificate_request

    name = _file_name(chosen.name)
    key_file = chosen.key or Path(f"{name}.key")
    key = certificate_request.load(key_file) if chosen.key else certificate_request.make(key_file)
    try:
        data = certificate_request.build(
            key,
            # The names say whom a certificate of one's own authority is for.
            chosen.user or ("" if _is_own(chosen) else name),
            groups=chosen.group,
            names=certificate_request.AlternativeNames(
                chosen.dns, chosen.ip, chosen.uri, chosen.email
            ),
        )
        answer = server.post(_place(server), _request(chosen, server, data))
    except Complaint:
        if not chosen.key:
            key_file.unlink(missing_ok=True)  # made for a request that does not exist
        raise
    if chosen.output == "json":
        say_json(answer)
        return 0
    made = "uses" if chosen.key else "made"
    say(f"requested {name} from {answer['spec']['signerName']} ({made} {key_file})")
    remark(f"next: orchid csr approve {name}, then orchid csr fetch {name}")
    return 0


def _is_own(chosen: argparse.Namespace) -> bool:
    """Whether it is for names, and for a signer that is not the platform's."""
    named = chosen.dns or chosen.ip or chosen.uri or chosen.email
    return bool(named) and chosen.signer not in SIGNERS


def _request(chosen: argparse.Namespace, server: ServerConnection, data: bytes) -> Json:
    signer = SIGNERS.get(chosen.signer)
    spec: Json = {
        "request": base64.b64encode(data).decode(),
        "signerName": signer(server.names) if signer else chosen.signer,
    }
    if chosen.usage or signer:
        usual = [DIGITAL_SIGNATURE, USAGES.get(chosen.signer, "client auth")]
        spec["usages"] = chosen.usage or usual
    if chosen.lifetime is not None:
        spec["expirationSeconds"] = chosen.lifetime
    return {
        "apiVersion": server.api_version("certificates", "v1"),
        "kind": KIND,
        "metadata": {"name": chosen.name},
        "spec": spec,
    }


# -- list and show -------------------------------------------------------------------------


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pending", action="store_true", help="only those that nobody has decided")


def _list(chosen: argparse.Namespace, server: ServerConnection) -> int:
    found = list(server.items(_place(server)))
    if chosen.pending:
        found = [each for each in found if not _conditions(each)]
    if chosen.output == "json":
        say_json(found)
        return 0
    table(
        ("NAME", "AGE", "SIGNER", "REQUESTED BY", "FOR", "STATE"),
        [
            (
                each["metadata"]["name"],
                times.age(each["metadata"].get("creationTimestamp")),
                each["spec"].get("signerName", ""),
                each["spec"].get("username", ""),
                _lifetime(each),
                state(each),
            )
            for each in found
        ],
        empty="no requests" + (" wait for a decision" if chosen.pending else ""),
    )
    return 0


def _name_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def _show(chosen: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.commands import certificate_request

    found = server.get(_place(server, chosen.name))
    decoded = certificate_request.facts_of(_bytes(found["spec"].get("request")))
    if chosen.output == "json":
        say_json({"request": found, "decoded": {title: _plain(value) for title, value in decoded}})
        return 0
    spec = found["spec"]
    facts(
        [
            ("Name", chosen.name),
            ("State", state(found)),
            *((title, value) for title, value in decoded),
            ("Usages", spec.get("usages") or ["none"]),
            ("Signer", spec.get("signerName", "")),
            ("Lifetime", _lifetime(found)),
            ("Requested by", spec.get("username", "")),
            ("Their groups", spec.get("groups") or ["none"]),
            ("Requested", f"{times.age(found['metadata'].get('creationTimestamp'))} ago"),
            *(_told(condition) for condition in _conditions(found)),
            *certificate_request.certificate_facts(_bytes(_status(found).get("certificate"))),
        ]
    )
    return 0


def _told(condition: Json) -> tuple[str, str]:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    return condition.get("type", ""), ": ".join(part for part in (reason, message) if part)


def state(request: Json) -> Cell:
    """Where a request stands, in the words that other tools use."""
    types = [condition.get("type") for condition in _conditions(request)]
    if "Denied" in types:
        return Cell("Denied", "bad")
    if "Failed" in types:
        return Cell("Failed", "bad")
    if _status(request).get("certificate"):
        return Cell("Issued", "good")
    return Cell("Approved", "good") if "Approved" in types else Cell("Pending", "waiting")


# -- decide --------------------------------------------------------------------------------


def _decision_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+")
    parser.add_argument("--reason", default="DecidedByHand", help="one word, for programs")
    parser.add_argument("--message", default="", help="a sentence, for people")


def _approve(chosen: argparse.Namespace, server: ServerConnection) -> int:
    return _decide(chosen, server, "Approved")


def _deny(chosen: argparse.Namespace, server: ServerConnection) -> int:
    return _decide(chosen, server, "Denied")


def _decide(chosen: argparse.Namespace, server: ServerConnection, verdict: str) -> int:
    answers = [_write_decision(chosen, server, name, verdict) for name in chosen.names]
    if chosen.output == "json":
        say_json(answers)
    return 0


def _write_decision(
    chosen: argparse.Namespace, server: ServerConnection, name: str, verdict: str
) -> Json:
    condition = {
        "type": verdict,
        "status": "True",
        "reason": chosen.reason,
        "message": chosen.message or f"{verdict} with orchid csr.",
    }
    for attempt in range(ATTEMPTS):
        found = server.get(_place(server, name))
        if any(each.get("type") == verdict for each in _conditions(found)):
            answer = found
            break
        status = {**_status(found), "conditions": [*_conditions(found), condition]}
        try:
            answer = server.put(_place(server, name, "approval"), {**found, "status": status})
            break
        except CommandRefused as refused:
            # Somebody else wrote in between: look again before deciding.
            if refused.status != CONFLICT or attempt == ATTEMPTS - 1:
                raise
    if chosen.output != "json":
        say(f"{verdict.lower()} {name}")
    return answer


# -- fetch ---------------------------------------------------------------------------------


def _fetch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--out", default="", metavar="FILE", help="'-' for standard output (default: NAME.crt)"
    )
    parser.add_argument(
        "--wait", type=times.duration_of, default=60, metavar="1m", help="how long (default: 1m)"
    )


def _fetch(chosen: argparse.Namespace, server: ServerConnection) -> int:
    target = chosen.out or f"{_file_name(chosen.name)}.crt"
    found = wait_for(server, chosen.name, chosen.wait)
    certificate = _bytes(_status(found)["certificate"])
    if target == "-":
        say(certificate.decode("ascii", "replace").rstrip("\n"))
        return 0
    try:
        Path(target).write_bytes(certificate)
    except OSError as error:
        raise Complaint(f"cannot write {target}: {error.strerror}") from None
    if chosen.output == "json":
        say_json(found)
        return 0
    say(f"wrote {target}")
    return 0


def wait_for(
    server: ServerConnection, name: str, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> Json:
    """Wait until a request has its certificate; a refusal ends the wait at once."""
    deadline = time.monotonic() + seconds
    pause = SHORTEST_PAUSE
    while True:
        found = server.get(_place(server, name))
        if _status(found).get("certificate"):
            return found
        for condition in _conditions(found):
            if condition.get("type") in ("Denied", "Failed"):
                title, told = _told(condition)
                raise Complaint(f"{name} was {title.lower()}: {told or 'no reason is given'}")
        if time.monotonic() >= deadline:
            raise Complaint(_overdue(found, name, seconds))
        sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, LONGEST_PAUSE)


def _overdue(found: Json, name: str, seconds: float) -> str:
    waited = f"{name} has no certificate after {times.span(seconds)}"
    if not _conditions(found):
        return f"{waited}: nobody has decided; approve it with: orchid csr approve {name}"
    signer = found["spec"].get("signerName", "")
    return f"{waited}: it is approved, but the signer {signer} has not signed; does it run?"


# -- reading answers -----------------------------------------------------------------------


def _place(server: ServerConnection, *parts: str) -> str:
    return server.group("certificates", "v1", "certificatesigningrequests", *parts)


def _status(request: Json) -> Json:
    found: Json = request.get("status") or {}
    return found


def _conditions(request: Json) -> list[Json]:
    return list(_status(request).get("conditions") or ())


def _lifetime(request: Json) -> str:
    seconds = request["spec"].get("expirationSeconds")
    return times.span(seconds) if isinstance(seconds, int) else "as the signer likes"


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text or "")
    except (binascii.Error, TypeError, ValueError):
        return b""


def _plain(value: Any) -> Any:
    return value.text if isinstance(value, Cell) else value


def _file_name(name: str) -> str:
    if "/" in name or name in ("", ".", "..") or name.startswith("-") or "\0" in name:
        raise Complaint(f"{name!r} cannot be the name of a request", USAGE)
    return name
