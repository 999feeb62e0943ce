"""Subjects and alternative names: parsed exactly as sent, encoded in one canonical form.

`read_subject` parses the DER of a Name with every attribute in order: several values in one
relative name, every string type, any length. A value that is invalid for its string type is an
error. `DistinguishedName.encode` encodes the ten attributes that a certificate of ours may have,
always in the same order and encoding, and drops the others.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from orchid.kernel.credentials.x509 import der

COUNTRY = "2.5.4.6"
PROVINCE = "2.5.4.8"
LOCALITY = "2.5.4.7"
STREET = "2.5.4.9"
POSTAL_CODE = "2.5.4.17"
ORGANIZATION = "2.5.4.10"
ORGANIZATIONAL_UNIT = "2.5.4.11"
COMMON_NAME = "2.5.4.3"
SERIAL_NUMBER = "2.5.4.5"
USER_UID = "1.3.6.1.4.1.57683.2"
# Parts of a subject, by their names in policies, expressions and authorities.
SUBJECT_LISTS = {
    "organizations": ORGANIZATION,
    "organizationalUnits": ORGANIZATIONAL_UNIT,
    "countries": COUNTRY,
    "provinces": PROVINCE,
    "localities": LOCALITY,
    "streetAddresses": STREET,
    "postalCodes": POSTAL_CODE,
}
SUBJECT_TEXTS = {"commonName": COMMON_NAME, "serialNumber": SERIAL_NUMBER}
SUBJECT_PARTS = {**SUBJECT_TEXTS, **SUBJECT_LISTS}

# Limit of attributes and of alternative names.
MAX_NAMES = 1024

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_WRITTEN = (
    COUNTRY,
    PROVINCE,
    LOCALITY,
    STREET,
    POSTAL_CODE,
    ORGANIZATION,
    ORGANIZATIONAL_UNIT,
    COMMON_NAME,
    SERIAL_NUMBER,
    USER_UID,
)
# Short names of RFC 4514 section 3; other attributes use their OIDs.
_SHORT = {
    COMMON_NAME: "CN",
    LOCALITY: "L",
    PROVINCE: "ST",
    ORGANIZATION: "O",
    ORGANIZATIONAL_UNIT: "OU",
    COUNTRY: "C",
    STREET: "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# A value that RFC 4514 section 2.4 does not escape.
_PLAIN = re.compile(r'(?![ #])[^\\"+,;<>\x00]*+(?<! )')
# Common identifiers, decoded once.
_COMMON_OIDS = {der.encode_oid(oid)[2:]: oid for oid in _WRITTEN}

_UTF8 = 0x0C
_PRINTABLE = 0x13
_STRINGS = {
    _UTF8: ("utf-8", "UTF-8 string"),
    0x12: ("ascii", "NumericString"),
    _PRINTABLE: ("ascii", "PrintableString"),
    0x14: ("latin-1", "TeletexString"),  # as all parsers do
    0x16: ("ascii", "IA5String"),
    0x1A: ("ascii", "VisibleString"),
    0x1C: ("utf-32-be", "UniversalString"),
    0x1E: ("utf-16-be", "BMPString"),
}
_INVISIBLE = ("Cc", "Cf", "Cs")  # control, format, half surrogate
_PRINTABLE_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 '()+,-./:=?"
)


class BadString(der.NotDer):
    """A part of a name that is invalid for its string type."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a subject; the value is None if it is not a string."""

    oid: str
    value: str | None
    # in the same relative name as the one before
    joined: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class DistinguishedName:
    """A distinguished name, flattened, in its original order."""

    attributes: tuple[Attribute, ...] = ()
    common_name: str = field(init=False, default="")
    organizations: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        organizations = []
        for attribute in self.attributes:
            if attribute.value is None:
                continue
            if attribute.oid == ORGANIZATION:
                organizations.append(attribute.value)
            elif attribute.oid == COMMON_NAME:
                # The last of several common names counts, as in Kubernetes.
                object.__setattr__(self, "common_name", attribute.value)
        object.__setattr__(self, "organizations", tuple(organizations))

    def values(self, oid: str) -> tuple[str, ...]:
        """All string values of one attribute type."""
        return tuple(a.value for a in self.attributes if a.oid == oid and a.value is not None)

    @property
    def text(self) -> str:
        """The RFC 4514 form; empty if a value needs escaping or is no string."""
        relative: list[str] = []
        for attribute in self.attributes:
            if attribute.value is None or not _PLAIN.fullmatch(attribute.value):
                return ""
            part = f"{_SHORT.get(attribute.oid, attribute.oid)}={attribute.value}"
            if attribute.joined:
                relative[-1] += f"+{part}"
            else:
                relative.append(part)
        return ",".join(reversed(relative))

    @property
    def escaped_text(self) -> str:
        """The RFC 4514 form with escapes; `#` means a value that is no string."""
        parts = [
            f"{_SHORT.get(each.oid, each.oid)}={'#' if each.value is None else _escape(each.value)}"
            for each in self.attributes
        ]
        return ",".join(reversed(parts))

    def encode(self) -> bytes:
        """The permitted attributes as a DER Name."""
        return der.encode(der.SEQUENCE, *[_relative_name(*each) for each in self._written()])

    def permitted(self) -> "DistinguishedName":
        """The attributes that a requester may choose. The uid of a user is not one of them."""
        kept = [
            Attribute(oid, value)
            for oid, values in self._written()
            if oid != USER_UID
            for value in sorted(values)
        ]
        return DistinguishedName(tuple(kept))

    def _written(self) -> list[tuple[str, set[str]]]:
        """The encoded attributes in order, each with its values."""
        values_of: dict[str, set[str]] = {}
        for attribute in self.attributes:
            if attribute.value:
                values_of.setdefault(attribute.oid, set()).add(attribute.value)
        if COMMON_NAME in values_of:
            values_of[COMMON_NAME] = {self.common_name} - {""}
        return [(oid, values) for oid in _WRITTEN if (values := values_of.get(oid))]


def _escape(value: str) -> str:
    """RFC 4514 section 2.4."""
    value = re.sub(r'([\\"+,;<>])', r"\\\1", value).replace("\0", r"\00")
    value = f"\\{value}" if value.startswith((" ", "#")) else value
    return f"{value[:-1]}\\ " if len(value) > 1 and value.endswith(" ") else value


class Named(Protocol):
    """The names that profiles check: of a request, or of a certificate to be signed."""

    @property
    def subject(self) -> DistinguishedName: ...
    @property
    def dns_names(self) -> tuple[str, ...]: ...
    @property
    def ip_addresses(self) -> tuple[IPAddress, ...]: ...
    @property
    def email_addresses(self) -> tuple[str, ...]: ...
    @property
    def uris(self) -> tuple[str, ...]: ...


def subject(common_name: str, organizations: Iterable[str] = ()) -> DistinguishedName:
    """A subject with organizations as groups and a common name as the user."""
    groups = tuple(Attribute(ORGANIZATION, value) for value in organizations)
    return DistinguishedName((*groups, Attribute(COMMON_NAME, common_name)))


def account_subject(user: str, groups: Iterable[str], uid: str) -> DistinguishedName:
    """The subject of a certificate that is bound to an account by its uid."""
    known = subject(user, groups).attributes
    return DistinguishedName((*known, Attribute(USER_UID, uid)))


def read_subject(data: bytes, name: der.Element) -> DistinguishedName:
    """Parse a DER Name; raises der.NotDer."""
    attributes: list[Attribute] = []
    for relative in der.children(data, name.start, name.stop):
        if relative.tag != der.SET:
            raise der.NotDer("relative name is not a set")
        first = len(attributes)
        for pair in der.children(data, relative.start, relative.stop):
            if len(attributes) == MAX_NAMES:
                raise der.NotDer("too many attributes in a name")
            attributes.append(_read_attribute(data, pair, joined=len(attributes) > first))
    return DistinguishedName(tuple(attributes))


def has_control_characters(value: str) -> bool:
    """Whether a name has NUL, other control or invisible formatting characters."""
    if value.isascii():
        return not value.isprintable()
    from unicodedata import category  # noqa: PLC0415 -- half a megabyte, and most names are ASCII

    return any(category(character) in _INVISIBLE for character in value)


def reserved_among(organizations: Collection[str], reserved: Collection[str]) -> str | None:
    """The first reserved group that an organization could be mistaken for.

    Compared without control characters, surrounding blanks and compatibility forms, so that a
    trailing NUL or wide letters are refused as the group they imitate.
    """
    if not organizations:
        return None
    plain = {_skeleton(name): name for name in reserved}
    for organization in organizations:
        if (reserved_name := plain.get(_skeleton(organization))) is not None:
            return reserved_name
    return None


def _skeleton(value: str) -> str:
    if value.isascii() and value.isprintable():
        return value.strip().casefold()
    from unicodedata import category, normalize  # noqa: PLC0415 -- as above

    visible = "".join(c for c in value if category(c) not in _INVISIBLE)
    return normalize("NFKC", visible).strip().casefold()


def _read_attribute(data: bytes, pair: der.Element, *, joined: bool) -> Attribute:
    if pair.tag != der.SEQUENCE:
        raise der.NotDer("attribute is not a sequence")
    oid = der.element(data, pair.start, pair.stop, der.OID)
    value = der.element(data, oid.stop, pair.stop)
    if value.stop != pair.stop:
        raise der.NotDer("attribute has trailing data")
    content = data[oid.start : oid.stop]
    dotted = _COMMON_OIDS.get(content) or der.decode_oid(content)
    return Attribute(dotted, _read_string(value.tag, data[value.start : value.stop]), joined)


def _read_string(tag: int, content: bytes) -> str | None:
    if tag not in _STRINGS:
        return None
    codec, name = _STRINGS[tag]
    try:
        return content.decode(codec)
    except UnicodeDecodeError:
        raise BadString(f"invalid attribute value: invalid {name}") from None


def _relative_name(oid: str, values: set[str]) -> bytes:
    name = der.encode_oid(oid)
    parts = [der.encode(der.SEQUENCE, name, _encode_string(value)) for value in values]
    # DER sorts a SET OF by encoding.
    return der.encode(der.SET, *sorted(parts))


def _encode_string(value: str) -> bytes:
    tag = _PRINTABLE if _PRINTABLE_CHARACTERS.issuperset(value) else _UTF8
    return der.encode(tag, value.encode())
