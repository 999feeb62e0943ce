"""Ask the admission policies, in the order in which the assembly lists them."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from orchid.engine.interfaces import AdmissionPolicy
from orchid.engine.kind import Kind
from orchid.engine.request import Request
from orchid.wire.meta import Object

T = TypeVar("T", bound=Object)
Policies = tuple[AdmissionPolicy, ...]


class Admission:
    """All the policies as one. `admit` may change the object, `review` may only refuse."""

    def __init__(self, policies: Sequence[AdmissionPolicy]) -> None:
        self._policies = tuple(policies)
        self._asked: dict[type[Object], tuple[Policies, Policies]] = {}

    async def admit(self, request: Request, kind: Kind[T], new: T, old: T | None) -> T:
        for policy in self._of(kind)[0]:
            new = cast(T, await policy.admit(request, kind, new, old))
        return new

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        for policy in self._of(kind)[1]:
            await policy.review(request, kind, new, old)

    def _of(self, kind: Kind[Any]) -> tuple[Policies, Policies]:
        """Those that admit and those that review objects of a kind; found once per kind."""
        asked = self._asked.get(kind.type)
        if asked is None:
            admitting = tuple(one for one in self._policies if issubclass(kind.type, one.admits))
            reviewing = tuple(one for one in self._policies if issubclass(kind.type, one.reviews))
            asked = self._asked[kind.type] = (admitting, reviewing)
        return asked
