"""Every certificate that a key of the server signed is in the inventory.

Issued certificates, certificates of intermediates and cross certificates: what verifiers accept
must be there, so that it can be revoked. Certificates arrive in any order, so one without a record
counts only when `due` is asked after the grace.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from tests.adversary.invariants.violation import LATEST_SECONDS, Violation
from tests.adversary.observer import Seen
from tests.adversary.pool import Pool, certificates_in, digest


class Inventory:
    """Certificates with a signature of the server, and records."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._recorded: set[str] = set()
        self._waiting: dict[str, tuple[float, str]] = {}
        self._known: set[str] = set()
        self._issuers: dict[bytes, list[x509.Certificate]] = {}  # of the server, by subject

    def saw(self, seen: Seen, now: float) -> Iterator[Violation]:
        status = seen.object.get("status", {})
        if seen.kind == "issuedcertificates":
            sha256 = seen.object["spec"]["sha256"]
            self._recorded.add(sha256)
            self._waiting.pop(sha256, None)
        elif seen.kind == "signingkeys" and not seen.is_gone:
            self._note_issuer(seen.object)
            texts = status.get("certificate", ""), status.get("crossCertificate", "")
            name = seen.object["metadata"]["name"]
            for what, text in zip(("certificate", "cross certificate"), texts, strict=True):
                self._take(certificates_in(text), f"the {what} of the key {name}", now)
        return iter(())

    def _note_issuer(self, document: dict[str, Any]) -> None:
        """The keys that the server made; what they sign, it signed."""
        for certificate in certificates_in(document.get("status", {}).get("certificate", ""))[:1]:
            if not self._pool.label_of(digest(certificate.public_key())):
                found = self._issuers.setdefault(certificate.subject.public_bytes(), [])
                if certificate not in found:
                    found.append(certificate)

    def issued(self, chain: list[x509.Certificate], where: str, now: float) -> None:
        """The chain that a requester received."""
        self._take(chain, where, now)

    def _take(self, chain: list[x509.Certificate], where: str, now: float) -> None:
        for certificate in chain:
            sha256 = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
            if sha256 in self._known or certificate.subject == certificate.issuer:
                continue
            if self._is_ours(certificate):
                self._known.add(sha256)
                if sha256 not in self._recorded:
                    self._waiting[sha256] = now, f"{where} ({certificate.serial_number:x})"

    def _is_ours(self, certificate: x509.Certificate) -> bool:
        for issuer in self._issuers.get(certificate.issuer.public_bytes(), ()):
            try:
                certificate.verify_directly_issued_by(issuer)
            except (InvalidSignature, ValueError, TypeError):
                continue
            return True
        return False

    def accepted(self, label: str, sha256: str, now: float) -> None:
        """A server authenticated a client by this certificate."""
        if sha256 not in self._recorded:
            self._waiting.setdefault(sha256, (now, f"the accepted {label}"))

    def due(self, now: float) -> Iterator[Violation]:
        """Certificates that nobody can find, or revoke by number."""
        for sha256, (since, where) in list(self._waiting.items()):
            if now - since > LATEST_SECONDS:
                del self._waiting[sha256]
                yield Violation("not in the inventory", where)
