"""A client of a controller whose objects are in memory, and the changes of a watch."""

from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

from orchid.kernel.client.client import WatchedChange
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.meta import Object

Where = tuple[type[Object], str, str]


class SmallClient:
    """Finds the stored objects, records each write, and refuses the verbs of `refuses`."""

    def __init__(self, *stored: Object) -> None:
        self.stored: dict[Where, Object] = {_where(one): one for one in stored}
        self.writes: list[tuple[str, Object]] = []  # the verb, and its object
        self.refuses: dict[str, ApiError] = {}
        self.batches: list[list[WatchedChange[Any]]] = []  # of `follow`
        self.selections: list[Any] = []  # of `scan` and `page`
        self.followed: list[Any] = []

    def written(self, verb: str) -> list[Any]:
        return [one for used, one in self.writes if used == verb]

    async def find(self, type_: type[Object], name: str, namespace: str = "") -> Object | None:
        return self.stored.get((type_, namespace, name))

    async def create(self, new: Object) -> Object:
        return self._write("create", new)

    async def update(self, new: Object, endpoint: str = "", *, dry_run: bool = False) -> None:
        self._write(endpoint or "update", new)

    async def update_status(self, new: Object) -> None:
        self._write("status", new)

    async def delete_gone(self, _type: type[Object], old: Object, **_options: str) -> None:
        self._write("delete", old)
        del self.stored[_where(old)]

    async def page(self, wanted: Any, *, limit: int = 0, after: str = "") -> Any:
        return SimpleNamespace(items=[one async for one in self.scan(wanted)])

    async def scan(self, wanted: Any) -> AsyncIterator[Any]:
        self.selections.append(wanted)
        for type_, namespace, name in list(self.stored):
            if type_ is wanted.of and wanted.namespace in ("", namespace):
                yield self.stored[type_, namespace, name]

    async def follow(self, wanted: Any) -> AsyncGenerator[list[WatchedChange[Any]], None]:
        self.followed.append(wanted)
        for batch in self.batches:
            yield batch

    def _write(self, verb: str, new: Object) -> Object:
        if verb in self.refuses:
            raise self.refuses[verb]
        self.writes.append((verb, new))
        self.stored[_where(new)] = new
        return new


def change(found: Object, type_: str = "MODIFIED") -> WatchedChange[Any]:
    """An event of a watch."""
    return WatchedChange(type_, encode(found), None, None, found)


def _where(one: Object) -> Where:
    return type(one), one.namespace, one.name
