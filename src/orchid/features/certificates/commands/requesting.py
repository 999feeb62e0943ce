"""Certificate requests on the client: `orchid csr new`, `orchid csr renew`, and decoding.

`make_key` creates an ECDSA P-256 key that only its owner can read, and never overwrites one. A key
never leaves this machine. Names and usages for a platform signer are checked before anything is
sent, by the signer's own profile: the server would accept such a request, and its signer would
refuse it later. `renewal_of` returns the attributes for the renewal of a certificate; `facts_of`
and `certificate_facts` decode PEM.
"""

import argparse
import base64
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from orchid.features.approval.platform_signers import platform_profiles
from orchid.features.authorities.commands import ca
from orchid.features.certificates.commands import policy_reason
from orchid.features.certificates.commands.request_flags import SIGNERS, file_name, url
from orchid.features.certificates.commands.responses import certificate_of, wait_for
from orchid.kernel.credentials import files, keys
from orchid.kernel.credentials.authorities.validity import lifetime_of
from orchid.kernel.credentials.refusals import NotPermitted, Refusal
from orchid.kernel.credentials.x509 import certificates, signing_request, usages
from orchid.kernel.credentials.x509.certificate_request import AlternativeNames, build_request
from orchid.kernel.credentials.x509.issued_facts import read_issued
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import (
    CONFLICT,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.flags import write_secret
from orchid.kernel.terminal.output import USAGE, Cell, Complaint, print_for_programs, remark, say
from orchid.kernel.wire.user import MASTERS

KIND = "CertificateSigningRequest"
PURPOSES = {"node-serving": usages.SERVER_AUTH}
NODE = "system:node:"
MOST_RENEWALS = 1000
SOON = 60  # seconds to wait for a certificate
SHORTEST = 600  # seconds; the minimum that is requested
HINTS = {
    "client": "it signs for callers of the API: --usage 'client auth', and never system:masters",
    "node-client": f"it wants --user {NODE}NAME --group system:nodes, and neither --dns nor --ip",
    "node-serving": f"it wants --user {NODE}NAME --group system:nodes, and --dns or --ip",
}
OUTCOMES = {"Approve": "a policy approves it", "Deny": "a policy denies it"}  # of a review
_SHORT = {
    "2.5.4.3": "CN",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.5": "serialNumber",
}

Facts = list[tuple[str, Any]]


class Wanted(NamedTuple):
    """The attributes of a request."""

    user: str
    groups: list[str]
    names: AlternativeNames
    signer: str  # its full name
    usages: list[str]  # empty: the defaults of the signer
    seconds: int | None


# -- new -----------------------------------------------------------------------------------


def new(arguments: argparse.Namespace, server: ServerConnection) -> int:
    name = file_name(arguments.name)
    requested = _wanted(arguments, server)
    key_file = arguments.key or Path(f"{name}.key")
    key = load_key(key_file) if arguments.key else make_key(key_file)
    try:
        answer = send(server, name, key, requested)
    except Complaint:
        if not arguments.key:
            key_file.unlink(missing_ok=True)  # created for a request that does not exist
        raise
    if not print_for_programs(arguments.output, answer):
        verb = "uses" if arguments.key else "created"
        say(f"requested {name} from {answer['spec']['signerName']} ({verb} {key_file})")
        remark(f"next: {_decision(server, answer)}, then orchid csr fetch {name}")
        _remark_unknown_signer(server, requested.signer)
    return 0


def _decision(server: ServerConnection, request: Json) -> str:
    """How a request is decided: by a policy, by this user, or by somebody else.

    Only members of system:masters may approve their own (four eyes).
    """
    name, spec = request["metadata"]["name"], request["spec"]
    outcome = policy_reason.review(server, request).get("outcome")
    if outcome in OUTCOMES:
        return OUTCOMES[outcome]
    if MASTERS in (spec.get("groups") or ()):
        return f"orchid csr approve {name}"
    approver = f"somebody else who may approve for {spec['signerName']}"
    condition = "" if outcome else "unless a policy approves it, "
    return f"{condition}{approver} runs orchid csr approve {name}"


def _remark_unknown_signer(server: ServerConnection, signer: str) -> None:
    """A mistyped signer is noticed by nobody else: an external one needs no object here."""
    if signer in platform_profiles(server.naming):
        return
    try:
        signers = {
            authority["spec"].get("signerName") for authority in server.items(ca.url(server))
        }
    except CommandRefused:
        return  # the right to request is not the right to list authorities
    if signer not in signers:
        remark(f"no authority of this server signs for {signer}: an external signer has to")


def _wanted(arguments: argparse.Namespace, server: ServerConnection) -> Wanted:
    names = AlternativeNames(arguments.dns, arguments.ip, arguments.uri, arguments.email)
    user = arguments.user or arguments.name
    word = arguments.signer or "client"
    if arguments.serving:
        if not arguments.dns and not arguments.ip:
            raise Complaint("a serving certificate needs a name: give --dns or --ip", USAGE)
        if not arguments.signer:
            word = "node-serving" if user.startswith(NODE) else _authority_for_servers(server)
    if word not in SIGNERS:
        # The alternative names identify the holder of a custom authority's certificate.
        user = arguments.user or ("" if any(names) else arguments.name)
    purpose = usages.SERVER_AUTH if arguments.serving else PURPOSES.get(word, usages.CLIENT_AUTH)
    usual = [usages.DIGITAL_SIGNATURE, purpose] if arguments.serving or word in SIGNERS else []
    signer = SIGNERS[word](server.naming) if word in SIGNERS else word
    return Wanted(
        user, arguments.group, names, signer, arguments.usage or usual, arguments.lifetime
    )


def _authority_for_servers(server: ServerConnection) -> str:
    """The signer of the only custom authority that issues to servers."""
    signers = [
        str(authority["spec"]["signerName"])
        for authority in server.items(ca.url(server))
        if usages.SERVER_AUTH in ((authority["spec"].get("issues") or {}).get("usages") or ())
    ]
    if len(signers) == 1:
        return signers[0]
    if signers:
        raise Complaint(f"which signer? choose with --signer: {', '.join(sorted(signers))}", USAGE)
    raise Complaint(
        "no authority issues to servers yet; create one: "
        "orchid ca new web --signer example.com/web",
        USAGE,
    )


def send(server: ServerConnection, name: str, key: keys.PrivateKey, requested: Wanted) -> Json:
    """Build a request, check that its signer would sign it, and send it."""
    data = build(key, requested)
    refuse_unfit(server, requested.signer, data, requested.usages)
    spec: Json = {"request": base64.b64encode(data).decode(), "signerName": requested.signer}
    if requested.usages:
        spec["usages"] = requested.usages
    if requested.seconds is not None:
        spec["expirationSeconds"] = requested.seconds
    body = {
        "apiVersion": server.api_version("certificates", "v1"),
        "kind": KIND,
        "metadata": {"name": name},
        "spec": spec,
    }
    return server.post(url(server), body)


def refuse_unfit(server: ServerConnection, signer: str, data: bytes, asked: list[str]) -> None:
    """Refuse a request that a platform signer would not sign; other signers have unknown rules."""
    profile = platform_profiles(server.naming).get(signer)
    if profile is None:
        return
    try:
        profile.check(signing_request.parse(data), asked)
    except NotPermitted as problem:
        word = next(word for word, of in SIGNERS.items() if of(server.naming) == signer)
        raise Complaint(f"{signer} would not sign that: {problem}; {HINTS[word]}", USAGE) from None
    except Refusal as problem:
        raise Complaint(f"that is no request that can be signed: {problem}", USAGE) from None


def build(key: keys.PrivateKey, requested: Wanted) -> bytes:
    """The PEM of a request, signed with the key."""
    try:
        return build_request(key, requested.user, requested.groups, requested.names)
    except ValueError as error:
        raise Complaint(f"the request cannot have these names: {error}", USAGE) from None


def make_key(path: Path) -> keys.PrivateKey:
    """A new key in a new file."""
    if path.exists():
        raise Complaint(f"{path} is already there; use it with --key {path}, or move it", USAGE)
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(path, keys.encode_private(key).encode())
    return key


def load_key(path: Path) -> keys.PrivateKey:
    """An existing key; refused if others can read it."""
    try:
        return keys.read_private_key(files.read_private(path), str(path))
    except Refusal as refusal:
        raise Complaint(str(refusal), USAGE) from None


# -- renew ---------------------------------------------------------------------------------


def renew(arguments: argparse.Namespace, server: ServerConnection) -> int:
    name = file_name(arguments.name)
    certificate = arguments.cert or Path(f"{name}.crt")
    key_file = arguments.key or Path(f"{name}.key")
    if arguments.if_ends_within is not None:
        end = leaf_of(certificate).not_valid_after_utc
        if (end - times.now()).total_seconds() > arguments.if_ends_within:
            say(f"{certificate} ends {times.until(end)}: nothing to do")
            return 0
    requested = renewal_of(server, certificate, arguments.signer)
    answer = send_again(server, name, load_key(key_file), requested)
    again = answer["metadata"]["name"]
    if arguments.wait is not None or arguments.command:
        return _replace(arguments, server, again, certificate)
    if not print_for_programs(arguments.output, answer):
        say(f"requested {again} from {answer['spec']['signerName']} (uses {key_file})")
        decision = _decision(server, answer)
        remark(f"next: {decision}, then orchid csr fetch {again} --out {certificate}")
    return 0


def _replace(
    arguments: argparse.Namespace, server: ServerConnection, name: str, certificate: Path
) -> int:
    """Wait for a renewed certificate, write it in place of the old one, and run the command."""
    request = wait_for(server, name, SOON if arguments.wait is None else arguments.wait)
    try:
        files.rewrite(certificate, certificate_of(request))
    except OSError as error:
        raise Complaint(f"cannot write {certificate}: {error.strerror}") from None
    if not print_for_programs(arguments.output, request):
        say(f"wrote {certificate}")
    if arguments.command:
        _run(arguments.command)
    return 0


def _run(command: str) -> None:
    """Run a command of the user, with its own output; its failure is ours."""
    try:
        words = shlex.split(command)
        done = subprocess.run(words, stdin=subprocess.DEVNULL, check=False)  # noqa: S603 -- the user's own words
    except (ValueError, OSError) as problem:
        raise Complaint(f"--exec: {command!r} cannot be run: {problem}", USAGE) from None
    if done.returncode != 0:
        raise Complaint(f"--exec: {command!r} ended with exit code {done.returncode}")


def send_again(
    server: ServerConnection, name: str, key: keys.PrivateKey, requested: Wanted
) -> Json:
    """Send a request under the next free name: alice, alice-2, alice-3.

    An undecided request for the same key is used again, so that repeated calls do not pile up.
    """
    stem, _, number = name.rpartition("-")
    stem, first = (stem, int(number) + 1) if re.fullmatch(r"[1-9]\d{0,5}", number) else (name, 2)
    for count in range(first, first + MOST_RENEWALS):
        try:
            return send(server, f"{stem}-{count}", key, requested)
        except CommandRefused as refused:
            if refused.status != CONFLICT:
                raise
        existing = server.get(url(server, f"{stem}-{count}"))
        if _is_undecided(existing, key, requested):
            return existing
    raise Complaint(f"there are too many requests named {stem}-…; delete some")


def _is_undecided(request: Json, key: keys.PrivateKey, requested: Wanted) -> bool:
    """Whether a request for the same key and signer waits for a decision."""
    spec, status = request["spec"], request.get("status") or {}
    if spec.get("signerName") != requested.signer or status.get("conditions"):
        return False
    try:
        sent = signing_request.parse(base64.b64decode(spec.get("request") or ""))
    except (Refusal, ValueError):
        return False
    return bool(sent.public_key == key.public_key())


def leaf_of(file: Path) -> x509.Certificate:
    """The first certificate of a file."""
    try:
        leaf, *_ = certificates.parse_blocks(files.read_bounded(file))
    except (Refusal, ValueError) as problem:
        raise Complaint(f"{file}: {problem}", USAGE) from None
    return leaf


def renewal_of(server: ServerConnection, file: Path, signer: str = "") -> Wanted:
    """The attributes of a certificate's renewal: names, usages, lifetime and signer."""
    try:
        data = files.read_bounded(file)
        leaf, *_ = certificates.parse_blocks(data)
        contents = certificates.read_contents(certificates.read(certificates.encode(leaf)))
    except (Refusal, ValueError) as problem:
        raise Complaint(f"{file} cannot be renewed: {problem}", USAGE) from None
    life = lifetime_of(leaf.not_valid_before_utc, leaf.not_valid_after_utc)
    names = AlternativeNames(
        list(contents.dns_names),
        [str(address) for address in contents.ip_addresses],
        list(contents.uris),
        list(contents.email_addresses),
    )
    word = SIGNERS.get(signer)
    return Wanted(
        user=contents.subject.common_name,
        groups=list(contents.subject.organizations),
        names=names,
        signer=(word(server.naming) if word else signer) or _signer_of(server, leaf, file),
        usages=list(read_issued(data).usages),
        seconds=max(int(life.total_seconds()), SHORTEST),
    )


def _signer_of(server: ServerConnection, leaf: x509.Certificate, file: Path) -> str:
    serial = f"{leaf.serial_number:x}"
    url = path("apis", server.naming.identity, "v1", "issuedcertificates", serial)
    try:
        return str(server.get(url)["spec"].get("signerName", ""))
    except CommandRefused as refused:
        raise Complaint(
            f"no record says who signed {file} ({refused}); name the signer with --signer", USAGE
        ) from None


# -- decode ------------------------------------------------------------------------------


def facts_of(data: bytes) -> Facts:
    """Attributes of a request; reports a malformed one."""
    try:
        request = signing_request.parse(data)
    except Refusal as refusal:
        return [("Request", Cell(f"not readable: {refusal}", "bad"))]
    names = _names(request)
    rows: Facts = [("Subject", _subject(request)), ("Names", names or ["none"])]
    key = describe_key(request.public_key)
    rows.append(
        ("Key", Cell(f"{key}, weak: {request.weakness}", "bad") if request.weakness else key)
    )
    return rows


def _subject(request: SigningRequest) -> str:
    parts = [
        f"{_SHORT.get(each.oid, each.oid)}={each.value if each.value is not None else '?'}"
        for each in request.subject.attributes
    ]
    return ", ".join(parts) or "none"


def _names(request: SigningRequest) -> list[str]:
    names = [f"DNS {name}" for name in request.dns_names]
    names += [f"IP {address}" for address in request.ip_addresses]
    names += [f"email {address}" for address in request.email_addresses]
    names += [f"URI {uri}" for uri in request.uris]
    if request.other_names:
        names.append(f"{request.other_names} of other kinds, which no signer copies")
    return names


def describe_key(key: Any) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA, {key.key_size} bits"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ECDSA, {key.curve.name}"
    return "Ed25519" if isinstance(key, ed25519.Ed25519PublicKey) else "of another kind"


def certificate_facts(data: bytes) -> Facts:
    """The issued certificate in a few lines; empty if there is none."""
    if not data:
        return []
    try:
        leaf, *_ = certificates.parse_blocks(data)
    except (Refusal, ValueError):
        return [("Certificate", Cell("not readable", "bad"))]
    return [
        ("Serial", f"{leaf.serial_number:x}"),
        ("Issued by", leaf.issuer.rfc4514_string()),
        ("Expires", times.until(leaf.not_valid_after_utc)),
        ("SHA-256", leaf.fingerprint(hashes.SHA256()).hex()),
    ]
