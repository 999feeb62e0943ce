"""Inspection of a certificate before it is signed.

`Inspector.inspect` parses the unsigned bytes with the X.509 library, which did not write them, and
compares every part with the template. It refuses everything that the template does not have: an
extension, a flag, a type of name. Nothing here signs, and nothing is cached: every certificate is
inspected.
"""

import datetime

from cryptography import x509

from orchid.kernel.credentials.refusals import MalformedCertificate, UnsoundCertificate
from orchid.kernel.credentials.x509.certificate_body import Template, key_digest
from orchid.kernel.credentials.x509.certificates import (
    CertificateContents,
    read,
    read_contents,
)
from orchid.kernel.credentials.x509.names import DistinguishedName

_MAX_SERIAL_BITS = 159  # 20 octets and positive, RFC 5280 section 4.1.2.2

_AUTHORITY = x509.BasicConstraints(ca=True, path_length=None)
_NO_AUTHORITY = x509.BasicConstraints(ca=False, path_length=None)


class Inspector:
    """Inspects the certificates of one authority before signing; `end` is the authority's
    expiry.
    """

    def __init__(self, *, end: datetime.datetime, authority_key: bytes) -> None:
        self._end = end
        self._authority_key = authority_key

    def inspect(self, data: bytes, template: Template, serial: int) -> CertificateContents:
        """Return the contents of the bytes, if they match the template."""
        try:
            parsed = read(data)
        except MalformedCertificate as refusal:
            raise UnsoundCertificate(f"the certificate to be signed: {refusal}") from None
        candidate, contents = parsed.certificate, read_contents(parsed)
        sound = (
            candidate.version is x509.Version.v3
            and 0 < serial.bit_length() <= _MAX_SERIAL_BITS
            and candidate.serial_number == serial
            and candidate.not_valid_before_utc == template.not_before
            and candidate.not_valid_after_utc == template.not_after
            and template.not_before < template.not_after
            and candidate.not_valid_after_utc <= self._end
            and _same_names(contents, template)
            and parsed.parts.key == template.spki
            and _are_as_agreed(candidate.extensions, template, self._authority_key)
        )
        if not sound:
            raise UnsoundCertificate("the certificate to be signed is not what was agreed")
        return contents


def _same_names(contents: CertificateContents, template: Template) -> bool:
    return (
        _attributes(contents.subject) == _attributes(template.subject)
        and contents.dns_names == template.dns_names
        and contents.ip_addresses == template.ip_addresses
        and contents.email_addresses == template.email_addresses
        and contents.uris == template.uris
    )


def _attributes(subject: DistinguishedName) -> list[tuple[str, str]]:
    return sorted((attribute.oid, attribute.value or "") for attribute in subject.attributes)


def _are_as_agreed(extensions: x509.Extensions, template: Template, authority_key: bytes) -> bool:
    values: dict[type[x509.ExtensionType], x509.ExtensionType] = {}
    critical = set()
    for entry in extensions:
        value = entry.value
        values[type(value)] = value
        if entry.critical:
            critical.add(type(value))
    must_be_critical: set[type[x509.ExtensionType]] = {x509.BasicConstraints}
    if template.key_usages:
        must_be_critical.add(x509.KeyUsage)
    if x509.SubjectAlternativeName in values and not template.subject.attributes:
        must_be_critical.add(x509.SubjectAlternativeName)
    return (
        values.pop(x509.BasicConstraints, None)
        == (_AUTHORITY if template.authority else _NO_AUTHORITY)
        and critical == must_be_critical
        and values.pop(x509.SubjectKeyIdentifier, None)
        == x509.SubjectKeyIdentifier(template.key_id or key_digest(template.spki))
        and bits_of(values.pop(x509.KeyUsage, None)) == template.key_usages
        and purposes_of(values.pop(x509.ExtendedKeyUsage, None)) == template.extended_usages
        and values.pop(x509.AuthorityKeyIdentifier, None) == _authority_key(authority_key)
        and values.pop(x509.CRLDistributionPoints, None) == _distribution_points(template.crl_url)
        and _count_of(values.pop(x509.SubjectAlternativeName, None)) == _count_in(template)
        and not values
    )


def bits_of(usage: x509.ExtensionType | None) -> frozenset[int]:
    if not isinstance(usage, x509.KeyUsage):
        return frozenset()
    agreement = usage.key_agreement
    flags = (
        usage.digital_signature,
        usage.content_commitment,
        usage.key_encipherment,
        usage.data_encipherment,
        agreement,
        usage.key_cert_sign,
        usage.crl_sign,
        agreement and usage.encipher_only,
        agreement and usage.decipher_only,
    )
    return frozenset(bit for bit, is_set in enumerate(flags) if is_set)


def purposes_of(purposes: x509.ExtensionType | None) -> tuple[str, ...]:
    if not isinstance(purposes, x509.ExtendedKeyUsage):
        return ()
    return tuple(purpose.dotted_string for purpose in purposes)


def _authority_key(key_id: bytes) -> x509.AuthorityKeyIdentifier | None:
    return x509.AuthorityKeyIdentifier(key_id, None, None) if key_id else None


def _count_of(alternative: x509.ExtensionType | None) -> int:
    return len(alternative) if isinstance(alternative, x509.SubjectAlternativeName) else 0


def _count_in(template: Template) -> int:
    """The number of alternative names in the template, to detect names of other types."""
    kinds = (template.dns_names, template.ip_addresses, template.email_addresses, template.uris)
    return sum(map(len, kinds))


def _distribution_points(url: str) -> x509.CRLDistributionPoints | None:
    if not url:
        return None
    name = x509.UniformResourceIdentifier(url)
    return x509.CRLDistributionPoints([x509.DistributionPoint([name], None, None, None)])
