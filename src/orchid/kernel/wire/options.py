"""The query of a request, decoded by the rules of the API.

`parse_query` splits it; `boolean`, `integer` and `duration` decode a value and raise BadRequest
with the message of Kubernetes; the `..._errors` functions validate options and yield field errors.
The verbs decide which options they have and what these mean.
"""

import functools
import re
import urllib.parse
from collections.abc import Iterator, Sequence

from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.fields import FieldError, Path, invalid, too_long, unsupported
from orchid.kernel.wire.text import quote

FIELD_MANAGER = Path() / "fieldManager"
DRY_RUN = Path() / "dryRun"
FIELD_VALIDATION = Path() / "fieldValidation"
PROPAGATION_POLICY = Path() / "propagationPolicy"

MANAGER_LENGTH = 128
UNKNOWN_MANAGER = "unknown"
FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan")

_INT64 = range(-(2**63), 2**63)
_MOST_DIGITS = len(str(2**63))
_DECIMAL = re.compile(r"[+-]?[0-9]+").fullmatch
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search


def parse_query(raw: str) -> dict[str, list[str]]:
    """The values of each parameter, in order; an invalid pair is skipped."""
    query: dict[str, list[str]] = {}
    if not raw:
        return query
    for pair in raw.split("&"):
        # A semicolon was once a separator too; accepting it could smuggle a pair past a proxy.
        if not pair or ";" in pair:
            continue
        name, _, value = pair.partition("=")
        if "%" in pair or "+" in pair:
            if _BAD_ESCAPE(pair):
                continue
            name, value = urllib.parse.unquote_plus(name), urllib.parse.unquote_plus(value)
        query.setdefault(name, []).append(value)
    return query


def boolean(text: str) -> bool:
    """`0` and `false` are false; everything else, also no value, is true."""
    return text != "0" and text.lower() != "false"


def integer(text: str) -> int:
    """A 64-bit decimal number."""
    try:
        return int64(text)
    except ValueError as fault:
        raise BadRequest(f"strconv.ParseInt: parsing {quote(text)}: {fault}") from None


def int64(text: str) -> int:
    """The same for callers with error messages of their own: raises ValueError."""
    if not _DECIMAL(text):
        raise ValueError("invalid syntax")
    digits = text.lstrip("+-").lstrip("0") or "0"
    # More digits cannot fit, and the interpreter refuses to convert very many.
    number = int(digits) if len(digits) <= _MOST_DIGITS else 2**64
    if text.startswith("-"):
        number = -number
    if number not in _INT64:
        raise ValueError("value out of range")
    return number


_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # the micro sign
    "\u03bcs": 10**3,  # the Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART = re.compile(r"(?P<whole>[0-9]*)(?P<rest>\.[0-9]*)?(?P<unit>[^0-9.]*)")
_LONGEST_NUMBER = 19  # digits; more than this is beyond 292 years in any unit


def duration(text: str) -> float:
    """Seconds in a duration like `1m30s`, for the `timeout` parameter."""
    try:
        return seconds_of(text)
    except ValueError as fault:
        raise BadRequest(f"invalid timeout specified in the request URL - time: {fault}") from None


@functools.lru_cache(maxsize=64)  # a client sends the same time-out in each request
def seconds_of(text: str) -> float:
    """Seconds in a duration like `1m30s`; raises ValueError."""
    negative, rest = text.startswith("-"), text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    if not rest:
        raise ValueError(f"invalid duration {_byte_quote(text)}")
    total, position = 0.0, 0
    while position < len(rest):
        part = _DURATION_PART.match(rest, position)
        assert part is not None, "the pattern matches the empty text"
        total += _duration_part(part, text)
        position = part.end()
    if total >= 2**63 / 10**9:
        raise ValueError(f"invalid duration {_byte_quote(text)}")
    return -total if negative else total


def _duration_part(part: re.Match[str], text: str) -> float:
    whole, fraction, unit = part["whole"], (part["rest"] or "")[1:], part["unit"]
    if not whole and not fraction:
        raise ValueError(f"invalid duration {_byte_quote(text)}")
    if not unit:
        raise ValueError(f"missing unit in duration {_byte_quote(text)}")
    if unit not in _NANOSECONDS:
        raise ValueError(f"unknown unit {_byte_quote(unit)} in duration {_byte_quote(text)}")
    if len(whole.lstrip("0")) > _LONGEST_NUMBER:
        raise ValueError(f"invalid duration {_byte_quote(text)}")
    number = float(f"{whole or 0}.{fraction[:_LONGEST_NUMBER] or 0}")
    return number * _NANOSECONDS[unit] / 10**9


def _byte_quote(text: str) -> str:
    """Quoted as durations are: non-ASCII text is escaped byte by byte."""
    signs = []
    for byte in text.encode("utf-8", "surrogatepass"):
        if byte in b'"\\':
            signs.append("\\" + chr(byte))
        else:
            sign = chr(byte)
            signs.append(sign if sign.isascii() and sign.isprintable() else f"\\x{byte:02x}")
    return '"' + "".join(signs) + '"'


def manager_errors(path: Path, name: str) -> Iterator[FieldError]:
    """Validate a field manager's name: short and printable."""
    if len(name) * 4 > MANAGER_LENGTH and len(name.encode()) > MANAGER_LENGTH:
        # A megabyte of invalid characters must not yield one error each.
        yield too_long(path, MANAGER_LENGTH)
        name = name[:MANAGER_LENGTH]
    if name.isprintable():
        return
    position = 0
    for character in name:
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {position})"
            yield invalid(path, name, detail)
        position += len(character.encode())


def default_manager(user_agent: str) -> str:
    """The default manager: the program in the User-Agent."""
    program = user_agent.partition("/")[0]
    if not (program.isascii() and program.isprintable()):
        program = "".join(filter(str.isprintable, program))
    if len(program) * 4 > MANAGER_LENGTH:
        program = program.encode()[:MANAGER_LENGTH].decode(errors="ignore")
    return program or UNKNOWN_MANAGER


def dry_run_errors(values: Sequence[str]) -> Iterator[FieldError]:
    """Validate dryRun: only `All`, any number of times."""
    if any(value != "All" for value in values):
        yield unsupported(DRY_RUN, list(values), ("All",))


def field_validation_errors(value: str) -> Iterator[FieldError]:
    if value not in FIELD_VALIDATIONS:
        yield unsupported(FIELD_VALIDATION, value, FIELD_VALIDATIONS)


def propagation_policy_errors(
    policy: str | None, orphan_dependents: bool | None
) -> Iterator[FieldError]:
    """Validate the propagation: at most one of the two options, with a supported value."""
    if policy is None:
        return
    if orphan_dependents is not None:
        yield invalid(
            PROPAGATION_POLICY,
            policy,
            "orphanDependents and deletionPropagation cannot be both set",
        )
    if policy not in PROPAGATION_POLICIES:
        yield unsupported(PROPAGATION_POLICY, policy, (*PROPAGATION_POLICIES, "nil"))
