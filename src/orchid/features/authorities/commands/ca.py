"""`orchid ca`: custom certificate authorities.

    orchid ca new web --signer example.com/web      the server creates the key
    orchid ca import web --signer example.com/web --cert ca.crt --key ca.key
    orchid ca new web --signer example.com/web --parent corp     signed by the authority corp
    orchid ca new web --signer example.com/web --external        signed elsewhere:
    orchid ca request web > web.csr                 the request for an offline root, and
    orchid ca install web chain.pem                 the chain that it signed
    orchid ca list                                  authorities and their expiry
    orchid ca show web                              its state, its terms, its certificate
    orchid ca rotate web --wait 25h                 have the next key sign, once that is possible
    orchid ca delete web                            asks first; also deletes a key of the server

Request certificates with `orchid csr new NAME --signer example.com/web`; verify them with `orchid
bundle show --signer example.com/web --pem`.
"""

import argparse
import base64
from pathlib import Path
from typing import Any

from orchid.features.token_keys.commands import key_objects, key_steps
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks, insist
from orchid.kernel.terminal.connection import (
    CommandRefused,
    Json,
    ServerConnection,
    path,
    retried,
)
from orchid.kernel.terminal.flags import add_wait, name_argument, names_argument, no_arguments
from orchid.kernel.terminal.objects import ListColumn, completed, show_list
from orchid.kernel.terminal.output import (
    USAGE,
    Cell,
    Complaint,
    facts,
    name_of,
    print_for_programs,
    say,
)
from orchid.kernel.terminal.subcommands import add_subcommands, for_each, run_subcommand

KIND, VERSION = "CertificateAuthority", "v1beta1"
CLUSTER = "cluster"  # the authority of the platform
WAITS = "ChainMissing"  # the reason of an authority whose request is not signed yet


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("new", "create an authority with a key of the server", _new_arguments, _new),
            (
                "import",
                "create an authority from a certificate and its key",
                _import_arguments,
                _import,
            ),
            (
                "request",
                "print the request that an authority elsewhere has to sign",
                name_argument("authority"),
                _request,
            ),
            (
                "install",
                "install the chain that an authority elsewhere signed",
                _install_arguments,
                _install,
            ),
            ("list", "list authorities", no_arguments, _list),
            ("show", "show an authority", _show_arguments, _show),
            ("rotate", "sign with the next key of an authority", _rotate_arguments, _rotate),
            (
                "delete",
                "delete authorities and the keys that the server created",
                asks(names_argument("authority")),
                _delete,
            ),
        ),
    )


run = run_subcommand


# -- new and import ------------------------------------------------------------------------


def _term_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--signer", required=True, help="the signer name, like example.com/web")
    for flag, words in (
        ("--usage", "allowed key usage (default: those of a TLS server)"),
        ("--names", "allowed type of alternative names: dns, ip, uri, email (default: dns, ip)"),
        ("--subject", "allowed part of a subject, like commonName (default: all)"),
        ("--certifies", "allowed key algorithm, like ECDSA-P256 (default: most)"),
    ):
        parser.add_argument(flag, action="append", default=[], help=f"{words}; may be repeated")
    for flag, words in (
        ("--max", "maximum lifetime of a certificate (default: 90d)"),
        ("--default", "lifetime if the request has none (default: 30d)"),
    ):
        parser.add_argument(flag, type=times.duration_of, metavar="24h", help=words)
    parser.add_argument("--wildcards", action="store_true", help="allow names like *.example.com")
    parser.add_argument(
        "--trust-domain",
        default="",
        metavar="example.org",
        help="issue X.509-SVIDs of this SPIFFE trust domain to service accounts",
    )
    parser.add_argument(
        "--acme", action="store_true", help="serve ACME clients: see orchid acme key"
    )
    add_wait(parser)


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    _term_arguments(parser)
    parser.add_argument("--algorithm", default="", help="of its key (default: ECDSA-P256)")
    parser.add_argument(
        "--common-name", default="", help="common name of its subject (default: NAME)"
    )
    above = parser.add_mutually_exclusive_group()
    parent = above.add_argument("--parent", default="", help="the authority that signs its keys")
    completed(parent, "authority")
    above.add_argument(
        "--external", action="store_true", help="another authority signs its request elsewhere"
    )
    parser.add_argument(
        "--for", dest="life", type=times.duration_of, metavar="365d", help="its lifetime"
    )


def _new(arguments: argparse.Namespace, server: ServerConnection) -> int:
    spec = _terms(arguments)
    spec["key"] = {"algorithm": arguments.algorithm}
    spec["subject"] = {"commonName": arguments.common_name or arguments.name}
    if arguments.life is not None:
        spec["duration"] = f"{arguments.life}s"
    if arguments.parent:
        spec["parent"] = {"authority": arguments.parent}
    if arguments.external:
        spec["parent"] = {"external": True}
    return _make(arguments, server, spec)


# -- chains that are signed elsewhere ------------------------------------------------------


def _request(arguments: argparse.Namespace, server: ServerConnection) -> int:
    authority = server.get(url(server, arguments.name))
    request = _status(authority).get("request") or ""
    if not request:
        raise Complaint(f"{arguments.name} has no request that waits for a signature")
    if not print_for_programs(arguments.output, {"request": request}):
        say(request.rstrip("\n"))
    return 0


def _install_arguments(parser: argparse.ArgumentParser) -> None:
    name_argument("authority")(parser)
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="PEM: the certificate and the chain above it"
    )
    parser.add_argument(
        "--key", default="", metavar="NAME", help="the SigningKey (default: the one that waits)"
    )


def _install(arguments: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.kernel.credentials import files
    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.credentials.x509 import certificates

    try:
        data = files.read_bounded(arguments.file)
        last = certificates.parse_blocks(data)[-1]
        issuer, subject = last.issuer.rfc4514_string(), last.subject.rfc4514_string()
    except (Refusal, ValueError) as problem:
        raise Complaint(f"{arguments.file}: {problem}", USAGE) from None
    if issuer != subject:
        raise Complaint(
            f"{arguments.file}: the last certificate, {subject}, is not a root: append that of its "
            f"issuer, {issuer}; clients trust the last certificate, and that cannot be changed",
            USAGE,
        )
    name = arguments.key or _waiting_key(server, arguments.name)
    signing_key = server.get(key_objects.url(server, name))
    signing_key["spec"]["chain"] = data.decode("latin-1")
    changed = server.put(key_objects.url(server, name), signing_key)
    if not print_for_programs(arguments.output, changed):
        say(f"installed the chain of {name}")
    return 0


def _waiting_key(server: ServerConnection, authority: str) -> str:
    """The key whose request has no certificate yet."""
    for signing_key in server.items(key_objects.url(server)):
        status = signing_key.get("status") or {}
        is_waiting = status.get("request") and not status.get("certificate")
        if signing_key["spec"].get("authority") == authority and is_waiting:
            return name_of(signing_key)
    raise Complaint(
        f"no key of {authority} waits for a chain; to renew the chain of another key, use --key"
    )


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    _term_arguments(parser)
    parser.add_argument(
        "--cert", type=Path, required=True, help="PEM: its certificate and the chain above it"
    )
    parser.add_argument("--key", type=Path, required=True, help="PEM, readable by its owner only")
    parser.add_argument(
        "--namespace", "-n", default="", help="of the Secret (default: the system's)"
    )


def _import(arguments: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.kernel.credentials import files
    from orchid.kernel.credentials.authorities.authority import Authority
    from orchid.kernel.credentials.refusals import Refusal

    try:
        chain, key = files.read_bounded(arguments.cert), files.read_private(arguments.key)
        Authority.load(chain, key, now=times.now())  # before anything is sent
    except Refusal as refusal:
        raise Complaint(str(refusal), USAGE) from None
    namespace = arguments.namespace or server.naming.system_namespace
    secrets = path("api", "v1", "namespaces", namespace, "secrets")
    name = f"ca-{arguments.name}"
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    server.post(
        secrets,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": server.naming.own("tls"),
            "data": data,
        },
    )
    spec = {**_terms(arguments), "secretRef": {"namespace": namespace, "name": name}}
    try:
        return _make(arguments, server, spec)
    except CommandRefused:
        server.delete(path("api", "v1", "namespaces", namespace, "secrets", name))
        raise


def _terms(arguments: argparse.Namespace) -> Json:
    issues: Json = {
        "usages": arguments.usage,
        "names": arguments.names,
        "subject": arguments.subject,
        "keys": arguments.certifies,
    }
    if arguments.max is not None:
        issues["maxDuration"] = f"{arguments.max}s"
    if arguments.default is not None:
        issues["defaultDuration"] = f"{arguments.default}s"
    if arguments.wildcards:
        issues["wildcards"] = True
    requested = {name: value for name, value in issues.items() if value}
    spec: Json = {"signerName": arguments.signer, "issues": requested}
    if arguments.trust_domain:
        spec["trustDomain"] = arguments.trust_domain
    return {**spec, "acme": {}} if arguments.acme else spec


def _make(arguments: argparse.Namespace, server: ServerConnection, spec: Json) -> int:
    authority = server.post(
        url(server),
        {
            "apiVersion": f"{server.naming.identity}/{VERSION}",
            "kind": KIND,
            "metadata": {"name": arguments.name},
            "spec": spec,
        },
    )
    authority = _wait_for(server, authority, arguments.wait)
    if not print_for_programs(arguments.output, authority):
        is_waiting = _condition(authority, "Ready").get("reason") == WAITS
        done = "waits for its chain; next: orchid ca request" if is_waiting else "issues for"
        say(f"{arguments.name} {done} {arguments.name if is_waiting else arguments.signer}")
    return 0


def _wait_for(server: ServerConnection, created: Json, seconds: float) -> Json:
    """Wait until the authority is ready; a problem ends the wait."""
    name = created["metadata"]["name"]

    def ready_authority() -> Json | None:
        authority = server.get(url(server, name))
        ready = _condition(authority, "Ready")
        if ready.get("status") == "True" or ready.get("reason") == WAITS:
            return authority
        if ready:
            raise Complaint(f"{name} is not ready: {ready['reason']}: {ready['message']}")
        return None

    if (authority := retried(ready_authority, seconds)) is None:
        raise Complaint(
            f"{name} was created, but no controller has created its key yet: "
            "are controllers running?"
        )
    return authority


# -- list, show, delete --------------------------------------------------------------------


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(arguments, server, url(server), COLUMNS, empty="no authorities")


def _rotate_arguments(parser: argparse.ArgumentParser) -> None:
    name_argument("authority")(parser)
    key_steps.hurry_argument(parser)
    key_steps.wait_argument(parser)


def _rotate(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return key_steps.rotate(arguments, server, arguments.name)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    name_argument("authority")(parser)
    parser.add_argument(
        "--pem", action="store_true", help="print its certificate and the chain above it"
    )


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    authority = server.get(url(server, arguments.name))
    text = _status(authority).get("certificate") or ""
    if print_for_programs(arguments.output, authority):
        return 0
    if arguments.pem:
        say(text.rstrip("\n"))
    else:
        issues = authority["spec"].get("issues") or {}
        facts(
            [
                ("Name", arguments.name),
                ("Signer", signers(authority)),
                ("State", _state(authority)),
                *(
                    (entry["type"], entry["message"])
                    for entry in _status(authority).get("conditions") or ()
                ),
                ("Key", _key(authority)),
                *_certificate_facts(text),
                (
                    "Keys",
                    [
                        f"{entry['name']} {entry['state']}"
                        for entry in _status(authority).get("keys", ())
                    ],
                ),
                ("Trust bundle", _status(authority).get("trustBundle") or "none"),
                ("Usages", issues.get("usages") or ["none"]),
                ("Names", issues.get("names") or ["none"]),
                ("Subjects", issues.get("subject") or ["any"]),
                ("Certifies", issues.get("keys") or ["none"]),
                ("Longest", issues.get("maxDuration", "")),
                ("Usual", issues.get("defaultDuration", "")),
            ]
        )
    return 0


def _certificate_facts(text: str) -> list[tuple[str, Any]]:
    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.credentials.x509 import certificates

    if not text:
        return []
    try:
        issuing = certificates.parse_blocks(text)[0]
    except (Refusal, ValueError):
        return [("Certificate", Cell("not readable", "bad"))]
    return [
        ("Subject", issuing.subject.rfc4514_string()),
        ("Ends", times.until(issuing.not_valid_after_utc)),
        ("SHA-256", certificates.fingerprint(issuing)),
    ]


def _delete(arguments: argparse.Namespace, server: ServerConnection) -> int:
    def delete(name: str) -> tuple[str, Json]:
        if not arguments.yes:
            server.delete(url(server, name), dry_run=True)  # shows what depends on it
        insist(arguments, f"Delete the authority {name}? Nothing can be issued with it again.")
        return f"deleted {name}", server.delete(url(server, name))

    return for_each(arguments, arguments.names, delete)


# -- parsing of responses ------------------------------------------------------------------


def url(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.naming.identity, VERSION, "certificateauthorities", *parts)


def signers(authority: Json) -> list[str]:
    """The signer of an authority, or those of the platform."""
    spec = authority["spec"]
    return list(spec.get("signerNames") or (spec.get("signerName", ""),))


def _signer_cell(authority: Json) -> str:
    found = signers(authority)
    return "platform signers" if name_of(authority) == CLUSTER else ",".join(found)


def _status(authority: Json) -> Json:
    found: Json = authority.get("status") or {}
    return found


def _condition(authority: Json, type_: str) -> Json:
    found = _status(authority).get("conditions") or ()
    return next((one for one in found if one.get("type") == type_), {})


def _state(authority: Json) -> Cell:
    ready = _condition(authority, "Ready")
    if not ready:
        return Cell("waits for its key", "waiting")
    if ready.get("status") != "True":
        return Cell(ready.get("reason", ""), "bad")
    late = _condition(authority, "Expiring").get("status") == "True"
    return Cell("ready, ends soon", "waiting") if late else Cell("ready", "good")


def _key(authority: Json) -> str:
    reference = authority["spec"].get("secretRef")
    if reference:
        return f"secret {reference['namespace']}/{reference['name']}"
    key = authority["spec"].get("key")
    if not key:
        return "files"
    return f"hsm {key['pkcs11']['label']}" if key.get("pkcs11") else str(key.get("algorithm", ""))


def _end(authority: Json) -> str:
    moment = times.parse(_status(authority).get("notAfter"))
    return times.until(moment) if moment else "-"


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("SIGNER", _signer_cell),
    ListColumn("KEY", _key),
    ListColumn("STATE", _state),
    ListColumn("ENDS", _end),
)
