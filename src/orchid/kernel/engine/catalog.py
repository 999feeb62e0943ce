"""The kinds of this server: by path, by type and by apiVersion and kind."""

from collections.abc import Iterable
from typing import Any, TypeVar

from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.meta import Object

T = TypeVar("T", bound=Object)


class Catalog:
    """Every kind in every version, in one lookup. Immutable."""

    def __init__(self, kinds: Iterable[Kind[Any]]) -> None:
        self.kinds: tuple[Kind[Any], ...] = tuple(each for kind in kinds for each in kind.served)
        self.by_resource = {(k.group, k.version, k.plural): k for k in self.kinds}
        self._by_type = {k.type: k for k in reversed(self.kinds)}  # stored kinds come first
        self._by_name = {(k.api_version, k.name): k for k in self.kinds}
        for kind in self.kinds:
            for endpoint in kind.endpoints:
                if endpoint.kind:
                    self._by_type[endpoint.kind.type] = endpoint.kind
                    self._by_name[endpoint.kind.api_version, endpoint.kind.name] = endpoint.kind
        self._by_resource = {
            (kind.group, f"{kind.plural}/{endpoint.name}" if endpoint else kind.plural): (
                (endpoint and endpoint.kind) or kind
            )
            for kind in self.kinds
            for endpoint in (None, *kind.endpoints)
        }

    @property
    def stored(self) -> tuple[Kind[Any], ...]:
        """The kinds that store objects, each once."""
        return tuple(kind for kind in self.kinds if kind.acts is None and kind.stored is kind)

    def of(self, type_: type[T]) -> Kind[T]:
        found: Kind[T] = self._by_type[type_]
        return found

    def named(self, api_version: str, name: str) -> Kind[Any] | None:
        return self._by_name.get((api_version, name))

    def is_confidential(self, target: Target) -> bool:
        """Whether requests and responses may hold secrets; True for an unknown resource."""
        if not target.is_resource:
            return False
        kind = self._by_resource.get((target.group, target.full_resource))
        return kind is None or kind.confidential

    def group_versions(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((kind.group, kind.version) for kind in self.kinds))
