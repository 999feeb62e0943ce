"""Names of an order, checked when it is created."""

import ipaddress
from collections.abc import Sequence
from typing import Final

import msgspec

from orchid.features.acme.kinds.acme_order import DNS, IP, MOST_IDENTIFIERS, TYPES, AcmeIdentifier
from orchid.features.acme.protocol.problems import AcmeProblem, malformed
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.kernel.credentials.authorities.profiles import refuse_bad_host
from orchid.kernel.credentials.refusals import NotPermitted

WILDCARD: Final = "*."
LONGEST_VALUE: Final = 253


class Identifier(msgspec.Struct, frozen=True):
    """A name, as a client sends it."""

    type: str
    value: str


def checked(
    identifiers: Sequence[Identifier], authority: CertificateAuthority
) -> tuple[AcmeIdentifier, ...]:
    """The names of an order in their usual form, each once; raises AcmeProblem."""
    if not 0 < len(identifiers) <= MOST_IDENTIFIERS:
        raise malformed(f"an order has 1 to {MOST_IDENTIFIERS} identifiers")
    return tuple(dict.fromkeys(_checked(identifier, authority) for identifier in identifiers))


def _checked(identifier: Identifier, authority: CertificateAuthority) -> AcmeIdentifier:
    terms = authority.spec.issues
    if identifier.type not in TYPES:
        text = f"identifiers have the type {' or '.join(TYPES)}"
        raise AcmeProblem("unsupportedIdentifier", text)
    if identifier.type not in terms.names:
        raise _rejected(
            identifier, f"the authority issues no certificates with {identifier.type} names"
        )
    if len(identifier.value) > LONGEST_VALUE:
        raise malformed(f"an identifier has at most {LONGEST_VALUE} characters")
    if identifier.type == IP:
        try:
            address = ipaddress.ip_address(identifier.value)
        except ValueError:
            raise malformed("an identifier is not an IP address") from None
        if getattr(address, "scope_id", None):
            raise malformed("an identifier is an IP address with a zone")
        return AcmeIdentifier(type=IP, value=str(address))
    value = identifier.value.lower()
    try:
        refuse_bad_host(value, wildcards=terms.wildcards)
    except NotPermitted as refusal:
        raise _rejected(identifier, str(refusal)) from None
    return AcmeIdentifier(type=DNS, value=value)


def _rejected(given: Identifier, text: str) -> AcmeProblem:
    shown = {"type": given.type, "value": given.value[:LONGEST_VALUE]}
    return AcmeProblem("rejectedIdentifier", text, identifier=shown)


def wildcard_of(identifier: AcmeIdentifier) -> str | None:
    """The domain below a wildcard, or None."""
    is_wildcard = identifier.type == DNS and identifier.value.startswith(WILDCARD)
    return identifier.value.removeprefix(WILDCARD) if is_wildcard else None
