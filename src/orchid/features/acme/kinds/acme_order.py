"""AcmeOrder: an order of an ACME client for one certificate.

    main      the account, the names and the limits; immutable      Rules
    status    when the certificate was fetched                      StatusRules

The state of an order is not stored: it follows from the certificate request of its name
(`request_name`), see features/acme/acme_orders.py. features/acme/controllers/clean_orders.py
deletes old orders.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec import field

from orchid.kernel.credentials.x509.names import COMMON_NAME
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.fields import FieldError, Path, immutable, required, too_many, unsupported
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, at_most, describe, null, proto

SPEC: Final = Path() / "spec"
DNS, IP = "dns", "ip"
TYPES: Final = (DNS, IP)
MOST_IDENTIFIERS: Final = 100
LIFETIME: Final = timedelta(hours=24)
REQUEST_PREFIX: Final = "acme-"
MOST_SHOWN: Final = 10  # names in a message
MOST_SHOWN_OF_NAME: Final = 64  # characters of a name in a message


class AcmeIdentifier(Wire):
    """A name in the certificate."""

    type: Annotated[str, proto(1), describe("dns or ip.")] = always(str)
    value: Annotated[str, proto(2), describe("The DNS name or the address.")] = always(str)


class AcmeOrderSpec(Wire):
    """The account, the names and the limits."""

    account: Annotated[
        str, proto(1), describe("The AcmeAccount, in the same namespace.", required=True)
    ] = always(str)
    identifiers: Annotated[
        tuple[AcmeIdentifier, ...],
        at_most(MOST_IDENTIFIERS),
        proto(2),
        describe("The names of the certificate.", required=True),
    ] = always(tuple)
    not_after: Annotated[
        Time | None, proto(3), describe("The wanted end of the certificate's validity.")
    ] = None
    replaces: Annotated[
        str, proto(4), describe("The identifier (RFC 9773) of the certificate that it replaces.")
    ] = ""
    expires: Annotated[
        Time | None, proto(5), describe("When an order without a certificate becomes invalid.")
    ] = always(null)


class AcmeOrderStatus(Wire):
    """Use of the certificate by the client."""

    fetched: Annotated[
        Time | None, proto(1), describe("When the client fetched the certificate first.")
    ] = None


class AcmeOrder(Object):
    """An order of an ACME client for one certificate."""

    spec: Annotated[AcmeOrderSpec, proto(2), describe("The order.", required=True)] = field(
        default_factory=AcmeOrderSpec
    )
    status: Annotated[AcmeOrderStatus, proto(3), describe("The certificate.")] = field(
        default_factory=AcmeOrderStatus
    )

    @property
    def request_name(self) -> str:
        """The name of its CertificateSigningRequest."""
        return REQUEST_PREFIX + self.name

    @property
    def names(self) -> frozenset[str]:
        return frozenset(one.value for one in self.spec.identifiers)

    def difference(self, request: SigningRequest) -> str:
        """Names that a certificate request and the order do not share, as text; "" if equal."""
        ordered = {(identifier.type, identifier.value) for identifier in self.spec.identifiers}
        named = {(DNS, name.lower()) for name in request.dns_names}
        named |= {(IP, str(address)) for address in request.ip_addresses}
        subject = request.subject
        if any(attribute.oid != COMMON_NAME for attribute in subject.attributes):
            return "the subject has more than a common name"
        for text in subject.values(COMMON_NAME):  # clients repeat one of the names there
            if text.lower() not in {value for _, value in named}:
                return f"the common name {text[:MOST_SHOWN_OF_NAME]} is no subjectAltName"
        if request.email_addresses or request.uris or request.other_names:
            return "there are names that are neither DNS names nor addresses"
        missing = sorted(value for _, value in ordered - named)[:MOST_SHOWN]
        more = sorted(value for _, value in named - ordered)[:MOST_SHOWN]
        parts = [f"{', '.join(missing)} missing"] if missing else []
        return "; ".join([*parts, f"{', '.join(more)} not ordered"] if more else parts)

    def is_expired(self, now: datetime) -> bool:
        return self.spec.expires is None or self.spec.expires <= now


class Rules(Strategy[AcmeOrder]):
    """The main endpoint: the spec is immutable."""

    def validate(self, new: AcmeOrder) -> Iterator[FieldError]:
        spec, path = new.spec, SPEC / "identifiers"
        if not spec.account:
            yield required(SPEC / "account")
        if spec.expires is None:
            yield required(SPEC / "expires")
        if not spec.identifiers:
            yield required(path)
        elif len(spec.identifiers) > MOST_IDENTIFIERS:
            yield too_many(path, len(spec.identifiers), MOST_IDENTIFIERS)
        for index, identifier in enumerate(spec.identifiers[:MOST_IDENTIFIERS]):
            if identifier.type not in TYPES:
                yield unsupported(path[index] / "type", identifier.type, TYPES)
            if not identifier.value:
                yield required(path[index] / "value")

    def validate_update(self, new: AcmeOrder, old: AcmeOrder) -> Iterator[FieldError]:
        yield from immutable(SPEC, new.spec, old.spec)


class StatusRules(Strategy[AcmeOrder]):
    """The `status` endpoint: the first fetch counts."""

    def validate_update(self, new: AcmeOrder, old: AcmeOrder) -> Iterator[FieldError]:
        if old.status.fetched is not None:
            path = Path() / "status" / "fetched"
            yield from immutable(path, new.status.fetched, old.status.fetched)


def declare(naming: Naming) -> Kind[AcmeOrder]:
    return Kind(
        type=AcmeOrder,
        group=naming.identity,
        version="v1alpha1",
        plural="acmeorders",
        scope=Scope.NAMESPACED,
        rules=Rules(),
        writes=("metadata", "spec"),
        creates=("metadata", "spec"),
        columns=COLUMNS,
        selectable={"spec.account": lambda order: order.spec.account},
        endpoints=(Endpoint("status", writes=("metadata", "status"), rules=StatusRules()),),
    )


def _names_cell(order: AcmeOrder, now: datetime) -> str:
    return ",".join(one.value for one in order.spec.identifiers)


COLUMNS: Final = (
    NAME,
    Column("Account", lambda one, now: one.spec.account, description="The AcmeAccount."),
    Column("Names", _names_cell, description="The names of the certificate."),
    Column(
        "Fetched",
        lambda one, now: str(one.status.fetched is not None),
        description="Whether the client has the certificate.",
    ),
    AGE,
)
