"""Revocation lists: their numbers grow, no entry is lost, and each entry was revoked by somebody.

The lists are parsed with `cryptography`; the signature of the authority is verified by the openssl
command when a list changes.
"""

from collections.abc import Iterator

from cryptography import x509

from tests.adversary.calls import Answer
from tests.adversary.invariants.violation import Violation
from tests.adversary.observer import Seen

GRACE_SECONDS = 10.0  # until the lists are signed again
PATIENCE_SECONDS = 20.0  # no list is better than an earlier one; it is signed again


class Lists:
    """The newest number and all entries of each list, by name and by the key that signed it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._entries: dict[str, set[int]] = {}
        self._issuers: dict[str, str] = {}
        self._lifted: set[int] = set()  # serial numbers that may leave the lists
        self._gone: dict[str, float] = {}  # since when there is no list, by name
        self._until = 0.0  # until then, every entry may be of a lifted revocation

    def forget(self, name: str) -> None:
        """The authority of the list was deleted; one of the same name begins again."""
        for kept in (self._numbers, self._entries, self._issuers):
            kept.pop(name, None)

    def saw(self, seen: Seen, now: float) -> None:
        """A hold, and the revocation of a user, end with their deletion."""
        spec = seen.object.get("spec", {})
        is_lifted = spec.get("reason") == "certificateHold" or "user" in spec
        if seen.kind == "credentialrevocations" and seen.is_gone and is_lifted:
            self._lifted = self._lifted.union(*self._entries.values())
            self._until = now + GRACE_SECONDS

    def served(self, name: str, answer: Answer, issuer: str, now: float) -> Iterator[Violation]:
        """The page /crl/NAME.crl; `issuer`: the uid of the authority that it belongs to."""
        if self._issuers.get(name, issuer) != issuer:
            self.forget(name)
        self._issuers[name] = issuer
        if answer.status != 200:
            since = self._gone.setdefault(name, now)
            if name in self._numbers and answer.status and now - since > PATIENCE_SECONDS:
                yield Violation("list is gone", f"/crl/{name}.crl: {answer.status}")
            return
        self._gone.pop(name, None)
        parsed = x509.load_der_x509_crl(answer.body)
        number = parsed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        entries = {entry.serial_number for entry in parsed}
        if now < self._until:
            self._lifted |= entries
        before = self._numbers.get(name, 0)
        if number < before:
            yield Violation("list went back", f"/crl/{name}.crl: {number} after {before}")
        lost = self._entries.get(name, set()) - entries - self._lifted
        if lost:
            shown = ", ".join(f"{one:x}" for one in sorted(lost)[:3])
            yield Violation("list lost an entry", f"/crl/{name}.crl: {shown}")
        self._numbers[name] = max(number, before)
        self._entries.setdefault(name, set()).update(entries - self._lifted)
