"""JSON written in odd but legal ways, and a reading of it that does not use the strict types."""

import json
import random
from typing import Any

from orchid.kernel.wire.codec import documents
from orchid.kernel.wire.codec.documents import Decoder
from orchid.kernel.wire.codec.field_validation import Undecodable

TEXTS = (
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.5Z",
    "2026-01-01T00:00:00.123456Z",
    "2026-01-01T00:00:00.1234567Z",
    "2026-01-01T00:00:00+00:00",
    "2026-01-01T01:00:00,5+01:00",
    "2026-02-30T00:00:00Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:00:60Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "2026-01-01t00:00:00z",
    "\u0662026-01-01T00:00:00Z",
    "",
    "aGk=",
    "aGk",
    "aGk=\n",
    "a-_=",
    "aGl=",
    "1",
    'a":b',
    'a\\":b',
    '{"a":1,"a":2}',
    "\u2028<&>\x7f",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
)
NUMBERS = ("0", "-0", "1.0", "1e0", "1E+2", "-1", "0.5", "2147483647", "2147483648", "-2147483649")
LARGE = ("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e400", "1e15")
OTHERS = (
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[null]",
    '{"a":null}',
    '{"a":{"a":1,"a":2}}',
    "[[]]",
)
BLANKS = ("", "", "", " ", "\n", "\t\r\n ")


def spelled(value: Any, chance: random.Random, oddity: float) -> str:
    """A document as JSON, with odd spellings here and there."""
    if chance.random() < oddity:
        return chance.choice((*NUMBERS, *LARGE, *OTHERS, *map(json.dumps, TEXTS)))
    if isinstance(value, dict):
        members = [(key, spelled(item, chance, oddity)) for key, item in value.items()]
        if members and chance.random() < oddity:
            members.append((chance.choice(members)[0], spelled(None, chance, 1)))
        if chance.random() < oddity:
            members.append((chance.choice(("unknown", "Kind", "kind ", "")), "1"))
        chance.shuffle(members)
        separator = f",{chance.choice(BLANKS)}"
        return "{" + separator.join(_member(*member, chance, oddity) for member in members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(spelled(item, chance, oddity) for item in value) + "]"
    return _text(value, chance, oddity) if isinstance(value, str) else json.dumps(value)


def _member(key: str, value: str, chance: random.Random, oddity: float) -> str:
    blanks = [chance.choice(BLANKS) for _ in range(3)]
    return f"{blanks[0]}{_text(key, chance, oddity)}{blanks[1]}:{blanks[2]}{value}"


def _text(text: str, chance: random.Random, oddity: float) -> str:
    if text and chance.random() < oddity and ord(text[0]) < 0x10000:
        return f'"\\u{ord(text[0]):04x}{json.dumps(text[1:])[1:]}'
    return json.dumps(text, ensure_ascii=chance.random() < oddity)


def read(decoder: Decoder[Any], body: bytes) -> Any:
    """The result of the decoder for a body, with its strict type."""
    try:
        found, findings = decoder.decode(body)
    except Undecodable as refusal:
        return str(refusal)
    return documents.encode(found), findings


def read_thoroughly(decoder: Decoder[Any], body: bytes) -> Any:
    """The result of the full validation for a body."""
    try:
        decoder._require_counts(documents.plain(body))
        found, findings = decoder._shaped(documents._with_repeats(body), findings=True)
    except Undecodable as refusal:
        return str(refusal)
    return documents.encode(found), findings
