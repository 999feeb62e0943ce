"""Strict conversion between bytes and objects.

    encode(obj)                                           compact JSON, as stored and sent
    EncodedObject.of(obj)                                 the same, with a reference to the object
    Decoder(ServiceAccount).decode(body, findings=True)   (object, ['unknown field "spec.x"', ...])
    Decoder(ServiceAccount).stored(data)                  for bytes from the store
    convert(value, ServiceAccount), to_builtins(obj)      plain dicts instead of bytes, for patches

Beyond a plain JSON decoder: null means absent, unknown and repeated fields can be reported, and a
body that cannot be decoded raises Undecodable with a message for the client. Types are strict: a
string is no number and a number is no string.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from orchid.wire.codec.bounds import MOST_VALUES, count_check_of, require_few_values
from orchid.wire.codec.field_validation import FieldValidation, Malformed, Pairs, Undecodable
from orchid.wire.codec.json_errors import syntax_fault
from orchid.wire.codec.quick_check import NeedsValidation, quick_check_of
from orchid.wire.schema import Fields, schema_of
from orchid.wire.struct import Wire

__all__ = [
    "Decoder",
    "EncodedObject",
    "Malformed",
    "TypeMeta",
    "Undecodable",
    "body_summary",
    "convert",
    "decoder_of",
    "encode",
    "plain",
    "pretty",
    "repeated_fields",
    "strict_error",
    "to_builtins",
    "type_meta",
]

T = TypeVar("T", bound=Wire)

# --- encoding -------------------------------------------------------------------------------------

_ENCODER = msgspec.json.Encoder(order="deterministic")
_ENCODER_AS_IS = msgspec.json.Encoder()
_LESS, _GREATER, _AMPERSAND, _SEPARATOR_START = b"<>&\xe2"
_HTML_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}


def encode(value: Any) -> bytes:
    """Compact JSON: fields in declared order, map keys sorted, HTML characters escaped."""
    data = _ENCODER.encode(value)
    # These characters occur only inside strings, so they can be replaced anywhere. Searching for an
    # int takes an eighth of the time of searching for a bytes value.
    if _LESS in data or _GREATER in data or _AMPERSAND in data or _SEPARATOR_START in data:
        for sign, escape in _HTML_ESCAPES.items():
            data = data.replace(sign, escape)
    return data


class EncodedObject(bytes):
    """The encoded bytes of an object, with a reference to the object.

    A reader in the same process can use the object without decoding. Bytes from a socket are plain.
    """

    decoded: Any

    @classmethod
    def of(cls, value: Any) -> "EncodedObject":
        made = cls(encode(value))
        made.decoded = value
        return made

    __repr__ = object.__repr__  # shows no bytes: they may hold a secret


def pretty(data: bytes) -> bytes:
    """The same JSON, indented by two spaces."""
    return msgspec.json.format(data, indent=2)


def to_builtins(value: Any) -> Any:
    """The value as dicts, lists, strings and numbers, as its JSON would be decoded."""
    return _PLAIN.decode(_ENCODER.encode(value))


# --- decoding -------------------------------------------------------------------------------------

_PLAIN = msgspec.json.Decoder()
_AT = re.compile(r"(?P<problem>.*) - at `\$(?P<place>.*)`", re.DOTALL)


class Decoder(Generic[T]):
    """Decodes documents of one type. Create it once and reuse it: compiling is expensive."""

    def __init__(self, type_: type[T], schema: Fields | None = None) -> None:
        self.type = type_
        self.schema = schema or schema_of(type_)
        # Decode bytes from the store: no nulls, no unknown fields, no findings.
        self.stored: Callable[[bytes], T] = msgspec.json.Decoder(type_).decode
        self._quick_check = quick_check_of(self.schema)
        self._require_counts = count_check_of(self.schema)

    def decode(
        self, body: bytes, *, yaml: bool = False, findings: bool = True
    ) -> tuple[T, list[str]]:
        """The object in a request, with unknown and repeated fields if `findings`."""
        if yaml:
            return self._decode_yaml(body, findings)
        try:
            value = _PLAIN.decode(body) if len(body) <= MOST_VALUES else plain(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = plain(body)  # raises with the reason
        try:
            typed = msgspec.convert(value, self.type)  # strings are not parsed a second time
            keys = self._quick_check(value)
        except (msgspec.ValidationError, NeedsValidation):
            self._require_counts(value)
            return self._shaped(_with_repeats(body) if findings else value, findings)
        # Nearly every colon belongs to a key. A document that would be encoded to the same bytes
        # repeats no key, because a dict has each key once.
        if (
            findings
            and body.count(_COLON) != keys
            and _ENCODER_AS_IS.encode(value) != body
            and _may_repeat_keys(body, keys)
        ):
            return self._shaped(_with_repeats(body), findings)
        return typed, []

    def convert(self, value: Any, *, findings: bool = False) -> tuple[T, list[str]]:
        """The same from a decoded document; a dict has no repeated keys."""
        try:
            typed = msgspec.convert(value, self.type)
            self._quick_check(value)
        except (msgspec.ValidationError, NeedsValidation):
            self._require_counts(value)
            return self._shaped(value, findings)
        return typed, []

    def _decode_yaml(self, body: bytes, findings: bool) -> tuple[T, list[str]]:
        value, repeated = _load_yaml(body)
        self._require_counts(value)
        typed, found = self._shaped(value, findings, sort_keys=True)
        return typed, [*repeated, *found] if findings else []

    def _shaped(
        self, value: Any, findings: bool, *, sort_keys: bool = False
    ) -> tuple[T, list[str]]:
        shaping = FieldValidation(sort_keys=sort_keys)
        shaped = shaping.shape(self.schema, value)
        try:
            typed = msgspec.convert(shaped, self.type)
        except msgspec.ValidationError as fault:
            raise _refusal(fault) from None
        return typed, shaping.findings if findings else []


_made_once = functools.cache(Decoder)


def decoder_of(type_: type[T]) -> Decoder[T]:
    """The decoder of a type, created once."""
    decoder: Decoder[T] = _made_once(type_)
    return decoder


def convert(value: Any, type_: type[T]) -> T:
    """A typed object from a decoded document, with the rules of `Decoder`."""
    return decoder_of(type_).convert(value)[0]


def plain(body: bytes, most: int = MOST_VALUES) -> Any:
    """Any JSON document as dicts and lists; raises Malformed if it is not JSON."""
    if len(body) > most:
        require_few_values(body, most)
    try:
        return _PLAIN.decode(body)
    except msgspec.ValidationError as fault:
        raise _refusal(fault) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed(syntax_fault(body)) from None


class TypeMeta(Wire):
    """apiVersion and kind of a document."""

    kind: str = ""
    api_version: str = ""


def type_meta(body: bytes, *, yaml: bool = False) -> TypeMeta:
    """apiVersion and kind of a document, ignoring the rest."""
    return decoder_of(TypeMeta).decode(body, yaml=yaml, findings=False)[0]


_SUMMARY_LENGTH = 30


def body_summary(body: bytes) -> str:
    """The beginning of a body that could not be decoded."""
    if not body:
        return "<empty>"
    start, rest = body[:_SUMMARY_LENGTH], " ..." if len(body) > _SUMMARY_LENGTH else ""
    return (start.decode(errors="replace") if body.startswith(b"{") else start.hex()) + rest


def strict_error(findings: list[str]) -> str:
    """All findings as one error, for strict field validation."""
    return f"strict decoding error: {', '.join(_joined_lines(findings))}"


def _joined_lines(findings: list[str]) -> Iterator[str]:
    """Repeated keys of a YAML body as one message, by line."""
    lines = [finding for finding in findings if finding.startswith("line ")]
    if lines:
        yield "yaml: unmarshal errors:" + "".join(f"\n  {line}" for line in lines)
    yield from findings[len(lines) :]


_BLANKS = b" \n\t\r"
_COLON, _BACKSLASH = b":\\"


def _may_repeat_keys(body: bytes, keys: int) -> bool:
    """Whether the text may hold more keys than the decoded document; may wrongly return True.

    The colon of a key follows a quote or a blank, so the number of those is an upper bound of the
    number of keys. JSON inside a string has escaped quotes, which are subtracted unless a second
    backslash makes that uncertain.
    """
    colons = body.count(b'":')
    for blank in _BLANKS:
        if blank in body:
            colons += body.count(bytes((blank, _COLON)))
    if colons == keys:
        return False
    if _BACKSLASH not in body or b'\\\\"' in body:
        return True
    return colons - body.count(b'\\":') != keys


def _pairs(found: list[tuple[str, Any]]) -> Pairs:
    """A Python function, so that the decoder releases the interpreter lock now and then."""
    return Pairs(found)


def _with_repeats(body: bytes) -> Any:
    """The document with repeated keys; the body is valid JSON."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_pairs)
    except RecursionError:
        raise Malformed("exceeded max depth") from None
    except ValueError as fault:
        raise Malformed(str(fault)) from None


def repeated_fields(body: bytes) -> list[str]:
    """The repeated keys of any JSON document, as findings."""
    if body.count(b":") < 2:  # noqa: PLR2004 -- it takes two keys to repeat one
        return []
    shaping = FieldValidation()
    shaping.find_repeated_keys(_with_repeats(body))
    return shaping.findings


def _load_yaml(body: bytes) -> tuple[Any, list[str]]:
    from orchid.wire.codec import yaml_text  # noqa: PLC0415  # most servers never see YAML; it is slow

    try:
        value, repeated = yaml_text.load(body)
    except yaml_text.YamlError as fault:
        raise Malformed(str(fault)) from None
    return value, list(repeated)


def _refusal(fault: msgspec.ValidationError) -> Undecodable:
    found = _AT.fullmatch(str(fault))
    if found is None:
        return Undecodable(_lower_first(str(fault)))
    return Undecodable(f"{found['place']}: {_lower_first(found['problem'])}")


def _lower_first(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].lower() + text[1:]
