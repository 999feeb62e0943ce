"""Ask the admission policies, in the order in which the assembly lists them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast

from orchid.engine.interfaces import AdmissionPolicy
from orchid.engine.kind import Kind
from orchid.engine.request import Request
from orchid.wire.meta import Object

T = TypeVar("T", bound=Object)
Policies = tuple[AdmissionPolicy, ...]


class _Asked(NamedTuple):
    """Who is asked about the objects of one kind."""

    admitting: Policies
    reviewing: Policies
    accompanying: Policies


class Admission:
    """All the policies as one.

    `admit` may change the object, `review` may only refuse, `companions` are stored with it.
    """

    def __init__(self, policies: Sequence[AdmissionPolicy]) -> None:
        self._policies = tuple(policies)
        self._asked: dict[type[Object], _Asked] = {}

    async def admit(self, request: Request, kind: Kind[T], new: T, old: T | None) -> T:
        for policy in self._of(kind).admitting:
            new = cast(T, await policy.admit(request, kind, new, old))
        return new

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        for policy in self._of(kind).reviewing:
            await policy.review(request, kind, new, old)

    async def companions(
        self, request: Request, kind: Kind[Any], new: Object, old: Object
    ) -> tuple[Object, ...]:
        found: tuple[Object, ...] = ()
        for policy in self._of(kind).accompanying:
            found += await policy.companions(request, kind, new, old)
        return found

    def _of(self, kind: Kind[Any]) -> _Asked:
        """Those that are asked about objects of a kind; found once per kind."""
        asked = self._asked.get(kind.type)
        if asked is None:
            asked = self._asked[kind.type] = _Asked(
                tuple(one for one in self._policies if issubclass(kind.type, one.admits)),
                tuple(one for one in self._policies if issubclass(kind.type, one.reviews)),
                tuple(one for one in self._policies if issubclass(kind.type, one.accompanies)),
            )
        return asked
