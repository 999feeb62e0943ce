"""Bytes to objects and back, strictly.

    encode(obj)                                     compact JSON, as stored and sent
    EncodedObject.of(obj)                           the same, with the object beside it
    Decoder(ServiceAccount).decode(body, findings=True)   (object, ['unknown field "spec.x"', ...])
    Decoder(ServiceAccount).stored(data)            the same for bytes we wrote ourselves
    convert(value, ServiceAccount), to_builtins(obj)      plain dicts instead of bytes, for patches

Decoding keeps three promises that a plain JSON decoder does not: null means absent, every unknown
or repeated field can be told, and whatever cannot be decoded raises Undecodable with a sentence for
the client. It never guesses: a string is no number and a number is no string.
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
from orchid.wire.codec.quick_check import Odd, quick_check_of
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

# --- writing --------------------------------------------------------------------------------------

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
    """Compact JSON: fields in declared order, map keys sorted, safe inside a web page."""
    data = _ENCODER.encode(value)
    # These characters occur only inside strings, so they can be replaced anywhere. Searching for
    # the number of a byte takes an eighth of the time of searching for the byte as bytes.
    if _LESS in data or _GREATER in data or _AMPERSAND in data or _SEPARATOR_START in data:
        for sign, escape in _HTML_ESCAPES.items():
            data = data.replace(sign, escape)
    return data


class EncodedObject(bytes):
    """The bytes of an object, with the object they were made from.

    Inside one process the reader may take the object and need not decode the bytes. What comes over
    a socket is plain bytes.
    """

    decoded: Any

    @classmethod
    def of(cls, value: Any) -> "EncodedObject":
        made = cls(encode(value))
        made.decoded = value
        return made

    __repr__ = object.__repr__  # shows no byte: there may be a secret in it


def pretty(data: bytes) -> bytes:
    """The same JSON with two blanks of indentation."""
    return msgspec.json.format(data, indent=2)


def to_builtins(value: Any) -> Any:
    """The value as its JSON would be read: dicts, lists, strings, numbers."""
    return _PLAIN.decode(_ENCODER.encode(value))


# --- reading --------------------------------------------------------------------------------------

_PLAIN = msgspec.json.Decoder()
_AT = re.compile(r"(?P<problem>.*) - at `\$(?P<place>.*)`", re.DOTALL)


class Decoder(Generic[T]):
    """Reads documents of one type. Make it once, keep it: compiling is the expensive part."""

    def __init__(self, type_: type[T], schema: Fields | None = None) -> None:
        self.type = type_
        self.schema = schema or schema_of(type_)
        # Decode what this server has written: no nulls, nothing unknown, nothing to report.
        self.stored: Callable[[bytes], T] = msgspec.json.Decoder(type_).decode
        self._glance = quick_check_of(self.schema)
        self._require_counts = count_check_of(self.schema)

    def decode(
        self, body: bytes, *, yaml: bool = False, findings: bool = True
    ) -> tuple[T, list[str]]:
        """The object in a request, and the unknown and repeated fields if `findings` are asked."""
        if yaml:
            return self._decode_yaml(body, findings)
        try:
            value = _PLAIN.decode(body) if len(body) <= MOST_VALUES else plain(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = plain(body)  # raises, and says why
        try:
            typed = msgspec.convert(value, self.type)  # strings are not parsed a second time
            keys = self._glance(value)
        except (msgspec.ValidationError, Odd):
            self._require_counts(value)
            return self._shaped(_with_repeats(body) if findings else value, findings)
        # Every key has a colon, and hardly anything else does. What would be written as it came
        # repeats no key: a dict has each of them once.
        if (
            findings
            and body.count(_COLON) != keys
            and _ENCODER_AS_IS.encode(value) != body
            and _may_repeat_keys(body, keys)
        ):
            return self._shaped(_with_repeats(body), findings)
        return typed, []

    def convert(self, value: Any, *, findings: bool = False) -> tuple[T, list[str]]:
        """The same from a decoded document; a dict cannot repeat a key."""
        try:
            typed = msgspec.convert(value, self.type)
            self._glance(value)
        except (msgspec.ValidationError, Odd):
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
    """The decoder of a type, made once."""
    decoder: Decoder[T] = _made_once(type_)
    return decoder


def convert(value: Any, type_: type[T]) -> T:
    """A typed object from a decoded document, by the rules of `Decoder`."""
    return decoder_of(type_).convert(value)[0]


def plain(body: bytes, most: int = MOST_VALUES) -> Any:
    """Any JSON document as dicts and lists; raises Malformed when it is none."""
    if len(body) > most:
        require_few_values(body, most)
    try:
        return _PLAIN.decode(body)
    except msgspec.ValidationError as fault:
        raise _refusal(fault) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed(syntax_fault(body)) from None


class TypeMeta(Wire):
    """What a document says it is."""

    kind: str = ""
    api_version: str = ""


def type_meta(body: bytes, *, yaml: bool = False) -> TypeMeta:
    """What a document says it is, whatever else it holds."""
    return decoder_of(TypeMeta).decode(body, yaml=yaml, findings=False)[0]


_SUMMARY_LENGTH = 30


def body_summary(body: bytes) -> str:
    """The beginning of a body that could not be decoded."""
    if not body:
        return "<empty>"
    start, rest = body[:_SUMMARY_LENGTH], " ..." if len(body) > _SUMMARY_LENGTH else ""
    return (start.decode(errors="replace") if body.startswith(b"{") else start.hex()) + rest


def strict_error(findings: list[str]) -> str:
    """All findings as one refusal, for those who asked for strict field validation."""
    return f"strict decoding error: {', '.join(_joined_lines(findings))}"


def _joined_lines(findings: list[str]) -> Iterator[str]:
    """Repeated keys of a YAML body are told together, by line."""
    lines = [finding for finding in findings if finding.startswith("line ")]
    if lines:
        yield "yaml: unmarshal errors:" + "".join(f"\n  {line}" for line in lines)
    yield from findings[len(lines) :]


_BLANKS = b" \n\t\r"
_COLON, _BACKSLASH = b":\\"


def _may_repeat_keys(body: bytes, keys: int) -> bool:
    """Whether the text might hold more keys than the decoded document; may err towards yes.

    The colon of a key follows a quote or a blank, so counting those is counting at least all keys.
    JSON inside a string has quotes of its own, with a backslash before them; they are taken off
    again unless a second backslash makes that uncertain.
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
    """A function in Python, so that the decoder releases the interpreter lock now and then."""
    return Pairs(found)


def _with_repeats(body: bytes) -> Any:
    """The document with repeated keys kept; the body is known to be JSON."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_pairs)
    except RecursionError:
        raise Malformed("exceeded max depth") from None
    except ValueError as fault:
        raise Malformed(str(fault)) from None


def repeated_fields(body: bytes) -> list[str]:
    """The repeated keys of a JSON document of any form, as findings."""
    if body.count(b":") < 2:  # noqa: PLR2004 -- it takes two keys to repeat one
        return []
    shaping = FieldValidation()
    shaping.look(_with_repeats(body))
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
