"""`orchid revoke`: revoke a credential, from now on and for good.

    orchid revoke csr/alice --reason keyCompromise     every certificate issued for that request
    orchid revoke cert/3f8a…                           one certificate, by its serial number
    orchid revoke token < file                         one token of an account
    orchid revoke account/ci/builder                   every credential of an account until now
    orchid revoke account/ci/builder --certificates    and every certificate and SVID of it
    orchid revoke account/ci/builder --before 2026-11-15T10:00:00Z
    orchid revoke key/tokens-1                         a key, and every token that it signed, or
                                                       every certificate
    orchid revoke authority/web                        every certificate of an authority until now
    orchid revoke user/alice                           every credential of a user issued until now
    orchid revoke user/alice --certificates            and every certificate that she requested
    orchid revoke user/alice --before 2030-01-01T00:00:00Z      locked out until then
    orchid revoke self --cert a.crt --key a.key        your own certificate; needs no permission
    orchid revoke lift certificate-5rd8l               lift a hold, or the revocation of a user
    orchid revoke user/alice --cluster prod            in a Kubernetes cluster (`orchid cluster`)

Prints what it will revoke, then asks on a terminal; elsewhere, it needs --yes. A token is read from
standard input, and only its id and its expiry are sent. Existing revocations stay; another reason
makes a hold final.
`orchid revocations` lists the revocations.
"""

import argparse
import base64
import binascii
import hashlib
import json
import sys
from pathlib import Path

from orchid.features.certificates.commands import issued
from orchid.features.revoking.commands import cluster_targets, revocations
from orchid.kernel.credentials.files import read_bounded, read_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.x509.revocation_list import REASONS
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import add_yes, insist
from orchid.kernel.terminal.connection import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    add_flags,
    connect,
    path,
)
from orchid.kernel.terminal.objects import completed
from orchid.kernel.terminal.output import (
    USAGE,
    Complaint,
    print_for_programs,
    printable,
    remark,
    say,
)

KIND = "CredentialRevocation"
LARGEST_TOKEN = 64 * 1024
SUBJECT = "system:serviceaccount:"
LARGEST_CERTIFICATE = 1 << 20
LIFT = "lift"
SELF = "self"
FORMS_OF_WHAT = (
    "csr/NAME, cert/SERIAL, token, account/NAMESPACE/NAME, authority/NAME, user/NAME, key/NAME "
    "or self"
)
NO_TOKEN = (
    ValueError, KeyError, IndexError, TypeError, OverflowError, binascii.Error, RecursionError,
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        help=f"{FORMS_OF_WHAT}; or lift. token reads the token from standard input",
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", default="", help="with lift: the revocation to delete"
    )
    parser.add_argument(
        "--reason", choices=tuple(REASONS), default="unspecified", help="the reason, as in CRLs"
    )
    parser.add_argument("--message", default="", help="the reason as a sentence")
    parser.add_argument(
        "--before",
        metavar="TIME",
        default="",
        help="of an account, an authority or a user: only credentials issued until then",
    )
    parser.add_argument(
        "--certificates",
        action="store_true",
        help="of a user or an account: also every certificate that names or was requested by it",
    )
    holder = parser.add_argument_group("with self")
    holder.add_argument(
        "--cert", type=Path, metavar="FILE", help="the certificate (default: of the kubeconfig)"
    )
    holder.add_argument("--key", type=Path, metavar="FILE", help="its private key")
    cluster = parser.add_argument(
        "--cluster", default="", metavar="NAME", help=f"in that cluster: {cluster_targets.FORMS}"
    )
    completed(cluster, "cluster")
    add_yes(parser)
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    word, _, rest = arguments.what.partition("/")
    if arguments.name and arguments.what == "token":
        raise Complaint("the token is read from standard input: orchid revoke token < FILE", USAGE)
    if arguments.what == LIFT and not arguments.name:
        raise Complaint("lift needs the name of a revocation: orchid revoke lift NAME", USAGE)
    if arguments.name and arguments.what != LIFT:
        raise Complaint("only lift takes a second name", USAGE)
    if arguments.before and word not in ("account", "authority", "user"):
        raise Complaint("--before is for accounts, authorities and users", USAGE)
    if arguments.certificates and word not in ("account", "user"):
        raise Complaint("--certificates is for accounts and users", USAGE)
    if arguments.cluster and (
        arguments.before or arguments.certificates or arguments.what in (LIFT, SELF)
    ):
        raise Complaint("--cluster goes with none of --before, --certificates, lift, self", USAGE)
    if (arguments.cert or arguments.key) and not (
        arguments.what == SELF and arguments.cert and arguments.key
    ):
        raise Complaint("--cert and --key go together, with self", USAGE)
    server = connect(arguments, _identity(arguments))
    if arguments.what == LIFT:
        return _lift(server, arguments)
    if arguments.cluster:
        targets = cluster_targets.wanted(server, arguments.cluster, word, rest)
    else:
        targets = _wanted(server, arguments, word, rest)
    _confirm(arguments, [f"will revoke: {text}" for text, _ in targets])
    return _create(server, arguments, targets)


def _wanted(
    server: ServerConnection, arguments: argparse.Namespace, word: str, rest: str
) -> list["Wanted"]:
    if word == "csr" and rest:
        return _of_request(server, rest)
    if word == "cert" and rest:
        return [_of_serial(server, rest)]
    if arguments.what == "token":
        return [_of_token(server, sys.stdin.buffer.read(LARGEST_TOKEN + 1))]
    if arguments.what == SELF:
        return [_of_holder(server.access.certificate)]
    if word == "account" and rest.count("/") == 1:
        namespace, name = rest.split("/")
        target = _of_account(server, namespace, name, arguments.before)
        return [target, *_certificates_of(server, f"{SUBJECT}{namespace}:{name}", arguments)]
    if word == "authority" and rest:
        return [_of_authority(server, rest, arguments.before)]
    if word == "key" and rest:
        return [_of_key(server, rest)]
    if word == "user" and rest:
        return [_of_user(rest, arguments.before), *_certificates_of(server, rest, arguments)]
    raise Complaint(f"{arguments.what!r} is none of {FORMS_OF_WHAT}", USAGE)


def _create(
    server: ServerConnection, arguments: argparse.Namespace, targets: list["Wanted"]
) -> int:
    created = []
    for _, spec in targets:
        try:
            created.append(server.post(revocations.url(server), _body(server, arguments, spec)))
        except CommandRefused as refused:
            if refused.status != CONFLICT or not refused.about:
                raise
            remark(f"already revoked, by {printable(refused.about)}")
    if print_for_programs(arguments.output, created):
        return 0
    for revocation in created:
        say(f"revoked, by {revocation['metadata']['name']}")
    return 0


def _lift(server: ServerConnection, arguments: argparse.Namespace) -> int:
    """Delete a revocation that is a hold or of a user; the server refuses any other."""
    revocation = server.get(revocations.url(server, arguments.name))
    if not revocations.can_be_lifted(revocation):
        raise Complaint(
            f"{arguments.name} is final: "
            "only certificateHold and revocations of users can be lifted"
        )
    _confirm(arguments, [f"will release: {revocations.target_of(revocation)}"])
    server.delete(revocations.url(server, arguments.name))
    say(f"released {revocations.target_of(revocation)}")
    return 0


Wanted = tuple[str, Json]
"""The description of a target, and the part of a spec that names it."""


def _of_request(server: ServerConnection, name: str) -> list[Wanted]:
    query = {"fieldSelector": f"spec.request.name={issued.escaped(name)}"}
    records = [
        record for record in server.items(issued.url(server), query) if issued.is_ours(record)
    ]
    live = [record for record in records if issued.end_of(record) > times.now()]
    if not live:
        what = "is still valid" if records else "is recorded"
        raise Complaint(f"no certificate of the request {name!r} {what}")
    return [_certificate(record) for record in live]


def _of_serial(server: ServerConnection, given: str) -> Wanted:
    serial = given.replace(":", "").lower().lstrip("0") or "0"
    if not all(digit in "0123456789abcdef" for digit in serial):
        raise Complaint(f"{given!r} is no serial number in hex", USAGE)
    return _certificate(server.get(issued.url(server, serial)))


def _certificate(record: Json) -> Wanted:
    spec = record["spec"]
    whose = spec.get("subject") or ", ".join(spec.get("names", ())) or "nobody"
    text = f"certificate {spec['serialNumber']} of {whose}, valid until {spec.get('notAfter', '?')}"
    named = {"serialNumber": spec["serialNumber"], "signerName": spec["signerName"]}
    return text, {"certificate": named}


def _of_token(server: ServerConnection, data: bytes) -> Wanted:
    """The id of a token, and its account or its external issuer; the token itself is not sent."""
    try:
        if len(data) > LARGEST_TOKEN:
            raise ValueError
        payload = data.strip().split(b".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
        jti, subject, issuer = (claims[name] for name in ("jti", "sub", "iss"))
        if not all(isinstance(claim, str) for claim in (jti, subject, issuer)):
            raise ValueError  # an id that is a number names no token
        ends = {"expires": times.text_of(claims["exp"])} if "exp" in claims else {}
        if not _is_own(server, issuer):
            whose = {"issuer": issuer}
            text = f"token {jti} of the issuer {issuer}"
        else:
            _, _, namespace, name = subject.split(":")
            if not subject.startswith(SUBJECT):
                raise ValueError
            whose = {"namespace": namespace, "name": name}
            text = f"token {jti} of the account {namespace}/{name}"
    except NO_TOKEN:
        raise Complaint("standard input has no token with an id", USAGE) from None
    return printable(text), {"token": {"jti": jti, **whose, **ends}}


def _is_own(server: ServerConnection, issuer: str) -> bool:
    """Whether the server issues such tokens; assumed if it does not report its issuer."""
    try:
        own_issuer = server.get("/.well-known/openid-configuration").get("issuer")
    except CommandRefused:
        return True
    return own_issuer in (None, issuer)


def _of_account(server: ServerConnection, namespace: str, name: str, before: str) -> Wanted:
    stored = path("api", "v1", "namespaces", namespace, "serviceaccounts", name)
    state = "" if server.data(stored, absent=NOT_FOUND) else ", which does not exist now,"
    account = {"namespace": namespace, "name": name, **_issued_before(before)}
    until = f"issued until {before or 'now'}"
    return f"every credential of the account {namespace}/{name}{state} {until}", {
        "account": account
    }


def _identity(arguments: argparse.Namespace) -> tuple[bytes, SecretValue] | None:
    """The certificate and the key to authenticate with, if they are given."""
    if not arguments.cert:
        return None
    try:
        key = read_private(arguments.key)
        return read_bounded(arguments.cert, LARGEST_CERTIFICATE), SecretValue(key.decode("latin-1"))
    except Refusal as refusal:
        raise Complaint(str(refusal), USAGE) from None


def _of_holder(chain: bytes) -> Wanted:
    """The client certificate of this command, by its fingerprint."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = chain.decode("latin-1").partition(begin)[2].partition(end)[0]
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        data = b""
    if not data:
        raise Complaint("there is no client certificate: name one with --cert and --key", USAGE)
    sha256 = hashlib.sha256(data).hexdigest()
    return f"your own certificate, SHA-256 {sha256}", {"certificate": {"sha256": sha256}}


def _of_authority(server: ServerConnection, name: str, before: str) -> Wanted:
    """An authority by its name, or a signer by its own, which has a slash."""
    signer = name
    if "/" not in name:
        url = path("apis", server.naming.identity, "v1beta1", "certificateauthorities", name)
        spec = server.get(url)["spec"]
        if spec.get("signerNames"):
            listed = ", ".join(spec["signerNames"])
            raise Complaint(f"{name} has several signers: revoke authority/ and one of {listed}")
        signer = spec["signerName"]
    text = f"every certificate of the signer {signer} issued until {before or 'now'}"
    return text, {"authority": {"signerName": signer, **_issued_before(before)}}


def _of_key(server: ServerConnection, name: str) -> Wanted:
    """A key; verifiers that have cached it are out of the server's reach."""
    key = server.get(path("apis", server.naming.identity, "v1beta1", "signingkeys", name))
    status = key.get("status") or {}
    live = (status.get("dependents") or {}).get("live", 0)
    if authority := key["spec"].get("authority"):
        text = f"the key {name} ({key['spec']['state']}) of the authority {authority}"
        text += " and every certificate that it has signed"
        remark(
            f"valid certificates of {name}: {live}. Verifiers elsewhere accept them until they "
            "fetch the trust bundle again"
        )
    else:
        text = f"the token key {name} ({key['spec']['state']}) and every token that it has signed"
        remark(
            f"recorded live tokens of {name}: {live}; shorter ones are not recorded. Verifiers "
            "elsewhere that have cached the key accept its tokens until they fetch the keys again"
        )
    return text, {"key": {"name": name}}


def _of_user(name: str, before: str) -> Wanted:
    text = f"every credential of the user {name} issued until {before or 'now'}"
    return text, {"user": {"username": name, **_issued_before(before)}}


def _certificates_of(
    server: ServerConnection, user: str, arguments: argparse.Namespace
) -> list[Wanted]:
    """The certificates that name or were requested by a user, if they are to be revoked, too.

    Otherwise their number is reported: the revocation of a user is on no revocation list.
    """
    try:
        records = [
            record for record in server.items(issued.url(server)) if issued.concerns(record, user)
        ]
        live = revocations.without_own(server, records)
    except CommandRefused as refused:
        if arguments.certificates or refused.status != FORBIDDEN:
            raise
        remark(f"you may not read which certificates of {user} other programs go on accepting")
        return []
    if live and not arguments.certificates:
        svids = sum(map(issued.is_svid, live))
        remark(
            f"{len(live)} valid certificates name or were requested by {user}, {svids} of them "
            "X.509-SVIDs. Other programs than this server accept them: to put them on the "
            "revocation lists, add --certificates"
        )
    return [_certificate(record) for record in live if arguments.certificates]


def _issued_before(before: str) -> Json:
    if before and times.parse(before) is None:
        raise Complaint(f"{before!r} is no time, like 2026-11-15T10:00:00Z", USAGE)
    return {"issuedBefore": before} if before else {}


def _confirm(arguments: argparse.Namespace, texts: list[str]) -> None:
    for text in texts:
        remark(text)
    insist(arguments, "Go on?")


def _body(server: ServerConnection, arguments: argparse.Namespace, named: Json) -> Json:
    spec = {**named, "reason": arguments.reason}
    if arguments.cluster:
        spec["cluster"] = arguments.cluster
    if arguments.message:
        spec["message"] = arguments.message
    return {
        "apiVersion": f"{server.naming.identity}/v1",
        "kind": KIND,
        "metadata": {"generateName": f"{next(iter(named))}-"},
        "spec": spec,
    }
