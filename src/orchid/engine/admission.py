"""Ask every admission policy, in the order in which the assembly lists them."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from orchid.engine.interfaces import AdmissionPolicy
from orchid.engine.kind import Kind
from orchid.engine.request import Request
from orchid.wire.meta import Object

T = TypeVar("T", bound=Object)


class Admission:
    """All the policies as one. `admit` may change the object, `review` may only refuse."""

    def __init__(self, policies: Sequence[AdmissionPolicy]) -> None:
        self._policies = tuple(policies)

    async def admit(self, request: Request, kind: Kind[T], new: T, old: T | None) -> T:
        for policy in self._policies:
            new = cast(T, await policy.admit(request, kind, new, old))
        return new

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        for policy in self._policies:
            await policy.review(request, kind, new, old)
