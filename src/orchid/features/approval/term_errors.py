"""Errors and warnings for the terms of a policy.

Start with `term_errors` and `term_warnings`. Everything is reported when a policy is written: an
invalid expression with path and reason, a pattern that nothing can match, a list that is too long.
A pattern that matches everything may be intended, so it is only a warning.
"""

import ipaddress
from collections.abc import Iterator
from typing import Final

import msgspec

from orchid.features.approval.case import NAME_LISTS, REQUEST_SAMPLE
from orchid.features.approval.patterns import STAR, matches_everything
from orchid.features.approval.terms import DENY, LEAVE, Allowances, ApprovalPolicySpec
from orchid.kernel.credentials.x509.names import SUBJECT_LISTS, SUBJECT_TEXTS
from orchid.kernel.credentials.x509.usages import ALL_USAGES
from orchid.kernel.expressions.cel import Compiler, ExpressionUnusable, LibraryMissing
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from orchid.kernel.wire.options import seconds_of

MOST_PATTERNS: Final = 256
LONGEST_PATTERN: Final = 1024
MOST_RULES: Final = 32
LONGEST_MESSAGE: Final = 1024
# A request always has these: a policy that omits one allows nothing.
ALWAYS_ASKED: Final = ("usages", "keys", "maxDuration")


def term_errors(spec: ApprovalPolicySpec, path: Path, compiler: Compiler) -> Iterator[FieldError]:
    asked = spec.requesters
    if not (spec.signer_names or asked.users or asked.groups or asked.service_accounts):
        text = "at least one selector: signerNames, requesters.users, .groups or .serviceAccounts"
        yield required(path, text)
    yield from _list_errors(path / "signerNames", spec.signer_names)
    for index, pattern in enumerate(spec.signer_names):
        yield from _signer_errors((path / "signerNames")[index], pattern)
    for field, patterns in msgspec.to_builtins(asked).items():
        yield from _list_errors(path / "requesters" / field, patterns)
    for index, pattern in enumerate(asked.service_accounts):
        if pattern.count("/") != 1 and not matches_everything(pattern):
            at = (path / "requesters" / "serviceAccounts")[index]
            yield invalid(at, pattern, "must be of the form namespace/name")
    yield from _allowance_errors(spec.allows, path / "allows")
    yield from _rule_errors(spec, path / "rules", compiler)
    if spec.otherwise not in ("", LEAVE, DENY):
        yield unsupported(path / "otherwise", spec.otherwise, (LEAVE, DENY))


def term_warnings(spec: ApprovalPolicySpec, path: Path) -> Iterator[str]:
    for at, patterns in _all_patterns(spec, path):
        for index, pattern in enumerate(patterns):
            if matches_everything(pattern):
                yield f"{at[index]}: {pattern!r} matches everything"
    plain = msgspec.to_builtins(spec.allows)
    if plain or spec.otherwise != DENY:
        for name in ALWAYS_ASKED:
            if name not in plain:
                yield f"{path / 'allows' / name}: missing, so that the policy allows no request"


def _all_patterns(spec: ApprovalPolicySpec, path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield path / "signerNames", spec.signer_names
    for field, patterns in msgspec.to_builtins(spec.requesters).items():
        yield path / "requesters" / field, patterns
    plain = msgspec.to_builtins(spec.allows)
    for name in (*SUBJECT_LISTS, *NAME_LISTS, "keys"):
        yield path / "allows" / name, plain.get(name, ())
    for name in SUBJECT_TEXTS:
        if name in plain:
            yield path / "allows" / name, (plain[name],)


def _list_errors(path: Path, patterns: tuple[str, ...]) -> Iterator[FieldError]:
    if len(patterns) > MOST_PATTERNS:
        yield too_many(path, len(patterns), MOST_PATTERNS)
        return
    for index, pattern in enumerate(patterns):
        yield from _pattern_errors(path[index], pattern)


def _pattern_errors(path: Path, pattern: str) -> Iterator[FieldError]:
    if not pattern:
        yield required(path)
    elif len(pattern) > LONGEST_PATTERN:
        yield too_long(path, LONGEST_PATTERN, "character")
    elif not pattern.isprintable():
        yield invalid(path, pattern, "must be printable")


def _signer_errors(path: Path, pattern: str) -> Iterator[FieldError]:
    if matches_everything(pattern) or not pattern:
        return
    domain, slash, name = pattern.partition("/")
    if not slash or not domain or not name or "/" in name:
        text = "must be of the form example.com/signer-name, in which * matches any characters"
        yield invalid(path, pattern, text)


def _allowance_errors(allows: Allowances, path: Path) -> Iterator[FieldError]:
    plain = msgspec.to_builtins(allows)
    for name in (*SUBJECT_LISTS, *NAME_LISTS, "usages", "keys"):
        yield from _list_errors(path / name, plain.get(name, ()))
    for name in SUBJECT_TEXTS:
        if name in plain:
            yield from _pattern_errors(path / name, plain[name])
    for index, usage in enumerate(allows.usages):
        if usage not in ALL_USAGES:
            yield unsupported((path / "usages")[index], usage, ALL_USAGES)
    for index, address in enumerate(allows.ip_addresses):
        yield from _address_errors((path / "ipAddresses")[index], address)
    longest = _duration(allows.max_duration)
    shortest = _duration(allows.min_duration)
    for name, text, seconds in (
        ("maxDuration", allows.max_duration, longest),
        ("minDuration", allows.min_duration, shortest),
    ):
        if text and (seconds is None or seconds <= 0):
            yield invalid(path / name, text, "must be a duration above zero, like 720h or 90m")
    if longest is not None and shortest is not None and shortest > longest:
        yield invalid(path / "minDuration", allows.min_duration, "must not be above maxDuration")


def _address_errors(path: Path, address: str) -> Iterator[FieldError]:
    if STAR in address or not address:
        return
    try:
        ipaddress.ip_network(address)
    except ValueError:
        text = "must be an address, a network like 10.0.0.0/8 without host bits, or a pattern"
        yield invalid(path, address, text)


def _rule_errors(spec: ApprovalPolicySpec, path: Path, compiler: Compiler) -> Iterator[FieldError]:
    if len(spec.rules) > MOST_RULES:
        yield too_many(path, len(spec.rules), MOST_RULES)
        return
    for index, rule in enumerate(spec.rules):
        at = path[index] / "expression"
        if not rule.expression:
            yield required(at)
            continue
        try:
            compiler.signing_condition(rule.expression, REQUEST_SAMPLE)
        except (ExpressionUnusable, LibraryMissing) as unusable:
            yield invalid(at, rule.expression, str(unusable))
        if len(rule.message) > LONGEST_MESSAGE:
            yield too_long(path[index] / "message", LONGEST_MESSAGE, "character")


def _duration(text: str) -> float | None:
    try:
        return seconds_of(text) if text else None
    except ValueError:
        return None
