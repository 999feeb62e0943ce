"""TokenExchangePolicy: an outside identity that gets tokens of an account of the same namespace.

    main      issuer, claims and rules of the outside token; account, audiences    Rules
    status    the condition Ready, and when the policy was last used               ConditionRules

The policy allows the exchange of a token if all its claims are equal, as text, and all its rules
hold. The account must agree by its annotation (`agrees`). Deleting the policy invalidates all
tokens that were issued by it. Permission to write one, and warnings about subjects that others can
obtain: features/exchange/policies/exchange_policy_authors.py. Matching and issuing:
issuance/exchange/.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import field

from orchid.features.approval.issuing_terms import duration_errors, duration_of
from orchid.kernel.engine.condition_rules import CompiledRules, ConditionRules
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.expressions.cel import (
    CLAIMS,
    NOW,
    Compiler,
    ExpressionInput,
    ExpressionUnusable,
    LibraryMissing,
)
from orchid.kernel.wire.conditions import READY, Condition, is_true
from orchid.kernel.wire.fields import (
    METADATA,
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import path_segment_errors
from orchid.kernel.wire.struct import Wire, always, at_most, describe, merge_key, proto, replace
from orchid.kernel.wire.text import age

SPEC: Final = Path() / "spec"
MOST_CLAIMS: Final = 32
MOST_RULES: Final = 32
MOST_AUDIENCES: Final = 16
LONGEST_NAME: Final = 256  # of a claim
LONGEST_VALUE: Final = 1024
LONGEST_URL: Final = 2048
DEFAULT_DURATION: Final = "10m"
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(hours=24)
UNTIL_SUBJECT: Final = "subject"
PER_TOKEN: Final = ("exp", "iat", "nbf", "jti")  # claims with another value in every token
OUTSIDE: Final = "outside"
MOST_COST: Final = 1 << 23  # of all rules, for one token; a few milliseconds
# A token of usual size, to estimate the cost of rules.
_SAMPLE: Final = {f"claim_{number}": "x" * 64 for number in range(40)}


class ExchangeRule(Wire):
    """An additional condition, as an expression."""

    expression: Annotated[
        str,
        proto(1),
        describe("A condition in CEL over `claims` and `now`.", required=True),
    ] = always(str)
    message: Annotated[str, proto(2), describe("The message if it does not hold.")] = ""


class TokenExchangePolicySpec(Wire):
    """The outside tokens that are exchanged, and the tokens that are issued for them."""

    issuer: Annotated[
        str,
        proto(1),
        describe("The issuer of the outside token (claim `iss`), as an exact string."),
    ] = always(str)
    claims: Annotated[
        dict[str, str],
        at_most(MOST_CLAIMS),
        proto(2),
        describe("Claims that must all be equal, compared as text. At least one.", required=True),
    ] = always(dict)
    rules: Annotated[
        tuple[ExchangeRule, ...], proto(3), describe("Additional conditions that must all hold.")
    ] = ()
    account: Annotated[
        str, proto(4), describe("The service account of this namespace whose tokens are issued.")
    ] = always(str)
    audiences: Annotated[
        tuple[str, ...],
        at_most(MOST_AUDIENCES),
        proto(5),
        describe(
            "The audiences that a token can have. Without a request for some, the first applies.",
            required=True,
        ),
    ] = always(lambda: ())
    max_duration: Annotated[
        str, proto(6), describe("The maximum lifetime of a token, 1m to 24h. Default: 10m.")
    ] = ""
    until: Annotated[
        str,
        proto(7),
        describe("`subject`: a token expires no later than the outside token."),
    ] = ""


class TokenExchangePolicyStatus(Wire):
    """The state of the policy."""

    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(1),
        describe("Ready: the policy is in force."),
    ] = ()
    last_used: Annotated[
        Time | None, proto(2), describe("When a token was last issued by it, to the hour.")
    ] = None


class TokenExchangePolicy(Object):
    """Lets holders of outside tokens get tokens of an account."""

    spec: Annotated[
        TokenExchangePolicySpec,
        proto(2),
        describe("The outside tokens and the account.", required=True),
    ] = field(default_factory=TokenExchangePolicySpec)
    status: Annotated[TokenExchangePolicyStatus, proto(3), describe("The conditions.")] = field(
        default_factory=TokenExchangePolicyStatus
    )

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, READY)


class Rules(CompiledRules[TokenExchangePolicy]):
    """The main endpoint: a policy whose rules compile is Ready."""

    def __init__(self, naming: Naming) -> None:
        self._compiler = Compiler()
        self._reserved = reserved_namespaces(naming)

    def validate(self, new: TokenExchangePolicy) -> Iterator[FieldError]:
        if new.namespace in self._reserved:
            text = "tokens of accounts in a namespace of the system cannot be exchanged"
            yield forbidden(METADATA / "namespace", text)
        yield from spec_errors(new.spec)
        yield from rule_errors(new.spec.rules, self._compiler)


def declare(naming: Naming) -> Kind[TokenExchangePolicy]:
    return Kind(
        type=TokenExchangePolicy,
        group=naming.identity,
        version="v1alpha1",
        plural="tokenexchangepolicies",
        short_names=("tep",),
        scope=Scope.NAMESPACED,
        counts_generation=True,
        rules=Rules(naming),
        defaults=with_defaults,
        writes=("metadata", "spec"),
        columns=COLUMNS,
        records=policy_changes,
        endpoints=(Endpoint("status", writes=("metadata", "status"), rules=ConditionRules()),),
    )


def with_defaults(new: TokenExchangePolicy) -> TokenExchangePolicy:
    if new.spec.max_duration:
        return new
    return replace(new, spec=replace(new.spec, max_duration=DEFAULT_DURATION))


def policy_changes(
    new: TokenExchangePolicy | None, old: TokenExchangePolicy | None, request: Request
) -> Iterator[Fact]:
    """For the ledger: who wrote which terms."""
    if new is not None and old is not None and new.spec == old.spec:
        return
    changed = "changed" if old is not None else "made"
    policy = new or old
    assert policy is not None
    sealed: dict[str, Any] = {
        "namespace": policy.namespace,
        "name": policy.name,
        "user": request.user.username,
    }
    if new is not None:
        sealed["spec"] = msgspec.to_builtins(new.spec)
    yield Fact(f"exchange-policy.{'removed' if new is None else changed}", sealed=sealed)


# --- the account ------------------------------------------------------------------------------


def agreement_annotation(naming: Naming) -> str:
    """The annotation by which an account agrees to be used: `outside`."""
    return f"{naming.identity}/token-exchange"


def agrees(annotation: str) -> bool:
    """Whether an account with this value of the annotation can be used."""
    return annotation == OUTSIDE or OUTSIDE in [word.strip() for word in annotation.split(",")]


def reserved_namespaces(naming: Naming) -> frozenset[str]:
    return frozenset(
        (naming.system_namespace, naming.public_namespace, naming.node_lease_namespace)
    )


# --- claims -----------------------------------------------------------------------------------


def claim_text(value: Any) -> str | None:
    """A claim as text; None for lists, objects and null, which equal no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


# --- validation -------------------------------------------------------------------------------


def spec_errors(spec: TokenExchangePolicySpec) -> Iterator[FieldError]:
    yield from _issuer_errors(spec.issuer, SPEC / "issuer")
    yield from _claim_errors(spec.claims, SPEC / "claims")
    if not spec.account:
        yield required(SPEC / "account")
    for problem in path_segment_errors(spec.account) if spec.account else ():
        yield invalid(SPEC / "account", spec.account, problem)
    yield from _audience_errors(spec.audiences, SPEC / "audiences")
    yield from duration_errors(SPEC / "maxDuration", spec.max_duration, SHORTEST, LONGEST)
    if spec.until not in ("", UNTIL_SUBJECT):
        yield unsupported(SPEC / "until", spec.until, (UNTIL_SUBJECT,))


def _issuer_errors(issuer: str, path: Path) -> Iterator[FieldError]:
    if not issuer:
        yield required(path)
    elif len(issuer) > LONGEST_URL:
        yield too_long(path, LONGEST_URL, "character")
    elif not issuer.startswith("https://") or not issuer.isprintable() or not issuer.isascii():
        yield invalid(path, issuer, "must be an https URL, as in the claim iss")


def _claim_errors(claims: Mapping[str, str], path: Path) -> Iterator[FieldError]:
    if not claims:
        yield required(path, "at least one claim, or every token of the issuer would be exchanged")
    if len(claims) > MOST_CLAIMS:
        yield too_many(path, len(claims), MOST_CLAIMS)
    for name, value in claims.items():
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            yield invalid(path, name, f"a name has 1 to {LONGEST_NAME} printable characters")
        elif name in PER_TOKEN:
            yield forbidden(path[name], "the claim has another value in every token")
        elif name == "iss":
            yield forbidden(path[name], "it is compared as spec.issuer")
        if not value:
            yield required(path[name])
        elif len(value) > LONGEST_VALUE:
            yield too_long(path[name], LONGEST_VALUE, "character")


def _audience_errors(audiences: tuple[str, ...], path: Path) -> Iterator[FieldError]:
    if not audiences:
        yield required(path, "at least one audience")
    if len(audiences) > MOST_AUDIENCES:
        yield too_many(path, len(audiences), MOST_AUDIENCES)
    for index, audience in enumerate(audiences[:MOST_AUDIENCES]):
        if not audience:
            yield required(path[index])
        elif len(audience) > LONGEST_VALUE:
            yield too_long(path[index], LONGEST_VALUE, "character")
        elif audience in audiences[:index]:
            yield duplicate(path[index], audience)


def rule_errors(rules: tuple[ExchangeRule, ...], compiler: Compiler) -> Iterator[FieldError]:
    path = SPEC / "rules"
    if len(rules) > MOST_RULES:
        yield too_many(path, len(rules), MOST_RULES)
        return
    sample, cost = ExpressionInput({CLAIMS: _SAMPLE, NOW: datetime.fromtimestamp(0, UTC)}), 0
    for index, rule in enumerate(rules):
        at = path[index] / "expression"
        if not rule.expression:
            yield required(at)
            continue
        if len(rule.message) > LONGEST_VALUE:
            yield too_long(path[index] / "message", LONGEST_VALUE, "character")
        try:
            cost += compiler.exchange_condition(rule.expression).cost(sample)
        except (ExpressionUnusable, LibraryMissing) as unusable:
            yield invalid(at, rule.expression, str(unusable))
            continue
        if cost > MOST_COST:
            yield invalid(at, rule.expression, "too expensive to evaluate for every token")
            return


def lifetime(spec: TokenExchangePolicySpec) -> int:
    """The maximum lifetime of a token, in seconds."""
    found = duration_of(spec.max_duration) or duration_of(DEFAULT_DURATION) or SHORTEST
    return int(found.total_seconds())


COLUMNS: Final = (
    NAME,
    Column("Issuer", lambda one, now: one.spec.issuer, description="The issuer of outside tokens."),
    Column("Account", lambda one, now: one.spec.account, description="The account."),
    Column("Ready", lambda one, now: str(one.is_ready), description="Whether it is in force."),
    Column(
        "Last Used",
        lambda one, now: age(one.status.last_used, now) if one.status.last_used else "never",
        description="When a token was last issued by it.",
    ),
    AGE,
)
