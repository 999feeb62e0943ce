"""Compare revocations, the inventory and the revocation lists: all three must say the same.

Start with `disagreements`. The CredentialRevocations that exist decide which certificates are
revoked, on hold, or good. The inventory's marks and each authority's published list must follow,
for every certificate of the run, and no list may name a certificate that nobody knows.

Compares only: it asks no server, and never looks at a clock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509

from tests.faults.issuing import Issued

HOLD = "certificateHold"
GOOD, HELD, REVOKED, UNSURE = "good", "on hold", "revoked", "revoked or not"
BACKDATE = timedelta(minutes=5)  # from the moment of issue to notBefore
MARGIN = timedelta(seconds=1)  # times in certificates and records are whole seconds


class Certificate(NamedTuple):
    """A certificate, as its receiver and its record in the inventory describe it."""

    serial: str
    sha256: str
    signer: str
    earliest: datetime  # when it was issued: by the certificate, or by its record; clocks jump
    latest: datetime
    mark: str | None  # the status in the inventory; None: there is no record

    def __str__(self) -> str:
        time = f"{self.latest:%H:%M:%S}"
        return f"certificate {self.serial} of {self.signer}, issued at {time},"


class Revocations:
    """Revocations that exist, as the API lists them."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.reasons: dict[str, str] = {}  # by name
        self._certificates: dict[str, set[str]] = {}  # by fingerprint
        self._numbered: dict[str, set[str]] = {}  # those whose revocation has a serial number
        self._authorities: dict[str, list[datetime]] = {}
        for one in objects:
            spec, reason = one["spec"], one["spec"].get("reason", "")
            self.reasons[one["metadata"]["name"]] = reason
            if "certificate" in spec:
                named = spec["certificate"]
                self._certificates.setdefault(named["sha256"], set()).add(marked(reason))
                if named.get("serialNumber"):
                    self._numbered.setdefault(named["sha256"], set()).add(marked(reason))
            elif "authority" in spec:
                until = datetime.fromisoformat(spec["authority"]["issuedBefore"])
                self._authorities.setdefault(spec["authority"]["signerName"], []).append(until)

    def status_without_record(self, one: Certificate) -> str:
        """The status that an authority can know of a certificate by the revocations alone."""
        return _strongest(self._numbered.get(one.sha256, set()))

    def status(self, one: Certificate) -> str:
        """The status of a certificate by all revocations."""
        until = max(self._authorities.get(one.signer, ()), default=None)
        by_name = _strongest(self._certificates.get(one.sha256, set()))
        if by_name == REVOKED or until is None or until < one.earliest - MARGIN:
            return by_name
        return REVOKED if until > one.latest + MARGIN else UNSURE


def _strongest(kinds: set[str]) -> str:
    return REVOKED if REVOKED in kinds else HELD if HELD in kinds else GOOD


def certificates(received: Iterable[Issued], records: Iterable[Any]) -> list[Certificate]:
    """Every certificate that a client has received or the inventory has, each once."""
    found: dict[str, Certificate] = {}
    for record in records:
        spec, mark = record["spec"], (record.get("status") or {}).get("revoked")
        times = [
            datetime.fromisoformat(record["metadata"]["creationTimestamp"]),
            datetime.fromisoformat(spec["notBefore"]) + BACKDATE,
        ]
        status = marked(mark["reason"]) if mark else GOOD
        found[spec["sha256"]] = Certificate(
            spec["serialNumber"],
            spec["sha256"],
            spec["signerName"],
            min(times),
            max(times),
            status,
        )
    for one in received:
        at = one.facts.not_before + BACKDATE
        made = Certificate(one.facts.serial, one.facts.sha256, one.signer, at, at, None)
        found.setdefault(one.facts.sha256, made)
    return list(found.values())


def marked(reason: str) -> str:
    return HELD if reason == HOLD else REVOKED


class RevocationList(NamedTuple):
    """A published list: its number, and the status of each certificate in it, by serial."""

    number: int
    entries: Mapping[str, str]


def read_list(pem: bytes) -> RevocationList:
    found = x509.load_pem_x509_crl(pem)
    number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    statuses = {f"{one.serial_number:x}": marked(_reason(one)) for one in found}
    return RevocationList(number, statuses)


def _reason(entry: x509.RevokedCertificate) -> str:
    try:
        reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except x509.ExtensionNotFound:
        return ""
    return HOLD if reason is x509.ReasonFlags.certificate_hold else ""


def disagreements(
    known: Sequence[Certificate], revocations: Revocations, lists: Mapping[str, RevocationList]
) -> Iterator[str]:
    """How the inventory and the lists, by signer, differ from the revocations."""
    for one in known:
        status = revocations.status(one)
        if status == UNSURE:
            continue
        if one.mark is not None and one.mark != status:
            yield f"{one} is {status}, and {one.mark} in the inventory"
        if one.mark is None and status != revocations.status_without_record(one):
            continue  # only its record has the serial number, which a list needs
        listed = lists[one.signer].entries.get(one.serial, GOOD) if one.signer in lists else status
        if listed != status:
            yield f"{one} is {status}, and {listed} in the list"
    serials = {one.serial for one in known}
    for signer, published in lists.items():
        for serial in published.entries.keys() - serials:
            yield f"the list of {signer} has {serial}, which nobody knows"
