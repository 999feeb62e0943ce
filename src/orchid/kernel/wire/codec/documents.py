"""Strict conversion between bytes and objects.

    encode(obj)                                           compact JSON, as stored and sent
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

from orchid.kernel.wire.codec.bounds import MOST_VALUES, count_check_of, keys_in, require_few_values
from orchid.kernel.wire.codec.field_validation import FieldValidation, Malformed, Pairs, Undecodable
from orchid.kernel.wire.codec.json_errors import syntax_fault
from orchid.kernel.wire.codec.strict_types import decode_part, encode_part, strict_type_of
from orchid.kernel.wire.schema import Fields, schema_of
from orchid.kernel.wire.struct import Wire

__all__ = [
    "Decoder",
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
_STRICT_ENCODER = msgspec.json.Encoder(enc_hook=encode_part)
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


def pretty(data: bytes) -> bytes:
    """The same JSON, indented by two spaces."""
    return msgspec.json.format(data, indent=2)


def to_builtins(value: Any) -> Any:
    """The value as dicts, lists, strings and numbers, as its JSON would be decoded."""
    return _PLAIN.decode(_ENCODER.encode(value))


# --- decoding -------------------------------------------------------------------------------------

_PLAIN = msgspec.json.Decoder()
_AT = re.compile(r"(?P<problem>.*) - at `\$(?P<path>.*)`", re.DOTALL)


class Decoder(Generic[T]):
    """Decodes documents of one type. Create it once and reuse it: compiling is expensive."""

    def __init__(self, type_: type[T], schema: Fields | None = None) -> None:
        self.type = type_
        self.schema = schema or schema_of(type_)
        # Decode bytes from the store: no nulls, no unknown fields, no findings.
        self.stored: Callable[[bytes], T] = msgspec.json.Decoder(type_).decode
        self._require_counts = count_check_of(self.schema)

    @functools.cached_property
    def _strict(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(strict_type_of(self.schema), dec_hook=decode_part)

    def decode(
        self, body: bytes, *, yaml: bool = False, findings: bool = True
    ) -> tuple[T, list[str]]:
        """The object in a request, with unknown and repeated fields if `findings`."""
        if yaml:
            return self._decode_yaml(body, findings)
        if len(body) > MOST_VALUES:
            require_few_values(body)
        try:
            strict = self._strict.decode(body)
            typed = self.stored(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._require_counts(plain(body))  # raises with the reason if it is no JSON
            return self._shaped(_with_repeats(body) if findings else plain(body), findings)
        if findings and _repeats_keys(body, _STRICT_ENCODER.encode(strict)):
            return self._shaped(_with_repeats(body), findings)
        return typed, []

    def convert(self, value: Any, *, findings: bool = False) -> tuple[T, list[str]]:
        """The same from a decoded document; a dict cannot repeat a key."""
        try:
            msgspec.convert(value, self._strict.type, dec_hook=decode_part)
            return msgspec.convert(value, self.type), []
        except msgspec.ValidationError:
            self._require_counts(value)
            return self._shaped(value, findings)

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


_BACKSLASH = b"\\"[0]


def _repeats_keys(body: bytes, written: bytes) -> bool:
    """Whether a JSON text repeats a key; `written` is its value, encoded again.

    The second value of a repeated key replaces the first, so `written` has fewer keys. Without
    escapes all strings are the same in both texts, so that colons can be counted instead.
    """
    if _BACKSLASH in body:
        return keys_in(body) != keys_in(written)
    # Removing takes a third of the time of counting.
    colons = len(body) - len(body.replace(b":", b""))
    return colons != len(written) - len(written.replace(b":", b""))


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
    from orchid.kernel.wire.codec import yaml_text  # noqa: PLC0415  # most servers never see YAML; it is slow

    try:
        value, repeated = yaml_text.load(body)
    except yaml_text.YamlError as fault:
        raise Malformed(str(fault)) from None
    return value, list(repeated)


def _refusal(fault: msgspec.ValidationError) -> Undecodable:
    found = _AT.fullmatch(str(fault))
    if found is None:
        return Undecodable(_lower_first(str(fault)))
    return Undecodable(f"{found['path']}: {_lower_first(found['problem'])}")


def _lower_first(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].lower() + text[1:]
