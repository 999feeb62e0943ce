"""A compiled policy: patterns and expressions compiled, durations as numbers.

Start with `CompiledPolicy.judge`, which returns a `JudgedPolicy`: whether the policy selects the
case and allows it, check by check, each with its value. A policy that cannot be evaluated
(`problem`) still has its selection, so that no request is denied only because of that.

Rules that may be slow are evaluated last and only if all else is allowed, one request at a time per
policy. A policy that exceeds its limits has a `problem` from then on, so that it costs nothing
more.
"""

import asyncio
import ipaddress
from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from orchid.features.approval.case import NAME_LISTS, REQUEST_SAMPLE, Case
from orchid.features.approval.patterns import SEPARATORS, STAR, Patterns
from orchid.features.approval.terms import (
    DENY,
    Allowances,
    ApprovalPolicySpec,
    ApprovalRule,
    Requesters,
)
from orchid.kernel.credentials.x509.names import SUBJECT_LISTS, SUBJECT_TEXTS
from orchid.kernel.credentials.x509.requested_certificate import canonical_usages
from orchid.kernel.expressions.cel import (
    Compiler,
    Expression,
    ExpressionUnusable,
    Failed,
    LibraryMissing,
)
from orchid.kernel.expressions.isolated import Evaluator, NotEvaluated, Overrun, Result
from orchid.kernel.wire.options import seconds_of
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import first_few, human_duration, quote
from orchid.kernel.wire.user import UserInfo

ACCOUNT_PREFIX = "system:serviceaccount:"
NOT_EVALUATED = "its slow rules were not evaluated"
# of a pattern with a text, at a microsecond or more; larger numbers run in a thread
FEW_MATCHES = 1000


class Check(msgspec.Struct, frozen=True):
    """A single check: the field of the policy, the value, the result."""

    field: str
    value: str
    allowed: bool
    message: str = ""


class JudgedPolicy(msgspec.Struct, frozen=True):
    """The result of one policy. Without `checks` it does not select the case, or has no result."""

    policy: "CompiledPolicy"
    selection: tuple[Check, ...]  # the selectors that do not match
    checks: tuple[Check, ...] = ()
    problem: str = ""  # why there is no result
    unfinished: bool = False  # slow rules were not evaluated

    @property
    def selected(self) -> bool:
        return not self.selection

    @property
    def allowed(self) -> bool:
        return self.selected and not self.problem and all(check.allowed for check in self.checks)

    @property
    def message(self) -> str:
        """Why the policy does not allow it, in one line."""
        if self.problem:
            return self.problem
        refused = (*self.selection, *(check for check in self.checks if not check.allowed))
        return "; ".join(first_few([*dict.fromkeys(check.message for check in refused)]))


class CompiledPolicy:
    """A compiled policy."""

    def __init__(
        self,
        name: str,
        revision: str,
        spec: ApprovalPolicySpec,
        compiler: Compiler,
        problem: str = "",
    ) -> None:
        self.name, self.revision, self.spec = name, revision, spec
        self.denies = spec.otherwise == DENY
        self._signers = Patterns(spec.signer_names)
        self._is_for_all = spec.requesters == Requesters()
        self._users = Patterns(spec.requesters.users)
        self._groups = Patterns(spec.requesters.groups)
        self._accounts = Patterns(spec.requesters.service_accounts)
        self._allowed = _allowed(spec.allows)
        self._networks = _networks(spec.allows.ip_addresses)
        self._tried = len(self._networks) + sum(
            map(len, (self._users, self._groups, self._accounts, *self._allowed.values()))
        )
        self._rules: list[tuple[ApprovalRule, Expression]] = []
        self.unusable = ""  # why it cannot be compiled
        try:
            self._longest = _seconds(spec.allows.max_duration)
            self._shortest = _seconds(spec.allows.min_duration)
            for rule in spec.rules:
                compiled = compiler.signing_condition(rule.expression, REQUEST_SAMPLE)
                self._rules.append((rule, compiled))
        except (ExpressionUnusable, LibraryMissing, ValueError) as unusable:
            self.unusable = f"the policy cannot be used: {unusable}"
        self.problem = problem or self.unusable
        self.exceeded = ""  # the limit that its rules exceeded
        self._turn = asyncio.Lock()

    # -- selection ---------------------------------------------------------------------------

    def selects(self, signer_name: str, user: UserInfo) -> bool:
        return self._is_of(signer_name) and self._asked_by(user)

    def selection(self, signer_name: str, user: UserInfo) -> tuple[Check, ...]:
        """The selectors that do not match; the policy selects the case if there are none."""
        failed = []
        if not self._is_of(signer_name):
            text = f"signerNames does not match {quote(signer_name)}"
            failed.append(Check("signerNames", signer_name, False, text))
        if not self._asked_by(user):
            text = f"requesters does not match {quote(user.username)} or a group of theirs"
            failed.append(Check("requesters", user.username, False, text))
        return tuple(failed)

    def _is_of(self, signer_name: str) -> bool:
        return not self.spec.signer_names or self._signers.match(signer_name)

    def _asked_by(self, user: UserInfo) -> bool:
        if self._is_for_all:
            return True
        if self._users.match(user.username) or any(map(self._groups.match, user.groups)):
            return True
        account = user.username.removeprefix(ACCOUNT_PREFIX)
        return account != user.username and self._accounts.match(account.replace(":", "/", 1))

    # -- evaluation --------------------------------------------------------------------------

    async def judge(self, case: Case, evaluator: Evaluator, *, slowly: bool = True) -> JudgedPolicy:
        """The result for a case; without `slowly`, slow rules are not evaluated."""
        texts = len(case.user.groups) + sum(map(len, case.texts.values()))
        if texts * self._tried <= FEW_MATCHES:
            await asyncio.sleep(0)  # there may be many policies
            seen = self._without_rules(case)
        else:
            seen = await asyncio.to_thread(self._without_rules, case)
        if seen.selection or self.problem:
            return seen
        # Expressions are the most expensive: skipped if the case is already refused.
        if case.obstacles:
            return seen
        results: dict[int, Result] = {}
        slow: list[int] = []
        for number, (_, expression) in enumerate(self._rules):
            await asyncio.sleep(0)  # a policy may have many rules
            if evaluator.is_cheap(expression, case.given):
                results[number] = evaluator.here(expression, case.given)
            else:
                slow.append(number)
        verdict = self._with_rules(seen, results)
        if not slow or not verdict.allowed:
            return verdict
        if not slowly:
            return replace(verdict, problem=NOT_EVALUATED, unfinished=True)
        async with self._turn:
            problem = await self._evaluate(slow, case, evaluator, results)
        return replace(self._with_rules(seen, results), problem=problem)

    async def _evaluate(
        self, slow: list[int], case: Case, evaluator: Evaluator, results: dict[int, Result]
    ) -> str:
        """Evaluate slow rules, all within the limits of one process; return the problem, if any."""
        if self.exceeded:
            return self.exceeded  # set while this case waited
        expressions = [self._rules[number][1] for number in slow]
        try:
            outcomes = await evaluator.elsewhere(expressions, case.given)
        except Overrun as overrun:
            self.problem = self.exceeded = str(overrun)
            return self.problem
        except NotEvaluated as unanswered:
            return str(unanswered)
        results.update(zip(slow, outcomes, strict=True))
        return ""

    def _with_rules(self, seen: JudgedPolicy, results: Mapping[int, Result]) -> JudgedPolicy:
        rules = (
            _rule_check(number, rule, results[number])
            for number, (rule, _) in enumerate(self._rules)
            if number in results
        )
        return replace(seen, checks=(*seen.checks, *rules))

    def _without_rules(self, case: Case) -> JudgedPolicy:
        selection = self.selection(case.signer_name, case.user)
        if selection or self.problem:
            return JudgedPolicy(self, selection, problem=self.problem)
        return JudgedPolicy(self, (), tuple(self._certificate_checks(case)))

    def _certificate_checks(self, case: Case) -> Iterator[Check]:
        for obstacle in case.obstacles:
            yield Check("request", "", False, obstacle)
        for field, values in case.texts.items():
            for value in values:
                allowed = self._allows(field, value)
                text = "" if allowed else f"{field} does not allow {quote(value)}"
                yield Check(field, value, allowed, text)
        yield from self._lifetime_checks(case.certificate.lifetime)

    def _allows(self, field: str, value: str) -> bool:
        if self._allowed[field].match(value):
            return True
        if field != "ipAddresses" or not self._networks:
            return False
        address = ipaddress.ip_address(value)
        return any(address in network for network in self._networks)

    def _lifetime_checks(self, lifetime: timedelta | None) -> Iterator[Check]:
        if lifetime is None:
            text = "maxDuration needs a request that says how long (expirationSeconds)"
            yield Check("maxDuration", "", False, text)
            return
        seconds = lifetime.total_seconds()
        shown = human_duration(seconds)
        if self._longest is None:
            yield Check("maxDuration", shown, False, "maxDuration is left out: it allows no life")
        else:
            fits = seconds <= self._longest
            text = "" if fits else f"maxDuration {self.spec.allows.max_duration} is below {shown}"
            yield Check("maxDuration", shown, fits, text)
        if self._shortest is not None:
            fits = seconds >= self._shortest
            text = "" if fits else f"minDuration {self.spec.allows.min_duration} is above {shown}"
            yield Check("minDuration", shown, fits, text)


def _rule_check(number: int, rule: ApprovalRule, holds: Result) -> Check:
    field = f"rules[{number}]"
    if isinstance(holds, Failed):
        return Check(field, "error", False, f"{field}: {holds}")
    said = rule.message or f"{field} does not hold: {rule.expression}"
    return Check(field, "true" if holds else "false", holds is True, "" if holds else said)


def _allowed(allows: Allowances) -> dict[str, Patterns]:
    """The patterns of every list, by its name in a case."""
    plain = msgspec.to_builtins(allows)
    patterns = {
        name: Patterns(plain.get(name, ())) for name in (*SUBJECT_LISTS, *NAME_LISTS, "keys")
    }
    for name in SUBJECT_TEXTS:
        patterns[name] = Patterns((plain[name],) if name in plain else ())
    for name in ("uris", "emailAddresses"):
        patterns[name] = Patterns(plain.get(name, ()), stops=SEPARATORS)
    patterns["dnsNames"] = Patterns(allows.dns_names, ignores_case=True)
    patterns["usages"] = Patterns(canonical_usages(allows.usages))
    return patterns


def _networks(
    addresses: tuple[str, ...],
) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The networks in a list of addresses, networks and patterns."""
    networks = []
    for text in addresses:
        if STAR in text:
            continue
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            continue  # the writer of the policy was warned
    return networks


def _seconds(duration: str) -> float | None:
    return seconds_of(duration) if duration else None
