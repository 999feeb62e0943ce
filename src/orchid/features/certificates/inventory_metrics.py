"""Valid certificates by signer and by signing key: their number, first and last expiry.

Every server counts all of them, from its cache of the inventory. Changes are counted in batches, or
when the metrics are read; expired certificates are removed then. Apart from platform signers only
those in the inventory have a series, so that clients cannot create unlimited series.
"""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import field

from orchid.features.certificates.kinds.issued_certificate import OWN_CERTIFICATE, IssuedCertificate
from orchid.features.revocation.kinds.credential_revocation import HOLD
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Family, Joining, Sample
from orchid.kernel.credentials.x509.usages import CLIENT_AUTH, SERVER_AUTH
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import KindCache, ObjectChange
from orchid.kernel.wire.meta import Time
from orchid.kernel.wire.struct import Wire

LIVE: Final = "orchid_issued_certificates"
EARLIEST: Final = "orchid_issued_certificate_end_seconds"
MOST_UNCOUNTED: Final = 256  # changes; a batch takes a third of the time of single changes


class _Request(Wire):
    name: str = ""


class _Approval(Wire):
    reason: str = ""


class _Spec(Wire):
    signer_name: str = ""
    usages: tuple[str, ...] = ()
    request: _Request = field(default_factory=_Request)
    approval: _Approval = field(default_factory=_Approval)
    authority_key: str = ""
    not_after: Time | None = None
    cluster: str = ""
    intermediate: str = ""


class _Revoked(Wire):
    reason: str = ""


class _Status(Wire):
    revoked: _Revoked | None = None


class _Record(Wire):
    spec: _Spec
    status: _Status = field(default_factory=_Status)


_decode = msgspec.json.Decoder(_Record).decode


class LiveCertificates(NamedTuple):
    """Valid certificates of a key: how many, and the last second of the last one."""

    live: int
    end: int


class IssuedCounts:
    """The expiry of all certificates in the inventory, counted by second.

    By signer, and without the revoked ones by the key that signed them.
    """

    def __init__(self, records: KindCache[IssuedCertificate], clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._ends: defaultdict[str, Tally[int]] = defaultdict(Tally)
        self._of_keys: defaultdict[tuple[str, str], Tally[int]] = defaultdict(Tally)
        self._entries: dict[str, Entry[IssuedCertificate]] | None = None
        self._loaded_at = 0  # the revision of the first load
        self._uncounted: list[ObjectChange[IssuedCertificate]] = []
        records.listen(self, self._on_changes)
        self.metrics = (_Live(self), _Earliest(self))

    def ends(self) -> dict[str, tuple[int, int]]:
        """For each signer: the number of valid certificates, and the first expiry."""
        self._catch_up()
        now = int(self._clock.now().timestamp())
        totals = {}
        for signer, tally in self._ends.items():
            future = [end for end in tally if end > now]
            if future:
                totals[signer] = sum(tally[end] for end in future), min(future)
        return totals

    def live(self, signer: str) -> int:
        """The number of valid certificates of a signer."""
        self._catch_up()
        now = int(self._clock.now().timestamp())
        ends: Mapping[int, int] = self._ends.get(signer, {})
        return sum(number for end, number in ends.items() if end > now)

    def of_key(self, key_id: str, signers: Iterable[str]) -> LiveCertificates:
        """The valid certificates of a signing key that are not revoked.

        Certificates of an authority without a key identifier name no key: each of its `signers` may
        be of this one.
        """
        self._catch_up()
        now = int(self._clock.now().timestamp())
        live = Tally[int]()
        for key in ((key_id, ""), *(("", signer) for signer in signers)):
            ends: Mapping[int, int] = self._of_keys.get(key, {})
            live.update({end: number for end, number in ends.items() if end > now})
        return LiveCertificates(live.total(), max(live, default=0))

    def _on_changes(self, changes: list[ObjectChange[IssuedCertificate]]) -> None:
        self._uncounted += changes
        if len(self._uncounted) >= MOST_UNCOUNTED:
            self._catch_up()

    def _catch_up(self) -> None:
        """Count pending changes; start over if the cache was reloaded."""
        changes, self._uncounted = self._uncounted, []
        if self._entries is not self._records.entries:
            self._recount()  # the reloaded objects include these changes
            return
        for change in changes:
            if change.revision > self._loaded_at:
                if change.old is not None:
                    self._count(change.old, -1)
                if change.new is not None:
                    self._count(change.new, 1)

    def _recount(self) -> None:
        self._ends.clear()
        self._of_keys.clear()
        self._entries, self._loaded_at = self._records.entries, self._records.revision
        for entry in self._entries.values():
            self._count(entry, 1)

    def _count(self, entry: Entry[IssuedCertificate], number: int) -> None:
        record = _decode(entry.data)  # not entry.object, which would stay in memory
        spec = record.spec
        if spec.not_after is None or spec.cluster:
            return
        end = int(spec.not_after.timestamp())
        tallies = [self._ends[spec.signer_name]]
        revoked = record.status.revoked
        # A hold can be lifted. A key depends on the keys below it while these are in use, not
        # until their certificates end: see features/token_keys/policies/conditions.py. That also
        # asks which servers serve with it; a serving certificate that was replaced is used nowhere.
        is_counted = not spec.intermediate and not _is_own_serving(spec)
        if (revoked is None or revoked.reason == HOLD) and is_counted:
            key = spec.authority_key
            tallies.append(self._of_keys[(key, "" if key else spec.signer_name)])
        for tally in tallies:
            tally[end] = tally.get(end, 0) + number
            if not tally[end]:
                del tally[end]


def _is_own_serving(spec: _Spec) -> bool:
    """Whether a server issued it to itself; every other certificate has a request."""
    is_own = spec.approval.reason == OWN_CERTIFICATE and not spec.request.name
    return is_own and SERVER_AUTH in spec.usages and CLIENT_AUTH not in spec.usages


class _Live:
    def __init__(self, counts: IssuedCounts) -> None:
        self._counts = counts

    def family(self) -> Family:
        samples = [
            Sample((("signer", signer),), live) for signer, (live, _) in self._counts.ends().items()
        ]
        text = "Valid certificates by signer."
        return Family(LIVE, "gauge", text, samples, Joining.MOST)

    def reset(self) -> None:
        """Gauges are not reset."""


class _Earliest:
    def __init__(self, counts: IssuedCounts) -> None:
        self._counts = counts

    def family(self) -> Family:
        samples = [
            Sample((("signer", signer),), end) for signer, (_, end) in self._counts.ends().items()
        ]
        text = "First expiry of a valid certificate of a signer, in seconds since the epoch."
        return Family(EARLIEST, "gauge", text, samples, Joining.LEAST)

    def reset(self) -> None:
        """Gauges are not reset."""
