"""Rules of kinds with conditions.

ConditionRules    a `status` endpoint that has conditions
CompiledRules     a main endpoint whose spec contains expressions: they are compiled on every write,
                  so that a stored object is Ready
"""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from orchid.kernel.base.scheduling.offload import LARGE_BYTES
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.wire.conditions import READY, TRUE, Condition, condition_errors, with_conditions
from orchid.kernel.wire.fields import FieldError, Path
from orchid.kernel.wire.meta import Object

T = TypeVar("T", bound=Object)

CONDITIONS: Final = Path() / "status" / "conditions"
COMPILED: Final = Condition(
    type=READY, status=TRUE, reason="Compiled", message="The policy is in force."
)


class ConditionRules(Strategy[T]):
    """Validates the conditions of a status; a kind adds the rules of other fields."""

    def validate_status(self, new: T, old: T) -> Iterator[FieldError]:
        """Yield errors of a changed status, except conditions."""
        yield from ()

    def validate_update(self, new: Any, old: Any) -> Iterator[FieldError]:
        if new.status != old.status:
            yield from condition_errors(new.status.conditions, CONDITIONS)
            yield from self.validate_status(new, old)


class CompiledRules(Strategy[T]):
    """Sets Ready when the spec changes; `validate` refuses a spec that does not compile."""

    def prepare_for_create(self, new: Any, request: Request) -> Any:
        if new.spec.rules:
            request.body_weight += LARGE_BYTES  # a short expression may take long to compile
        return with_conditions(new, [COMPILED], request.now)

    def prepare_for_update(self, new: Any, old: Any, request: Request) -> Any:
        return new if new.spec == old.spec else self.prepare_for_create(new, request)

    def validate_update(self, new: Any, old: Any) -> Iterator[FieldError]:
        # Stored specs stay writable, also where the expression library is not installed.
        if new.spec != old.spec:
            yield from self.validate(new)
