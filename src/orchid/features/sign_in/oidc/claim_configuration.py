"""The claim mappings and rules of an AuthenticationConfiguration.

`ClaimSettings` validates that part of the file (`errors`) and then converts it. The validation
compiles expressions, so that their errors are reported at start, with the path. configuration.py
parses the rest of the file.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from orchid.kernel.access.impersonation.extra_keys import key_errors
from orchid.kernel.expressions.cel import (
    CLAIMS,
    Compiler,
    Expression,
    ExpressionUnusable,
    LibraryMissing,
)
from orchid.kernel.wire.fields import FieldError, Path, duplicate, invalid, required
from orchid.kernel.wire.naming import Naming

LONGEST_SHOWN = 256
BOTH = "claim and expression can't both be set"
NEITHER = "claim or expression is required"
WITH_CLAIM = "may not be specified when claim is set"
WITH_EXPRESSION = "may not be specified when expression is set"
UNVERIFIED_EMAIL = (
    "claims.email_verified must be used in claimMappings.username.expression or "
    "claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when "
    "claims.email is used in claimMappings.username.expression"
)


class ClaimMapping(msgspec.Struct, frozen=True):
    """A claim, and the prefix of its values."""

    claim: str
    prefix: str = ""


class Rule(msgspec.Struct, frozen=True):
    """A condition that must hold, and the message if it does not."""

    expression: Expression
    message: str = ""


ClaimOrExpression = ClaimMapping | Expression


# The file as written.


class Sent(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A part of the file; an unknown member is an error."""


class SentRule(Sent, frozen=True):
    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


class SentMapping(Sent, frozen=True):
    claim: str = ""
    prefix: str | None = None
    expression: str = ""


class SentUidMapping(Sent, frozen=True):
    claim: str = ""
    expression: str = ""


class SentExtra(Sent, frozen=True):
    key: str = ""
    value_expression: str = ""


class SentMappings(Sent, frozen=True):
    username: SentMapping = SentMapping()
    groups: SentMapping = SentMapping()
    uid: SentUidMapping = SentUidMapping()
    extra: tuple[SentExtra, ...] = ()


class SentUserRule(Sent, frozen=True):
    expression: str = ""
    message: str = ""


class ClaimSettings:
    """Validates mappings and rules, and converts them. One for all issuers of a file."""

    def __init__(self, naming: Naming) -> None:
        self._compiler = Compiler()
        self._reserved = sorted({naming.group_domain, naming.domain, naming.user_extra_domain})

    def mapping(self, sent: SentMapping | SentUidMapping) -> ClaimOrExpression | None:
        if sent.expression:
            return self._compiler.over_claims(sent.expression)
        prefix = sent.prefix if isinstance(sent, SentMapping) else None
        return ClaimMapping(sent.claim, prefix or "") if sent.claim else None

    def extra_mappings(self, sent: Iterable[SentExtra]) -> tuple[tuple[str, Expression], ...]:
        compiled = self._compiler.over_claims
        return tuple((one.key, compiled(one.value_expression)) for one in sent)

    def claim_rules(self, sent: Iterable[SentRule]) -> tuple[Rule, ...]:
        compiled = self._compiler.claims_condition
        return tuple(Rule(compiled(one.expression), one.message) for one in sent if one.expression)

    def user_rules(self, sent: Iterable[SentUserRule]) -> tuple[Rule, ...]:
        compiled = self._compiler.user_condition
        return tuple(Rule(compiled(one.expression), one.message) for one in sent)

    def errors(
        self,
        path: Path,
        rules: tuple[SentRule, ...],
        mappings: SentMappings,
        user_rules: tuple[SentUserRule, ...],
    ) -> Iterator[FieldError]:
        """Errors; raises LibraryMissing at the first expression if the library is not installed."""
        yield from self._rule_errors(path / "claimValidationRules", rules)
        at = path / "claimMappings"
        yield from self._mapping_errors(at / "username", mappings.username, needed=True)
        yield from self._mapping_errors(at / "groups", mappings.groups, needed=False)
        yield from self._uid_errors(at / "uid", mappings.uid)
        yield from self._extra_errors(at / "extra", mappings.extra)
        yield from self._email_errors(at / "username" / "expression", mappings, rules)
        yield from self._user_rule_errors(path / "userValidationRules", user_rules)

    def _rule_errors(self, path: Path, rules: tuple[SentRule, ...]) -> Iterator[FieldError]:
        claims: set[str] = set()
        expressions: set[str] = set()
        for index, rule in enumerate(rules):
            at = path[index]
            if rule.claim and rule.expression:
                yield invalid(at, rule.claim, BOTH)
            elif rule.claim:
                if rule.message:
                    yield invalid(
                        at / "message", rule.message, "may not be specified when claim is set"
                    )
                if rule.claim in claims:
                    yield duplicate(at / "claim", rule.claim)
                claims.add(rule.claim)
            elif rule.expression:
                if rule.required_value:
                    yield invalid(at / "requiredValue", rule.required_value, WITH_EXPRESSION)
                yield from self._condition_errors(
                    at / "expression", rule.expression, expressions, self._compiler.claims_condition
                )
            else:
                yield required(at, NEITHER)

    def _user_rule_errors(
        self, path: Path, rules: tuple[SentUserRule, ...]
    ) -> Iterator[FieldError]:
        seen: set[str] = set()
        for index, rule in enumerate(rules):
            at = path[index] / "expression"
            if not rule.expression:
                yield required(at)
                continue
            compiled = self._compiler.user_condition
            yield from self._condition_errors(at, rule.expression, seen, compiled)

    def _condition_errors(
        self, path: Path, source: str, seen: set[str], compiled: Callable[[str], Expression]
    ) -> Iterator[FieldError]:
        if source in seen:
            yield duplicate(path, _shown(source))
            return
        seen.add(source)
        yield from _expression_errors(path, source, compiled)

    def _mapping_errors(
        self, path: Path, sent: SentMapping, *, needed: bool
    ) -> Iterator[FieldError]:
        if sent.claim and sent.expression:
            yield invalid(path, "", BOTH)
        elif sent.expression:
            if sent.prefix is not None:
                yield invalid(path / "prefix", sent.prefix, WITH_EXPRESSION)
            yield from self._claims_errors(path / "expression", sent.expression)
        elif sent.claim and sent.prefix is None:
            text = "prefix is required when claim is set, though it may be empty"
            yield required(path / "prefix", text)
        elif not sent.claim and (needed or sent.prefix):
            yield required(path, NEITHER)

    def _uid_errors(self, path: Path, sent: SentUidMapping) -> Iterator[FieldError]:
        if sent.claim and sent.expression:
            yield invalid(path, "", BOTH)
        elif sent.expression:
            yield from self._claims_errors(path / "expression", sent.expression)

    def _extra_errors(self, path: Path, extra: tuple[SentExtra, ...]) -> Iterator[FieldError]:
        seen: set[str] = set()
        for index, sent in enumerate(extra):
            at = path[index]
            yield from self._key_errors(at / "key", sent.key)
            if sent.key in seen:
                yield duplicate(at / "key", sent.key)
                continue
            seen.add(sent.key)
            if sent.value_expression:
                yield from self._claims_errors(at / "valueExpression", sent.value_expression)
            else:
                yield required(at / "valueExpression")

    def _key_errors(self, path: Path, key: str) -> Iterator[FieldError]:
        """A key belongs to a domain, but not to ours: otherwise an issuer could imitate the
        server.
        """
        yield from key_errors(path, key)
        domain = key.partition("/")[0]
        if key != key.lower():
            yield invalid(path, key, "must be lowercase")
        if any(domain == ours or domain.endswith(f".{ours}") for ours in self._reserved):
            text = f"{', '.join(self._reserved)} and all subdomains are reserved for the server"
            yield invalid(path, key, text)

    def _email_errors(
        self, path: Path, mappings: SentMappings, rules: tuple[SentRule, ...]
    ) -> Iterator[FieldError]:
        """An address that the issuer did not verify could belong to anybody."""
        name = mappings.username.expression
        if mappings.username.claim or not self._selects(name, "email"):
            return
        extra = (source.value_expression for source in mappings.extra)
        conditions = (rule.expression for rule in rules if not rule.claim)
        if not any(
            self._selects(source, "email_verified") for source in (name, *extra, *conditions)
        ):
            yield invalid(path, _shown(name), UNVERIFIED_EMAIL)

    def _selects(self, source: str, claim: str) -> bool:
        try:
            return bool(source) and (CLAIMS, claim) in self._compiler.over_claims(source).selects
        except ExpressionUnusable:
            return False  # reported with its own path

    def _claims_errors(self, path: Path, source: str) -> Iterator[FieldError]:
        yield from _expression_errors(path, source, self._compiler.over_claims)


def _expression_errors(
    path: Path, source: str, compiled: Callable[[str], Expression]
) -> Iterator[FieldError]:
    try:
        compiled(source)
    except ExpressionUnusable as problem:
        yield invalid(path, _shown(source), str(problem))
    except LibraryMissing as problem:
        raise LibraryMissing(f"{path}: {problem}") from None


def _shown(source: str) -> str:
    return source if len(source) <= LONGEST_SHOWN else f"{source[:LONGEST_SHOWN]}..."
