"""Orders: created for names, finalized with a certificate request, answered with a certificate.

There are no challenges: policies decide which names an account gets, so every authorization is
valid from the start. Finalizing creates a CertificateSigningRequest as the service account, through
the API, so that permissions, admission, audit and approval apply as to any other request.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from orchid.features.acme.acme_orders import (
    PROCESSING,
    READY,
    VALID,
    AcmeOrders,
    OrderState,
    with_issuer,
)
from orchid.features.acme.kinds.acme_account import AcmeAccount
from orchid.features.acme.kinds.acme_order import LIFETIME, AcmeIdentifier, AcmeOrder, AcmeOrderSpec
from orchid.features.acme.protocol import identifiers, links
from orchid.features.acme.protocol.identifiers import Identifier
from orchid.features.acme.protocol.problems import (
    NAMESPACE,
    AcmeProblem,
    malformed,
    unauthorized,
    unknown,
)
from orchid.features.acme.protocol.replies import Reply
from orchid.features.acme.protocol.requests import RequestTarget, VerifiedRequest, require_account
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.certificates.renewal_information import MalformedId
from orchid.features.certificates.rules.signing_requests import SHORTEST_LIFETIME
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import pem, signing_request
from orchid.kernel.wire.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.references import is_owned_by, owner_reference
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import timestamp
from orchid.kernel.wire.user import UserInfo

MOST_LIVE: Final = 300  # orders of an account that are neither fetched nor expired
MOST_PER_MINUTE: Final = 20
MOST_REPLACING: Final = 50  # of the same, that replace one certificate
SHORTEST_RETRY, LONGEST_RETRY, RETRIES_PER_AGE = 3, 300, 10
# Of a certificate: the limits of spec.expirationSeconds.
SHORTEST, LONGEST = timedelta(seconds=SHORTEST_LIFETIME), timedelta(seconds=2**31 - 1)
PEM_CHAIN: Final = "application/pem-certificate-chain"
CREATED: Final = 201


class ActingAs(Protocol):
    """A client of a service account, as long as the context lasts."""

    def __call__(self, user: UserInfo, source: str) -> AbstractContextManager[Client]: ...


class NewOrder(msgspec.Struct, frozen=True, rename="camel"):
    """The payload of a new order."""

    identifiers: tuple[Identifier, ...]
    not_before: datetime | None = None
    not_after: datetime | None = None
    replaces: str = ""


class Finalize(msgspec.Struct, frozen=True):
    """The payload of finalize: PKCS#10, in DER and base64url."""

    csr: str


class OrderPages:
    """new-order, order, authorization, finalize and certificate."""

    def __init__(
        self,
        orders: AcmeOrders,
        client: Client,
        acting: ActingAs,
        clock: Clock,
        *,
        key_problem: Callable[[str], str],
    ) -> None:
        """`key_problem`: why nothing is issued for a public key (SHA-256), or ""."""
        self._orders = orders
        self._client = client
        self._acting = acting
        self._clock = clock
        self._key_problem = key_problem
        self._creating: dict[str, int] = {}  # orders that are being created, by account uid

    # -- new orders ----------------------------------------------------------------------------

    async def new(self, request: VerifiedRequest) -> Reply:
        account, user = require_account(request)
        payload: NewOrder = request.read(NewOrder)
        names = identifiers.checked(payload.identifiers, request.target.authority)
        self._refuse_times(payload)
        if payload.replaces:
            self._refuse_replacement(payload.replaces, names, request.target, user)
        uid = account.metadata.uid
        self._refuse_too_many(account)
        self._creating[uid] = self._creating.get(uid, 0) + 1
        try:
            order = await self._create(request, account, payload, names)
        finally:
            self._creating[uid] -= 1
            if not self._creating[uid]:
                del self._creating[uid]
        await self._orders.fresh()
        return self._reply(request.target, order, user, CREATED)

    async def _create(
        self,
        request: VerifiedRequest,
        account: AcmeAccount,
        payload: NewOrder,
        names: tuple[AcmeIdentifier, ...],
    ) -> AcmeOrder:
        version = self._client.catalog.of(AcmeAccount).api_version
        owner = owner_reference(account, version, controller=None)
        new = AcmeOrder(
            metadata=ObjectMeta(
                name=request.name(account.metadata.uid),
                namespace=account.namespace,
                owner_references=(owner,),
            ),
            spec=AcmeOrderSpec(
                account=account.name,
                identifiers=names,
                not_after=payload.not_after and whole_seconds(payload.not_after),
                replaces=payload.replaces,
                expires=whole_seconds(self._clock.now() + LIFETIME),
            ),
        )
        try:
            return await self._client.create(new)
        except AlreadyExists:  # the same request, at another server
            order = await self._client.get(AcmeOrder, new.name, new.namespace)
            is_same = replace(order.spec, expires=new.spec.expires) == new.spec
            if not is_same or not is_owned_by(order, account):
                raise malformed("another order has the name of this one; try again") from None
            return order

    def _refuse_times(self, payload: NewOrder) -> None:
        if payload.not_before is not None:
            raise malformed("notBefore is not supported")
        end = payload.not_after
        if end is None:
            return
        if end.tzinfo is None:
            raise malformed("notAfter must have a time zone")
        lifetime = end - self._clock.now()
        if not SHORTEST <= lifetime <= LONGEST:
            text = f"notAfter must be {SHORTEST.seconds} seconds to {LONGEST.days} days from now"
            raise malformed(text)

    def _refuse_replacement(
        self,
        certificate: str,
        names: tuple[AcmeIdentifier, ...],
        target: RequestTarget,
        user: UserInfo,
    ) -> None:
        """Raise AcmeProblem unless an order may replace a certificate (RFC 9773, section 5)."""
        try:
            record = self._orders.certificate(certificate)
        except MalformedId as problem:
            raise malformed(f"replaces: {problem}") from None
        if (
            record is None
            or not record.spec.requester.is_same(user)
            or record.spec.signer_name != target.authority.spec.signer_name
            or not {identifier.value for identifier in names} & set(record.spec.names)
        ):
            raise malformed("replaces: no certificate of this account with one of these names")
        for other in self._orders.replacing(certificate):
            if self._orders.state(other, user, target.authority).status == VALID:
                raise AcmeProblem("alreadyReplaced", "another order has replaced this certificate")
        if self._orders.count_replacing(certificate) >= MOST_REPLACING:
            text = f"at most {MOST_REPLACING} orders that nobody fetched replace one certificate"
            raise AcmeProblem("rateLimited", text, headers=b"Retry-After: 3600\r\n")

    def _refuse_too_many(self, account: AcmeAccount) -> None:
        counts = self._orders.counts((account.namespace, account.name))
        pending = self._creating.get(account.metadata.uid, 0)
        if counts.recent + pending >= MOST_PER_MINUTE:
            text = f"an account creates at most {MOST_PER_MINUTE} orders a minute"
            raise AcmeProblem("rateLimited", text, headers=b"Retry-After: 60\r\n")
        if counts.live + pending >= MOST_LIVE:
            text = f"an account has at most {MOST_LIVE} orders that it did not fetch"
            raise AcmeProblem("rateLimited", text, headers=b"Retry-After: 3600\r\n")

    # -- reading -------------------------------------------------------------------------------

    async def show(self, request: VerifiedRequest) -> Reply:
        """An order, or with `finalize` at the end, its certificate request."""
        *path, last = request.target.rest or ("",)
        if last == links.FINALIZE:
            return await self._finalize(request, tuple(path))
        request.require_empty()
        order, user = self._own(request, request.target.rest)
        return self._reply(request.target, order, user)

    async def authorization(self, request: VerifiedRequest) -> Reply:
        request.require_empty()
        *path, index = request.target.rest or ("",)
        order, _ = self._own(request, tuple(path))
        names = order.spec.identifiers
        if not (index.isascii() and index.isdecimal() and int(index[:4]) < len(names)):
            raise unknown("authorization")
        return Reply(document=_authorization(order, names[int(index[:4])]))

    async def certificate(self, request: VerifiedRequest) -> Reply:
        request.require_empty()
        order, user = self._own(request, request.target.rest)
        state = self._orders.state(order, user, request.target.authority)
        if state.status != VALID:
            raise unknown("certificate")
        if order.status.fetched is None:
            await self._note_fetched(order)
        body = with_issuer(state.chain, request.target.authority)
        return Reply(body=body, media=PEM_CHAIN)

    async def _note_fetched(self, order: AcmeOrder) -> None:
        status = replace(order.status, fetched=whole_seconds(self._clock.now()))
        try:
            await self._client.update_status(replace(order, status=status))
        except Conflict:
            return  # another request was faster

    def _own(self, request: VerifiedRequest, path: tuple[str, ...]) -> tuple[AcmeOrder, UserInfo]:
        """The order of a path, if it belongs to the account of the request."""
        account, user = require_account(request)
        if len(path) != len(("namespace", "name")):
            raise unknown("order")
        namespace, name = path
        order = self._orders.find(namespace, name)
        if order is None or namespace != account.namespace or not is_owned_by(order, account):
            raise unknown("order")  # also that of an earlier account of this name
        return order, user

    # -- finalizing ----------------------------------------------------------------------------

    async def _finalize(self, request: VerifiedRequest, path: tuple[str, ...]) -> Reply:
        order, user = self._own(request, path)
        data = _decoded(request.read(Finalize).csr)
        try:
            parsed = signing_request.parse_der_once(data)
        except Refusal as refusal:
            raise AcmeProblem("badCSR", str(refusal)) from None
        if ended := self._key_problem(hashlib.sha256(parsed.spki).hexdigest()):
            raise AcmeProblem("badCSR", ended)
        if parsed.public_key == request.key.key.public:
            raise AcmeProblem("badCSR", "the key of the account must not be that of a certificate")
        if difference := order.difference(parsed):
            detail = f"the names in the request differ from those of the order: {difference}"
            raise AcmeProblem("badCSR", detail)
        text = pem.encode(pem.CERTIFICATE_REQUEST, data)
        target = request.target
        if self._state(order, user, target).status == READY:
            await self._request(request, order, user, text)
            await self._orders.fresh()
        state = self._state(order, user, target)
        if state.request is None or state.request.spec.request != text:
            raise AcmeProblem("orderNotReady", f"the order is {state.status}, not {READY}")
        return self._reply(target, order, user)

    async def _request(
        self, request: VerifiedRequest, order: AcmeOrder, user: UserInfo, text: bytes
    ) -> None:
        """Create the certificate request as the service account."""
        seconds = None
        if order.spec.not_after is not None:
            left = int((order.spec.not_after - self._clock.now()).total_seconds())
            seconds = max(left, SHORTEST_LIFETIME)
        new = CertificateSigningRequest(
            metadata=ObjectMeta(name=order.request_name),
            spec=CertificateSigningRequestSpec(
                request=text,
                signer_name=request.target.authority.spec.signer_name,
                expiration_seconds=seconds,
            ),
        )
        try:
            with self._acting(user, request.source) as client:
                await client.create(new)
        except AlreadyExists:
            return  # the same request, at another server, or somebody else's: see the state
        except Forbidden as refusal:
            raise unauthorized(str(refusal)) from None
        except (Invalid, BadRequest) as refusal:
            raise AcmeProblem("badCSR", str(refusal)) from None

    # -- replies -------------------------------------------------------------------------------

    def _state(self, order: AcmeOrder, user: UserInfo, target: RequestTarget) -> OrderState:
        return self._orders.state(order, user, target.authority)

    def _reply(
        self, target: RequestTarget, order: AcmeOrder, user: UserInfo, code: int = 200
    ) -> Reply:
        state, spec = self._state(order, user, target), order.spec
        own = (order.namespace, order.name)
        document: dict[str, Any] = {
            "status": state.status,
            "identifiers": [
                {"type": identifier.type, "value": identifier.value}
                for identifier in spec.identifiers
            ],
            "authorizations": [
                target.links.to(links.AUTHORIZATION, *own, str(index))
                for index in range(len(spec.identifiers))
            ],
            "finalize": target.links.to(links.ORDER, *own, links.FINALIZE),
        }
        if spec.expires is not None:
            document["expires"] = timestamp(spec.expires)
        if spec.not_after is not None:
            document["notAfter"] = timestamp(spec.not_after)
        if spec.replaces:
            document["replaces"] = spec.replaces
        if state.reason:
            type_ = NAMESPACE + "unauthorized"
            document["error"] = {"type": type_, "detail": state.reason, "status": 403}
        if state.status == VALID:
            document["certificate"] = target.links.to(links.CERTIFICATE, *own)
        retry = b""
        if state.status == PROCESSING:
            retry = b"Retry-After: %d\r\n" % self._retry_seconds(state)
        return Reply(code, document, location=target.links.to(links.ORDER, *own), headers=retry)

    def _retry_seconds(self, state: OrderState) -> int:
        """A tenth of the time that the client has waited."""
        created = state.request.metadata.creation_timestamp if state.request else None
        age = (self._clock.now() - created).total_seconds() if created else 0
        return int(min(max(age / RETRIES_PER_AGE, SHORTEST_RETRY), LONGEST_RETRY))


def _authorization(order: AcmeOrder, name: AcmeIdentifier) -> dict[str, Any]:
    """A valid authorization: policy decides about names."""
    domain = identifiers.wildcard_of(name)
    document: dict[str, Any] = {
        "identifier": {"type": name.type, "value": domain or name.value},
        "status": VALID,
        "challenges": [],
    }
    if order.spec.expires is not None:
        document["expires"] = timestamp(order.spec.expires)
    if domain:
        document["wildcard"] = True
    return document


def _decoded(text: str) -> bytes:
    try:
        return b64url_decode(text.encode("ascii"))
    except ValueError:
        raise AcmeProblem("badCSR", "csr must be DER in base64url") from None
