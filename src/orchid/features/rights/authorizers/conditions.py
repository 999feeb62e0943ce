"""Conditions of a webhook (matchConditions): expressions that select the requests for it.

`Conditions.hold` is true if all of them are. If one is false, the result is false; otherwise an
error in any of them makes the whole fail, and the webhook's failure policy decides.
"""

from collections.abc import Sequence

from orchid.features.rights.authorizers.metrics import AuthorizationMetrics
from orchid.features.rights.authorizers.review_spec import condition_input
from orchid.kernel.access.denial import joined
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.engine.request import Target
from orchid.kernel.expressions.cel import Expression, ExpressionInput, Failed
from orchid.kernel.wire.user import UserInfo

_TYPE = "Webhook"


class ConditionsFailed(Exception):
    """No condition was false, and at least one had an error. The message has the expressions."""


class Conditions:
    def __init__(
        self,
        expressions: Sequence[Expression],
        name: str,
        metrics: AuthorizationMetrics,
        monotonic: Monotonic,
    ) -> None:
        self._expressions = tuple(expressions)
        self._name = name
        self._metrics = metrics
        self._monotonic = monotonic

    def hold(self, user: UserInfo, target: Target) -> bool:
        started = self._monotonic()
        errors: list[str] = []
        try:
            return self._judged(ExpressionInput(condition_input(user, target)), errors)
        finally:
            if errors:
                self._metrics.condition_errors.count(_TYPE, self._name)
            seconds = self._monotonic() - started
            self._metrics.condition_seconds.observe(seconds, _TYPE, self._name)

    def _judged(self, variables: ExpressionInput, errors: list[str]) -> bool:
        for expression in self._expressions:
            try:
                holds = expression.holds(variables)
            except Failed as failure:
                errors.append(f"cel evaluation error: {failure}")
                continue
            if holds is False:
                self._metrics.exclusions.count(_TYPE, self._name)
                return False
        if errors:
            raise ConditionsFailed(joined(errors))
        return True
