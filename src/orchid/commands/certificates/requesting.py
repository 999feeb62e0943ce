"""Certificate requests of the client: `orchid csr new` and `orchid csr renew`.

The key is created on this machine and never leaves it. Names and usages for a platform signer are
checked before anything is sent, by the signer's own profile: the server would accept such a
request, and its signer would refuse it later. `renewal_of` returns the attributes for the renewal
of a certificate.
"""

import argparse
import base64
import re
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from orchid.approval.platform_signers import platform_profiles
from orchid.commands.certificates import ca, certificate_request
from orchid.commands.certificates.certificate_request import AlternativeNames
from orchid.commands.certificates.request_flags import SIGNERS, file_name, place
from orchid.commands.terminal.connection import (
    CONFLICT,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.commands.terminal.output import USAGE, Complaint, print_for_programs, remark, say
from orchid.credentials import files, keys
from orchid.credentials.authorities.authority import BACKDATE
from orchid.credentials.refusals import NotPermitted, Refusal
from orchid.credentials.x509 import certificates, signing_request, usages

KIND = "CertificateSigningRequest"
PURPOSES = {"node-serving": usages.SERVER_AUTH}
NODE = "system:node:"
MOST_RENEWALS = 1000
SHORTEST = 600  # seconds; the minimum that is requested
HINTS = {
    "client": "it signs for callers of the API: --usage 'client auth', and never system:masters",
    "node-client": f"it wants --user {NODE}NAME --group system:nodes, and neither --dns nor --ip",
    "node-serving": f"it wants --user {NODE}NAME --group system:nodes, and --dns or --ip",
}


class Wanted(NamedTuple):
    """The attributes of a request."""

    user: str
    groups: list[str]
    names: AlternativeNames
    signer: str  # its full name
    usages: list[str]  # empty: the defaults of the signer
    seconds: int | None


# -- new -----------------------------------------------------------------------------------


def new(chosen: argparse.Namespace, server: ServerConnection) -> int:
    name = file_name(chosen.name)
    wanted = _wanted(chosen, server)
    key_file = chosen.key or Path(f"{name}.key")
    key = certificate_request.load(key_file) if chosen.key else certificate_request.make(key_file)
    try:
        answer = send(server, name, key, wanted)
    except Complaint:
        if not chosen.key:
            key_file.unlink(missing_ok=True)  # created for a request that does not exist
        raise
    if not print_for_programs(chosen.output, answer):
        made = "uses" if chosen.key else "made"
        say(f"requested {name} from {answer['spec']['signerName']} ({made} {key_file})")
        remark(f"next: orchid csr approve {name}, then orchid csr fetch {name}")
    return 0


def _wanted(chosen: argparse.Namespace, server: ServerConnection) -> Wanted:
    names = AlternativeNames(chosen.dns, chosen.ip, chosen.uri, chosen.email)
    user = chosen.user or chosen.name
    word = chosen.signer or "client"
    if chosen.serving:
        if not chosen.dns and not chosen.ip:
            raise Complaint("a serving certificate needs a name: give --dns or --ip", USAGE)
        if not chosen.signer:
            word = "node-serving" if user.startswith(NODE) else _authority_for_servers(server)
    if word not in SIGNERS:
        # The alternative names identify the holder of a custom authority's certificate.
        user = chosen.user or ("" if any(names) else chosen.name)
    purpose = usages.SERVER_AUTH if chosen.serving else PURPOSES.get(word, usages.CLIENT_AUTH)
    usual = [usages.DIGITAL_SIGNATURE, purpose] if chosen.serving or word in SIGNERS else []
    signer = SIGNERS[word](server.names) if word in SIGNERS else word
    return Wanted(user, chosen.group, names, signer, chosen.usage or usual, chosen.lifetime)


def _authority_for_servers(server: ServerConnection) -> str:
    """The signer of the only custom authority that issues to servers."""
    found = [
        str(one["spec"]["signerName"])
        for one in server.items(ca.place(server))
        if usages.SERVER_AUTH in ((one["spec"].get("issues") or {}).get("usages") or ())
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise Complaint(f"which signer? choose with --signer: {', '.join(sorted(found))}", USAGE)
    raise Complaint(
        "no authority issues to servers yet; make one: orchid ca new web --signer example.com/web",
        USAGE,
    )


def send(server: ServerConnection, name: str, key: keys.PrivateKey, wanted: Wanted) -> Json:
    """Build a request, check that its signer would sign it, and send it."""
    data = certificate_request.build(key, wanted.user, groups=wanted.groups, names=wanted.names)
    refuse_unfit(server, wanted.signer, data, wanted.usages)
    spec: Json = {"request": base64.b64encode(data).decode(), "signerName": wanted.signer}
    if wanted.usages:
        spec["usages"] = wanted.usages
    if wanted.seconds is not None:
        spec["expirationSeconds"] = wanted.seconds
    body = {
        "apiVersion": server.api_version("certificates", "v1"),
        "kind": KIND,
        "metadata": {"name": name},
        "spec": spec,
    }
    return server.post(place(server), body)


def refuse_unfit(server: ServerConnection, signer: str, data: bytes, asked: list[str]) -> None:
    """Refuse a request that a platform signer would not sign; other signers have unknown rules."""
    profile = platform_profiles(server.names).get(signer)
    if profile is None:
        return
    try:
        profile.check(signing_request.parse(data), asked)
    except NotPermitted as problem:
        word = next(word for word, of in SIGNERS.items() if of(server.names) == signer)
        raise Complaint(f"{signer} would not sign that: {problem}; {HINTS[word]}", USAGE) from None
    except Refusal as problem:
        raise Complaint(f"that is no request that can be signed: {problem}", USAGE) from None


# -- renew ---------------------------------------------------------------------------------


def renew(chosen: argparse.Namespace, server: ServerConnection) -> int:
    name = file_name(chosen.name)
    certificate = chosen.cert or Path(f"{name}.crt")
    key_file = chosen.key or Path(f"{name}.key")
    wanted = renewal_of(server, certificate, chosen.signer)
    answer = send_again(server, name, certificate_request.load(key_file), wanted)
    if not print_for_programs(chosen.output, answer):
        again = answer["metadata"]["name"]
        say(f"requested {again} from {answer['spec']['signerName']} (uses {key_file})")
        remark(
            f"next: orchid csr approve {again}, then orchid csr fetch {again} --out {certificate}"
        )
    return 0


def send_again(server: ServerConnection, name: str, key: keys.PrivateKey, wanted: Wanted) -> Json:
    """Send a request under the next free name: alice, alice-2, alice-3."""
    stem, _, number = name.rpartition("-")
    stem, first = (stem, int(number) + 1) if re.fullmatch(r"[1-9]\d{0,5}", number) else (name, 2)
    for count in range(first, first + MOST_RENEWALS):
        try:
            return send(server, f"{stem}-{count}", key, wanted)
        except CommandRefused as refused:
            if refused.status != CONFLICT:
                raise
    raise Complaint(f"there are too many requests named {stem}-…; delete some")


def renewal_of(server: ServerConnection, file: Path, signer: str = "") -> Wanted:
    """The attributes of a certificate's renewal: names, usages, lifetime and signer."""
    try:
        leaf, *_ = certificates.parse_blocks(files.read_bounded(file))
        found = certificates.read_contents(certificates.read(certificates.encode(leaf)))
    except (Refusal, ValueError) as problem:
        raise Complaint(f"{file} cannot be renewed: {problem}", USAGE) from None
    # Issued certificates are back-dated a little, so that clocks may differ.
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc - BACKDATE
    names = AlternativeNames(
        list(found.dns_names),
        [str(address) for address in found.ip_addresses],
        list(found.uris),
        list(found.email_addresses),
    )
    word = SIGNERS.get(signer)
    return Wanted(
        user=found.subject.common_name,
        groups=list(found.subject.organizations),
        names=names,
        signer=(word(server.names) if word else signer) or _signer_of(server, leaf, file),
        usages=list(_usages(leaf)),
        seconds=max(int(life.total_seconds()), SHORTEST),
    )


def _signer_of(server: ServerConnection, leaf: x509.Certificate, file: Path) -> str:
    serial = f"{leaf.serial_number:x}"
    place = path("apis", server.names.identity, "v1alpha1", "issuedcertificates", serial)
    try:
        return str(server.get(place)["spec"].get("signerName", ""))
    except CommandRefused as refused:
        raise Complaint(
            f"no record says who signed {file} ({refused}); name the signer with --signer", USAGE
        ) from None


def _usages(leaf: x509.Certificate) -> tuple[str, ...]:
    bits: set[int] = set()
    oids: list[str] = []
    for extension in leaf.extensions:
        if isinstance(extension.value, x509.ExtendedKeyUsage):
            oids = [each.dotted_string for each in extension.value]
        elif isinstance(extension.value, x509.KeyUsage):
            value = extension.value
            flags = (
                value.digital_signature, value.content_commitment, value.key_encipherment,
                value.data_encipherment, value.key_agreement, value.key_cert_sign, value.crl_sign,
            )  # fmt: skip
            bits = {bit for bit, is_set in enumerate(flags) if is_set}
    return usages.usages_of(frozenset(bits), tuple(oids))
