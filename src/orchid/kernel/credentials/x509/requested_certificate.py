"""The certificate that a signer would issue for a request; policies evaluate it.

Start with `requested_certificate`. It has the content of the template in
kernel/credentials/authorities/authority.py (subject, alternative names, usages, key, lifetime) and
nothing else from the request. An external signer may copy the request's bytes instead;
`hidden_parts` lists what these contain beyond the template, and a request with any is refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

import msgspec
from cryptography import x509

from orchid.kernel.credentials.refusals import MalformedRequest, library_errors_as
from orchid.kernel.credentials.x509 import certificates, der, names
from orchid.kernel.credentials.x509.names import DistinguishedName, IPAddress
from orchid.kernel.credentials.x509.signing_request import SUBJECT_ALTERNATIVE_NAME, SigningRequest
from orchid.kernel.credentials.x509.usages import (
    EXTENDED_USAGES,
    KEY_USAGES,
    extended_usages,
    key_usage_bits,
)

# PrintableString, UTF8String and IA5String: all parsers agree on these.
_PLAIN_STRINGS = (0x13, 0x0C, 0x16)
_KEY_USAGE, _EXTENDED_KEY_USAGE, _BASIC_CONSTRAINTS = "2.5.29.15", "2.5.29.37", "2.5.29.19"
_SUBJECT_KEY_ID = "2.5.29.14"
_USAGE_BITS = 9
_NO_AUTHORITY = der.encode(der.SEQUENCE)  # basic constraints without the CA bit


class RequestedCertificate(msgspec.Struct, frozen=True):
    """The content of a certificate. One name per usage. Lifetime is None if unknown."""

    subject: DistinguishedName
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPAddress, ...]
    email_addresses: tuple[str, ...]
    uris: tuple[str, ...]
    usages: tuple[str, ...]
    key: str  # ECDSA-P256, RSA-2048, Ed25519
    lifetime: timedelta | None


def requested_certificate(
    request: SigningRequest, usages: Sequence[str], lifetime: timedelta | None
) -> RequestedCertificate:
    return RequestedCertificate(
        subject=request.certified_subject,
        dns_names=request.dns_names,
        ip_addresses=request.ip_addresses,
        email_addresses=request.email_addresses,
        uris=request.uris,
        usages=canonical_usages(usages),
        key=request.key_algorithm,
        lifetime=lifetime,
    )


def certified(
    data: bytes, usages: Sequence[str], key: str, lifetime: timedelta
) -> RequestedCertificate:
    """The content of a signed certificate, as if it were requested; raises Refusal."""
    contents = certificates.read_contents(certificates.read(data))
    return RequestedCertificate(
        subject=contents.subject,
        dns_names=contents.dns_names,
        ip_addresses=contents.ip_addresses,
        email_addresses=contents.email_addresses,
        uris=contents.uris,
        usages=canonical_usages(usages),
        key=key,
        lifetime=lifetime,
    )


def canonical_usages(usages: Iterable[str]) -> tuple[str, ...]:
    """One name per usage: `signing` and `digital signature` are the same bit."""
    return tuple(dict.fromkeys(_CANONICAL.get(usage, usage) for usage in usages))


def hidden_parts(request: SigningRequest, usages: Sequence[str]) -> tuple[str, ...]:
    """Contents of the request's bytes beyond the certificate to be signed, as sentences."""
    hidden = (
        *_hidden_in_subject(request),
        *_hidden_in_names(request),
        *_hidden_in_extensions(request, usages),
    )
    return tuple(dict.fromkeys(hidden))


def _hidden_in_subject(request: SigningRequest) -> Iterator[str]:
    subject = request.subject
    written = {(part.oid, part.value) for part in request.certified_subject.attributes}
    for part in subject.attributes:
        if (part.oid, part.value) not in written:
            yield f"the subject has a {_title(part.oid)} that would not be signed"
    for kinds, tags in _relative_names(request.der):
        if len(set(kinds)) > 1:
            yield "the subject has different attributes in one relative name"
        if any(tag not in _PLAIN_STRINGS for tag in tags):
            yield "the subject has a string of a type that programs read differently"


def _relative_names(data: bytes) -> Iterator[tuple[list[bytes], list[int]]]:
    """Each relative name of the subject: the types of its attributes and of their strings."""
    info = _child(data, _child(data, der.element(data, 0, len(data)), 0), 1)
    for relative in der.children(data, info.start, info.stop):
        kinds, tags = [], []
        for pair in der.children(data, relative.start, relative.stop):
            oid, value = der.children(data, pair.start, pair.stop)
            kinds.append(data[oid.start : oid.stop])
            tags.append(value.tag)
        yield kinds, tags


def _child(data: bytes, parent: der.Element, number: int) -> der.Element:
    return list(der.children(data, parent.start, parent.stop))[number]


def _hidden_in_names(request: SigningRequest) -> Iterator[str]:
    if request.other_names:
        yield "it asks for alternative names of a kind that would not be signed"
    if not _library_agrees(request):
        yield "another parser finds other names in it"


def _library_agrees(request: SigningRequest) -> bool:
    """Whether the X.509 library, which did not parse the request before, finds the same names."""
    try:
        with library_errors_as(MalformedRequest, "x509: malformed certificate request"):
            read = x509.load_der_x509_csr(request.der)
            theirs = {(part.oid.dotted_string, _text(part.value)) for part in read.subject}
            extensions = read.extensions
    except MalformedRequest:
        return False
    ours = {(part.oid, part.value) for part in request.subject.attributes}
    if theirs != ours:
        return False
    try:
        value = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return SUBJECT_ALTERNATIVE_NAME not in request.extensions
    return (
        tuple(value.get_values_for_type(x509.DNSName)) == request.dns_names
        and tuple(value.get_values_for_type(x509.IPAddress)) == request.ip_addresses
        and tuple(value.get_values_for_type(x509.RFC822Name)) == request.email_addresses
        and tuple(value.get_values_for_type(x509.UniformResourceIdentifier)) == request.uris
    )


def _hidden_in_extensions(request: SigningRequest, usages: Sequence[str]) -> Iterator[str]:
    for oid, value in request.extension_values.items():
        if oid == _BASIC_CONSTRAINTS:
            if value != _NO_AUTHORITY:
                yield "it asks to be an authority"
        elif oid == _KEY_USAGE:
            if not _bits(value) <= key_usage_bits(usages):
                yield "it asks for a key usage that spec.usages does not have"
        elif oid == _EXTENDED_KEY_USAGE:
            if not _purposes(value) <= set(extended_usages(usages)):
                yield "it asks for an extended key usage that spec.usages does not have"
        elif oid not in (SUBJECT_ALTERNATIVE_NAME, _SUBJECT_KEY_ID):
            yield f"it asks for the extension {oid}, which would not be signed"


def _bits(value: bytes) -> frozenset[int]:
    """The bits of a key usage; all bits if it is malformed."""
    try:
        bits = der.element(value, 0, len(value), der.BIT_STRING)
    except der.NotDer:
        return frozenset(range(_USAGE_BITS))
    content = value[bits.start + 1 : bits.stop]
    return frozenset(
        8 * index + bit
        for index, octet in enumerate(content)
        for bit in range(8)
        if octet & (0x80 >> bit)
    )


def _purposes(value: bytes) -> set[str]:
    try:
        outer = der.element(value, 0, len(value), der.SEQUENCE)
        return {
            der.decode_oid(value[part.start : part.stop])
            for part in der.children(value, outer.start, outer.stop)
        }
    except der.NotDer:
        return {"unreadable"}


def _text(value: str | bytes) -> str | None:
    return value if isinstance(value, str) else None


def _title(oid: str) -> str:
    return "common name" if oid == names.COMMON_NAME else f"value of type {oid}"


def _first_names() -> dict[str, str]:
    """Every usage to the first name of the same bit or OID; the plainer name comes first."""
    plain: dict[object, str] = {0: "digital signature"}
    first_names = {}
    for usage, meaning in {**KEY_USAGES, **EXTENDED_USAGES}.items():
        first_names[usage] = plain.setdefault(meaning, usage)
    return first_names


_CANONICAL = _first_names()
