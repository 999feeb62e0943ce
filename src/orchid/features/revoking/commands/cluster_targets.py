"""Targets of `orchid revoke … --cluster NAME`.

user/alice                  every credential of a user; recorded certificates issued until now
account/ci/builder          every token of an account, until the revocation is deleted
token < file                one token
certificate < alice.crt     one certificate
cert/SERIAL or cert/SHA256  one certificate of the cluster's inventory
csr/NAME                    the certificates of a request in that inventory
"""

import sys
from collections.abc import Callable

from orchid.features.accounts.commands.token import decode
from orchid.features.certificates.commands import issued
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, path
from orchid.kernel.terminal.output import USAGE, Complaint, printable, remark
from orchid.kernel.wire.naming import KUBERNETES
from orchid.kernel.wire.user import MASTERS

FORMS = "user/NAME, account/NAMESPACE/NAME, token, certificate, cert/SERIAL or csr/NAME"
LARGEST = 1 << 20
DIGITS_OF_SHA256 = 64
ACCOUNT = "system:serviceaccount:"

SKIPPED_USERS = (
    KUBERNETES.controller_manager_user,
    KUBERNETES.scheduler_user,
    "system:apiserver",
)
SKIPPED = "by the configuration of `orchid cluster add`, its API server does not ask about"

Wanted = tuple[str, Json]  # for a person, and the target in the spec


def wanted(server: ServerConnection, cluster: str, word: str, rest: str) -> list[Wanted]:
    """The targets of a revocation in a cluster."""
    record = server.get(path("apis", server.naming.identity, "v1beta1", "clusters", cluster))
    makers: dict[str, Callable[[], list[Wanted]]] = {
        "user": lambda: [_of_user(rest)],
        "account": lambda: [_of_account(rest)],
        "cert": lambda: _of_inventory(server, cluster, rest.lower(), by="cert"),
        "csr": lambda: _of_inventory(server, cluster, rest, by="csr"),
    }
    if not rest:
        makers = {
            "token": lambda: [_of_token(sys.stdin.read(LARGEST + 1), record)],
            "certificate": lambda: [_of_file(sys.stdin.buffer.read(LARGEST + 1), record)],
        }
    if word not in makers:
        what = f"{word}/{rest}" if rest else word
        raise Complaint(f"{what!r} is none of {FORMS} in a cluster", USAGE)
    return makers[word]()


def _warn_of_user(name: str) -> None:
    """Say that a revocation has no effect on a user of the control plane or of nodes."""
    if name in SKIPPED_USERS or name.startswith(f"{ACCOUNT}{KUBERNETES.system_namespace}:"):
        remark(f"warning: {SKIPPED} {printable(name)}: it goes on")
    elif name.startswith("system:node:"):
        remark(f"warning: {SKIPPED} nodes: {printable(name)} goes on")


def _warn_of_subject(subject: str) -> None:
    """The same of a certificate, by its groups."""
    if f"O={MASTERS}" in subject:
        remark(f"warning: an API server asks nobody about {MASTERS}: this certificate goes on")
    elif "O=system:nodes" in subject:
        remark(f"warning: {SKIPPED} nodes: this certificate goes on")


def _of_user(name: str) -> Wanted:
    if name.startswith(ACCOUNT):
        raise Complaint("that user is an account: revoke account/NAMESPACE/NAME", USAGE)
    _warn_of_user(name)
    text = f"every credential of the user {name}, except certificates requested from now on"
    return text, {"user": {"username": name}}


def _of_account(rest: str) -> Wanted:
    namespace, slash, name = rest.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise Complaint(f"{rest!r} is not NAMESPACE/NAME", USAGE)
    _warn_of_user(f"{ACCOUNT}{namespace}:{name}")
    text = f"every token of the account {rest}, also new ones, until the revocation is deleted"
    return text, {"account": {"namespace": namespace, "name": name}}


def _of_token(text: str, cluster: Json) -> Wanted:
    """The id of a token; the token itself is not sent."""
    claims = decode(text.strip())[1] if len(text) <= LARGEST else {}
    jti, issuer, subject = (claims.get(name) for name in ("jti", "iss", "sub"))
    if not isinstance(jti, str) or not isinstance(subject, str):
        raise Complaint("standard input has no token with an id", USAGE)
    if issuer != cluster["spec"].get("issuer"):
        name = cluster["metadata"]["name"]
        raise Complaint(printable(f"that token is of {issuer}, which is not the issuer of {name}"))
    spec: Json = {"jti": jti, "issuer": issuer}
    if "exp" in claims:
        try:
            spec["expires"] = times.text_of(claims["exp"])
        except (TypeError, ValueError, OverflowError, OSError):
            raise Complaint("standard input has no token with an id", USAGE) from None
    _warn_of_user(subject)
    return printable(f"token {jti} of {subject}"), {"token": spec}


def _of_file(data: bytes, cluster: Json) -> Wanted:
    """A certificate by its fingerprints: an ECDSA signature has two valid encodings."""

    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.credentials.x509 import certificates
    from orchid.kernel.credentials.x509.trust.verified_chain import has_issued, other_fingerprints

    try:
        leaf, *_ = certificates.parse_blocks(data)
        bundle = cluster["spec"].get("clientAuthorities")
        authorities = certificates.parse_blocks(bundle) if bundle else []
    except (Refusal, ValueError) as problem:
        raise Complaint(f"standard input has no certificate: {problem}", USAGE) from None
    if not any(has_issued(authority, leaf) for authority in authorities):
        name = cluster["metadata"]["name"]
        raise Complaint(f"no client authority of {name} has issued that certificate")
    sha256 = certificates.fingerprint(leaf)
    named: Json = {"sha256": sha256}
    if others := other_fingerprints(leaf, authorities):
        named["otherSha256"] = list(others)
    subject = leaf.subject.rfc4514_string()
    _warn_of_subject(subject)
    text = f"certificate {sha256} of {subject}"
    return printable(text), {"certificate": named}


def _of_inventory(server: ServerConnection, cluster: str, identifier: str, by: str) -> list[Wanted]:
    """Recorded certificates that are still valid."""
    records = list(server.items(issued.url(server), {"fieldSelector": f"spec.cluster={cluster}"}))
    plain = identifier.replace(":", "")
    matches = [
        record
        for record in records
        if _is_named(record["spec"], identifier if by == "csr" else plain, by)
    ]
    live = [record for record in matches if issued.end_of(record) > times.now()]
    if not live:
        what = "is still valid" if matches else "is in the inventory of the cluster"
        raise Complaint(f"no such certificate {what}")
    if by == "cert" and len(live) > 1:
        which = ", ".join(record["spec"]["sha256"] for record in live)
        raise Complaint(f"several certificates have that number; name one by its SHA-256: {which}")
    return [_recorded(record["spec"]) for record in live]


def _is_named(spec: Json, identifier: str, by: str) -> bool:
    if by == "csr":
        return bool(spec.get("request", {}).get("name") == identifier)
    if len(identifier) == DIGITS_OF_SHA256:
        return bool(spec["sha256"] == identifier)
    return bool(spec["serialNumber"] == identifier.lstrip("0"))


def _recorded(spec: Json) -> Wanted:
    whose = spec.get("subject") or "nobody"
    _warn_of_subject(whose)
    text = f"certificate {spec['serialNumber']} of {whose}, valid until {spec.get('notAfter', '?')}"
    return printable(text), {"certificate": {"sha256": spec["sha256"]}}
