"""An issued certificate is what was requested, was approved, and chains to its signer only.

Chains are verified by the openssl command, against the roots of every authority that there is.
"""

import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509

from tests.adversary.calls import Answer
from tests.adversary.invariants.contents import alternative_names
from tests.adversary.invariants.violation import Violation
from tests.adversary.operations import Operation
from tests.adversary.pool import Pool, certificates_in, digest, pem

BY_SERVER = ("ApprovalPolicy", "ApprovalKept")  # reasons of approvals by controllers


class Signers:
    """Who approved and signed which request, by uid."""

    def __init__(self) -> None:
        self._approved: set[str] = set()
        self._written: set[str] = set()  # certificates that somebody else wrote

    def answered(self, operation: Operation, answer: Answer) -> None:
        uid = answer.json.get("metadata", {}).get("uid", "") if answer.is_done else ""
        if uid and operation.act == "approve":
            self._approved.add(uid)
        elif uid and operation.act == "sign":
            self._written.add(uid)

    def fetched(self, operation: Operation, answer: Answer, pool: Pool) -> Iterator[Violation]:
        """The certificate of an ACME order is for a key that somebody asked for here."""
        [own, *_] = certificates_in(answer.body)
        if not pool.label_of(digest(own.public_key())).startswith("key of op"):
            yield Violation(
                "another key", f"{operation.options['order']} has the key of a stranger"
            )

    def issued(
        self,
        document: Mapping[str, Any],
        request: x509.CertificateSigningRequest,
        chain: Sequence[x509.Certificate],
        authorities: Iterable[Mapping[str, Any]],
    ) -> Iterator[Violation]:
        """A request that has a certificate now."""
        meta, name = document["metadata"], document["metadata"]["name"]
        if meta["uid"] in self._written:
            return
        yield from self._judge_approval(document)
        if digest(chain[0].public_key()) != digest(request.public_key()):
            yield Violation("another key", f"{name} was requested for another key")
        more = _names(chain[0]) - _names(request)
        if more:
            yield Violation("more names", f"{name} has {more}, which nobody requested")
        yield from self._judge_chain(document, chain, list(authorities))

    def _judge_approval(self, document: Mapping[str, Any]) -> Iterator[Violation]:
        uid, status = document["metadata"]["uid"], document.get("status", {})
        reasons = {
            one.get("reason") for one in status.get("conditions", ()) if one["type"] == "Approved"
        }
        if not reasons or (uid not in self._approved and not reasons & {*BY_SERVER}):
            yield Violation("not approved", f"{document['metadata']['name']}: {reasons}")

    def _judge_chain(
        self,
        document: Mapping[str, Any],
        chain: Sequence[x509.Certificate],
        authorities: list[Mapping[str, Any]],
    ) -> Iterator[Violation]:
        signer, name = document["spec"]["signerName"], document["metadata"]["name"]
        roots = {one["metadata"]["name"]: _chain_of(one) for one in authorities}
        own = {
            one["metadata"]["name"]
            for one in authorities
            if one["spec"].get("signerName") == signer or _is_platform(one, signer)
        }
        above = {key for authority in own for key in map(_digest, roots[authority])}
        for authority, trusted in roots.items():
            if authority in own or not trusted or above & set(map(_digest, trusted)):
                continue  # authorities may share a key or a parent that somebody imported
            if verifies(chain, trusted[-1]):
                yield Violation(
                    "chain to another signer", f"{name} of {signer} chains to {authority}"
                )


def _is_platform(authority: Mapping[str, Any], signer: str) -> bool:
    """The signers of the server itself share one authority."""
    return signer.startswith("orch.io/") and authority["metadata"]["name"] == "cluster"


def _digest(certificate: x509.Certificate) -> str:
    return digest(certificate.public_key())


def _chain_of(authority: Mapping[str, Any]) -> list[x509.Certificate]:
    return certificates_in(authority.get("status", {}).get("certificate", ""))


def _names(source: Any) -> set[str]:
    names = alternative_names(source)
    subject = {attribute.rfc4514_string() for attribute in source.subject}
    return subject | {str(name.value) for name in names or ()}


def verifies(chain: Sequence[x509.Certificate], root: x509.Certificate) -> bool:
    """Whether openssl accepts the first certificate below a root."""
    with tempfile.TemporaryDirectory() as directory:
        files = {"root": [root], "chain": chain[1:] or [root], "leaf": chain[:1]}
        for name, certificates in files.items():
            Path(directory, name).write_text("".join(map(pem, certificates)))
        command = ["openssl", "verify", "-CAfile", "root", "-untrusted", "chain"]
        done = subprocess.run([*command, "leaf"], check=False, capture_output=True, cwd=directory)
    return done.returncode == 0
