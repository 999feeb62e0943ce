"""Orders of ACME clients: their states, and how many an account has.

The state of an order follows from its certificate request (`AcmeOrder.request_name`), and from the
inventory after the request was cleaned up:

    ready        there is no request yet
    processing   the request has no decision or no outcome yet
    valid        the certificate exists
    invalid      the request was denied or has failed, or the order has expired

Records of clusters count for nothing: their API servers report whatever names they want. Look-ups
are by name or by an index over the cache, and see every acknowledged change after `fresh`.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

import msgspec

from orchid.features.acme.kinds.acme_order import REQUEST_PREFIX, AcmeOrder
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate, Requester
from orchid.features.certificates.renewal_information import parse_id
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.authorities.issuer_chain import is_issued_by
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.request_conditions import DENIED, FAILED
from orchid.kernel.wire.user import UserInfo

READY, PROCESSING, VALID, INVALID = "ready", "processing", "valid", "invalid"
MINUTE: Final = timedelta(minutes=1)
EXPIRED: Final = "the order has expired"
FOREIGN: Final = "a certificate request with the name of this order belongs to somebody else"
_OF_ORDER: Final = b'"request":{"name":"%b' % REQUEST_PREFIX.encode()

K = TypeVar("K")
V = TypeVar("V")

Account = tuple[str, str]  # namespace and name of an AcmeAccount


class OrderState(msgspec.Struct, frozen=True):
    """The state of an order, and what it follows from."""

    status: str
    reason: str = ""  # of an invalid order
    chain: bytes = b""  # of a valid order: PEM, without the root (see `with_issuer`)
    request: CertificateSigningRequest | None = None
    record: IssuedCertificate | None = None


class OrderCounts(NamedTuple):
    """Orders of an account."""

    live: int  # neither fetched nor expired
    recent: int  # created in the last minute


class AcmeOrders:
    """All orders, with their requests and certificates."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self.fresh = feed.fresh
        self._clock = clock
        self._orders = feed.of(AcmeOrder)
        self._requests = feed.of(CertificateSigningRequest)
        self._records = feed.of(IssuedCertificate)
        self._decode = self._orders.kind.decoder.stored
        self._decode_record = self._records.kind.decoder.stored
        self._cleared()
        self._records_cleared()
        self._order_index = CacheIndex(self._orders, self._changed, self._cleared)
        self._record_index = CacheIndex(self._records, self._record_changed, self._records_cleared)

    def find(self, namespace: str, name: str) -> AcmeOrder | None:
        entry = self._orders.get(namespace, name)
        return entry.object if entry is not None else None

    def state(
        self, order: AcmeOrder, user: UserInfo, authority: CertificateAuthority
    ) -> OrderState:
        """The state of an order of a user (a service account, by uid) at an authority."""
        signer, now = authority.spec.signer_name, self._clock.now()
        entry = self._requests.get("", order.request_name)
        if entry is not None:
            request = entry.object
            made_by = Requester(username=request.spec.username, uid=request.spec.uid)
            if not made_by.is_same(user) or request.spec.signer_name != signer:
                return OrderState(INVALID, FOREIGN)
            return _state_of(request, is_expired=order.is_expired(now))
        for record in self._recorded(order.request_name):
            if record.spec.requester.is_same(user) and record.spec.signer_name == signer:
                leaf = pem.encode(pem.CERTIFICATE, record.spec.certificate)
                return OrderState(VALID, chain=leaf, record=record)
        return OrderState(INVALID, EXPIRED) if order.is_expired(now) else OrderState(READY)

    def record_of(self, state: OrderState) -> IssuedCertificate | None:
        """The certificate of a valid order in the inventory."""
        if state.record is not None or state.request is None:
            return state.record
        uid = state.request.metadata.uid
        records = self._recorded(state.request.name)
        return next((record for record in records if record.spec.request.uid == uid), None)

    def certificate(self, identifier: str) -> IssuedCertificate | None:
        """The certificate with an identifier of RFC 9773, on record; raises MalformedId."""
        authority_key, serial = parse_id(identifier)
        record = self.of_serial(serial)
        if record is None or record.spec.authority_key != authority_key.hex():
            return None
        return record

    def of_serial(self, serial: bytes) -> IssuedCertificate | None:
        entry = self._records.get("", certificates.serial_name(serial))
        return entry.object if entry is not None else None

    def replacing(self, certificate: str) -> Iterator[AcmeOrder]:
        """The orders that replace a certificate and led to another one."""
        self._order_index.catch_up()
        self._record_index.catch_up()
        for request in self._replaced.get(certificate, ()):
            for key in self._replacing.get(request, ()):
                entry = self._orders.entries.get(key)
                if entry is not None and entry.object.spec.replaces == certificate:
                    yield entry.object

    def count_replacing(self, certificate: str) -> int:
        """The number of orders that replace a certificate, neither fetched nor expired."""
        self._order_index.catch_up()
        now = self._clock.now().timestamp()
        orders = self._live_replacing.get(certificate, {})
        for key in [key for key, expires in orders.items() if expires <= now]:
            _drop(self._live_replacing, certificate, key)
        return len(self._live_replacing.get(certificate, ()))

    def counts(self, account: Account) -> OrderCounts:
        self._order_index.catch_up()
        now = self._clock.now().timestamp()
        live, recent = self._live.get(account, {}), self._recent.get(account, {})
        for key in [key for key, created in recent.items() if created <= now - 60]:
            del recent[key]
        return OrderCounts(sum(expires > now for expires in live.values()), len(recent))

    def _recorded(self, request: str) -> Iterator[IssuedCertificate]:
        self._record_index.catch_up()
        for key in self._issued.get(request, ()):
            entry = self._records.entries.get(key)
            if entry is not None:
                yield entry.object

    # -- following the caches ----------------------------------------------------------------

    def _cleared(self) -> None:
        self._live: dict[Account, dict[str, float]] = {}
        self._recent: dict[Account, dict[str, float]] = {}
        # The certificate that each order replaces, by the name of its request and its key.
        self._replacing: dict[str, dict[str, str]] = {}
        self._live_replacing: dict[str, dict[str, float]] = {}
        # The requests with a certificate on record whose orders replace a certificate.
        self._replaced: dict[str, dict[str, None]] = {}
        self._known: dict[str, tuple[Account, str, str]] = {}

    def _changed(self, key: str, entry: Entry[AcmeOrder] | None) -> None:
        before = self._known.get(key)
        if entry is None:
            if before is not None:
                self._forget(key, *self._known.pop(key))
            return
        order = self._decode(entry.data)
        account, spec = (order.namespace, order.spec.account), order.spec
        if before is None:
            self._known[key] = account, spec.replaces, order.request_name
            created = order.metadata.creation_timestamp
            if created is not None and created > self._clock.now() - MINUTE:
                self._recent.setdefault(account, {})[key] = created.timestamp()
            if spec.replaces:
                self._replacing.setdefault(order.request_name, {})[key] = spec.replaces
                self._note_replaced(order.request_name)
        if order.status.fetched is None and spec.expires is not None:
            self._live.setdefault(account, {})[key] = spec.expires.timestamp()
            if spec.replaces:
                live = self._live_replacing.setdefault(spec.replaces, {})
                live[key] = spec.expires.timestamp()
        else:
            _drop(self._live, account, key)
            _drop(self._live_replacing, spec.replaces, key)

    def _forget(self, key: str, account: Account, replaces: str, request: str) -> None:
        _drop(self._live, account, key)
        _drop(self._recent, account, key)
        _drop(self._live_replacing, replaces, key)
        _drop(self._replacing, request, key)
        _drop(self._replaced, replaces, request)
        self._note_replaced(request)  # by another order of this name

    def _records_cleared(self) -> None:
        self._issued: dict[str, dict[str, None]] = {}
        self._request_of: dict[str, str] = {}
        self._replaced = {}

    def _record_changed(self, key: str, entry: Entry[IssuedCertificate] | None) -> None:
        if entry is None:
            request = self._request_of.pop(key, "")
            _drop(self._issued, request, key)
            if request not in self._issued:
                for replaces in self._replacing.get(request, {}).values():
                    _drop(self._replaced, replaces, request)
        elif key not in self._request_of and _OF_ORDER in entry.tail:
            spec = self._decode_record(entry.data).spec
            if not spec.cluster:
                self._request_of[key] = spec.request.name
                self._issued.setdefault(spec.request.name, {})[key] = None
                self._note_replaced(spec.request.name)

    def _note_replaced(self, request: str) -> None:
        """Index the certificates that the orders of a request replace, once it is issued."""
        if request in self._issued:
            for replaces in self._replacing.get(request, {}).values():
                self._replaced.setdefault(replaces, {})[request] = None


def _state_of(request: CertificateSigningRequest, *, is_expired: bool) -> OrderState:
    if request.is_issued:
        return OrderState(VALID, chain=request.status.certificate, request=request)
    for condition in request.status.conditions:
        if condition.type in (DENIED, FAILED):
            text = condition.message or condition.reason or condition.type
            return OrderState(INVALID, text, request=request)
    if is_expired:
        return OrderState(INVALID, EXPIRED, request=request)
    return OrderState(PROCESSING, request=request)


def with_issuer(chain: bytes, authority: CertificateAuthority) -> bytes:
    """A chain that has at least two certificates, which some clients need.

    Signers leave out the root; it is added if the root itself has signed the certificate.
    """
    leaf, *others = certificates.parse_blocks(chain)
    if others or not authority.status.certificate:
        return chain
    above = certificates.parse_blocks(authority.status.certificate)
    if not is_issued_by(leaf, above[0]):
        return chain  # an earlier key of the authority signed it
    kept = [link for link in above if link.issuer != link.subject] or above[:1]
    return chain + b"".join(pem.encode(pem.CERTIFICATE, certificates.encode(link)) for link in kept)


def _drop(index: dict[K, dict[str, V]], target: K, key: str) -> None:
    keys = index.get(target)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[target]
