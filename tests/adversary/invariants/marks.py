"""The inventory says that a certificate is revoked only if a revocation means it.

Names are read from the certificate itself: its common names, never the text of its subject.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.adversary.calls import Proof
from tests.adversary.credentials import Credential
from tests.adversary.invariants.revocations import covers
from tests.adversary.invariants.violation import LATEST_SECONDS, Violation
from tests.adversary.observer import Seen


class Marks:
    """Every revocation that there ever was, and the marks of records."""

    def __init__(self) -> None:
        self._revocations: dict[str, Mapping[str, Any]] = {}
        self._marked: dict[str, tuple[float, dict[str, Any]]] = {}

    def saw(self, seen: Seen, now: float) -> None:
        uid = seen.object["metadata"]["uid"]
        if seen.kind == "credentialrevocations":
            self._revocations[uid] = seen.object["spec"]
        elif seen.kind == "issuedcertificates" and not seen.is_gone:
            if seen.object.get("status", {}).get("revoked"):
                self._marked.setdefault(uid, (now, seen.object))
            else:
                self._marked.pop(uid, None)

    def due(self, now: float) -> Iterator[Violation]:
        for uid, (since, record) in list(self._marked.items()):
            if now - since > LATEST_SECONDS:
                del self._marked[uid]
                if not self._is_meant(record):
                    subject = record["spec"].get("subject")
                    yield Violation("marked without a reason", f"the record of {subject}")

    def _is_meant(self, record: Mapping[str, Any]) -> bool:
        spec = record["spec"]
        certificate = x509.load_der_x509_certificate(base64.b64decode(spec["certificate"]))
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        known = {"sha256": spec["sha256"], "signer": spec["signerName"]}
        known["serial"] = f"{certificate.serial_number:x}"
        users = [str(name.value) for name in names] or [""]
        credentials = [Credential("", user, Proof(), **known) for user in users]
        return any(
            "key" in revocation or any(covers(revocation, one) for one in credentials)
            for revocation in self._revocations.values()
        )
