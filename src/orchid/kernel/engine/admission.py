"""Run the admission policies, in the order of the assembly."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.meta import Object

T = TypeVar("T", bound=Object)
Policies = tuple[AdmissionPolicy, ...]


class _Asked(NamedTuple):
    """The policies for objects of one kind."""

    admitting: Policies
    reviewing: Policies
    accompanying: Policies
    accompanying_new: Policies


class _AskedOf(dict[Kind[Any], _Asked]):
    """Computed once for each kind."""

    def __init__(self, policies: Sequence[AdmissionPolicy]) -> None:
        super().__init__()
        self._policies = policies

    def __missing__(self, kind: Kind[Any]) -> _Asked:
        concerned = [policy for policy in self._policies if policy.concerns(kind)]
        asked = self[kind] = _Asked(
            tuple(policy for policy in concerned if issubclass(kind.type, policy.admits)),
            tuple(policy for policy in concerned if issubclass(kind.type, policy.reviews)),
            tuple(policy for policy in concerned if issubclass(kind.type, policy.accompanies)),
            tuple(policy for policy in concerned if issubclass(kind.type, policy.accompanies_new)),
        )
        return asked


class Admission:
    """All the policies as one.

    `admit` may change the object, `review` may only refuse, `companions` are stored with it.
    """

    def __init__(self, policies: Sequence[AdmissionPolicy]) -> None:
        self.asked = _AskedOf(policies)

    async def admit(self, request: Request, kind: Kind[T], new: T, old: T | None) -> T:
        for policy in self.asked[kind].admitting:
            new = await policy.admit(request, kind, new, old)
        return new

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        for policy in self.asked[kind].reviewing:
            await policy.review(request, kind, new, old)

    async def companions(
        self, request: Request, kind: Kind[Any], new: Object, old: Object | None
    ) -> tuple[Object, ...]:
        accompanying: tuple[Object, ...] = ()
        asked = self.asked[kind]
        for policy in asked.accompanying if old is not None else asked.accompanying_new:
            accompanying += await policy.companions(request, kind, new, old)
        return accompanying
