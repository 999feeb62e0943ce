"""Controllers that delete the objects of a kind that are over, declared by `expiring`.

Reads    all objects of the kind, at start and then at each interval
Deletes  those of which `is_over` is true; never another object that took the name meanwhile
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration, Rights
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.meta import Object

T = TypeVar("T", bound=Object)
IsOver = Callable[[T, datetime], bool]  # of an object, at a time


class Cleaner(Sweeper, Generic[T]):
    def __init__(
        self,
        client: Client,
        clock: Clock,
        type_: type[T],
        *,
        name: str,
        every: timedelta,
        is_over: IsOver[T],
    ) -> None:
        self.name = name
        self.every = every
        self._client = client
        self._clock = clock
        self._type = type_
        self._is_over = is_over

    async def sweep(self) -> None:
        async for object_ in self._client.scan(ListSelection(self._type)):
            if self._is_over(object_, self._clock.now()):
                await self._client.delete_gone(self._type, object_)


def expiring(
    name: str, type_: type[T], *, every: timedelta, is_over: IsOver[T], rights: Rights
) -> ControllerDeclaration:
    """The declaration of a Cleaner; its account has the name of the controller."""
    return ControllerDeclaration(
        name=name,
        long_name=f"{type_.__name__.lower()}-cleaner-controller",
        account=name,
        rights=rights,
        build=lambda client, context, events: Cleaner(
            client, context.clock, type_, name=name, every=every, is_over=is_over
        ),
    )
