"""Constraints of an authority's chain on the certificates that it issues.

Start with `limits_of`. Extended key usages and name constraints of all certificates in the chain
apply together (RFC 5280 sections 4.2.1.10 and 4.2.1.12): verifiers would refuse a certificate
beyond them. Where verifiers differ, the stricter reading is used, so that every one accepts what is
issued.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from cryptography import x509

from orchid.kernel.credentials.authorities.issuer_chain import purposes
from orchid.kernel.credentials.refusals import NotPermitted
from orchid.kernel.credentials.x509.names import DistinguishedName, Named
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.credentials.x509.usages import extended_usages

RelativeName = frozenset[tuple[str, str]]  # object identifier and value

_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")


class IssuerLimits(msgspec.Struct, frozen=True):
    """Extended key usages (None: any) and name constraints of a chain."""

    usages: frozenset[str] | None
    constraints: tuple[x509.NameConstraints, ...]

    def permits_usage(self, usage: str) -> bool:
        return self.usages is None or self.usages.issuperset(extended_usages((usage,)))

    def check(self, request: Named, usages: Sequence[str]) -> None:
        """Return if the chain permits this certificate; raise NotPermitted with a reason."""
        for usage in usages:
            if not self.permits_usage(usage):
                raise NotPermitted(f"the authority may not issue for {usage}")
        if not self.constraints:
            return
        for kind, name in _names(request):
            for constraint in self.constraints:
                _check_name(kind, name, constraint)


def limits_of(chain: Sequence[x509.Certificate]) -> IssuerLimits | None:
    """The limits of a chain; None if it has none."""
    usages = purposes(chain)
    constraints = tuple(_constraints(chain))
    return None if usages is None and not constraints else IssuerLimits(usages, constraints)


def _constraints(chain: Sequence[x509.Certificate]) -> Iterator[x509.NameConstraints]:
    for link in chain:
        for extension in link.extensions:
            if isinstance(extension.value, x509.NameConstraints):
                yield extension.value


class NameKind(msgspec.Struct, frozen=True):
    """A type of names: its constraints, and the comparison of a name with a constraint.

    `fits`: the name is within a permitted subtree. `touches`: it could be used for a name within an
    excluded one.
    """

    text: str
    limit: type[x509.GeneralName]
    fits: Callable[[Any, Any], bool]
    touches: Callable[[Any, Any], bool]


def _names(request: Named) -> Iterator[tuple[NameKind, Any]]:
    """The names of a certificate, as verifiers compare them with constraints."""
    subject = request.certified_subject if isinstance(request, SigningRequest) else request.subject
    relative = _relative_names(subject)
    if relative:
        yield SUBJECT, relative
    common_name = subject.common_name
    if not request.dns_names and _HOST.fullmatch(common_name):
        yield DNS, common_name  # OpenSSL treats it as a host name
    for names, kind in (
        (request.dns_names, DNS),
        (request.ip_addresses, IP),
        (request.email_addresses, MAIL),
        (request.uris, URI),
    ):
        for name in names:
            yield kind, name


def _check_name(kind: NameKind, name: Any, constraint: x509.NameConstraints) -> None:
    permitted = _values(kind, constraint.permitted_subtrees)
    excluded = _values(kind, constraint.excluded_subtrees)
    if permitted and not any(kind.fits(name, limit) for limit in permitted):
        raise NotPermitted(f"the authority may not issue for the {kind.text} {_shown(name)}")
    if any(kind.touches(name, limit) for limit in excluded):
        raise NotPermitted(f"the authority may not issue for the {kind.text} {_shown(name)}")


def _values(kind: NameKind, subtrees: Sequence[x509.GeneralName] | None) -> list[Any]:
    return [one.value for one in subtrees or () if isinstance(one, kind.limit)]


def _shown(name: Any) -> str:
    if isinstance(name, tuple):
        name = ",".join(value for relative in name for _, value in sorted(relative))
    return f'"{name}"'


# --- types of names ---------------------------------------------------------------------------


def _dns_fits(name: str, limit: str) -> bool:
    name, limit = name.lower(), limit.lower()
    return name == limit or _is_below(name, limit)


def _dns_touches(name: str, limit: str) -> bool:
    # Some verifiers ignore a trailing dot: it does not exempt a name from an excluded domain.
    if _dns_fits(name.removesuffix("."), limit):
        return True
    # A wildcard covers each name with one more label, so also the excluded one.
    return name.startswith("*.") and limit.lower().partition(".")[2] == name[2:].lower()


def _is_below(host: str, limit: str) -> bool:
    """Whether a host is below a domain, which may have a leading dot."""
    return not limit or host.endswith(limit if limit.startswith(".") else f".{limit}")


def _host_fits(host: str, limit: str) -> bool:
    """A constraint with a leading dot covers hosts below it, any other only that host."""
    host, limit = host.lower(), limit.lower()
    return host.endswith(limit) if limit.startswith(".") or not limit else host == limit


def _mail_fits(address: str, limit: str) -> bool:
    local, _, host = address.rpartition("@")
    name, at, domain = limit.rpartition("@")
    if at:
        return local == name and host.lower() == domain.lower()
    return _host_fits(host, limit)


def _mail_touches(address: str, limit: str) -> bool:
    return _mail_fits(address.lower(), limit.lower())


def _uri_host(uri: str) -> str:
    """The host name in a URI; empty if there is none, or an address."""
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host
    return ""


def _uri_fits(uri: str, limit: str) -> bool:
    host = _uri_host(uri)
    return bool(host) and _host_fits(host, limit)


def _uri_touches(uri: str, limit: str) -> bool:
    host = _uri_host(uri)
    return not host or _host_fits(host, limit)  # without a host name it cannot be compared


def _relative_names(subject: DistinguishedName) -> tuple[RelativeName, ...]:
    sets: list[set[tuple[str, str]]] = []
    for attribute in subject.attributes:
        if not attribute.joined:
            sets.append(set())
        sets[-1].add((attribute.oid, attribute.value or ""))
    return tuple(map(frozenset, sets))


def _limit_names(limit: x509.Name) -> tuple[RelativeName, ...]:
    return tuple(
        frozenset((one.oid.dotted_string, str(one.value)) for one in relative)
        for relative in limit.rdns
    )


def _subject_fits(name: tuple[RelativeName, ...], limit: x509.Name) -> bool:
    wanted = _limit_names(limit)
    return name[: len(wanted)] == wanted


def _subject_touches(name: tuple[RelativeName, ...], limit: x509.Name) -> bool:
    wanted = tuple(map(_folded, _limit_names(limit)))
    return tuple(map(_folded, name[: len(wanted)])) == wanted


def _folded(relative: RelativeName) -> RelativeName:
    """A relative name, normalised for differences that some verifiers ignore."""
    return frozenset((oid, " ".join(value.casefold().split())) for oid, value in relative)


def _address_fits(address: Any, network: Any) -> bool:
    return bool(address in network)


DNS = NameKind("DNS name", x509.DNSName, _dns_fits, _dns_touches)
MAIL = NameKind("mail address", x509.RFC822Name, _mail_fits, _mail_touches)
URI = NameKind("URI", x509.UniformResourceIdentifier, _uri_fits, _uri_touches)
IP = NameKind("IP address", x509.IPAddress, _address_fits, _address_fits)
SUBJECT = NameKind("subject", x509.DirectoryName, _subject_fits, _subject_touches)
