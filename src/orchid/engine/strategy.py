"""The hooks of a kind, and when each runs. A kind overrides the few it needs.

A create runs   admit -> prepare_for_create -> metadata rules -> validate -> warnings -> review
                -> store
An update runs  admit -> prepare_for_update -> metadata rules -> validate_update
                -> validate_times -> warnings -> review -> validate_transition -> store

What an endpoint may write is not a hook: it is data (`Kind.writes`, `Endpoint.writes`), and the
engine puts back everything else before `prepare_for_update` sees the object.

Hooks are pure: no input or output, no clock but `request.now`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

from orchid.engine.request import Request
from orchid.wire.fields import FieldError
from orchid.wire.meta import Object
from orchid.wire.rules.names import subdomain_errors

T = TypeVar("T", bound=Object)


class Strategy(Generic[T]):
    """What is special about a kind. Every hook does nothing unless the kind says so."""

    # Whether a finalizer without a prefix must be one that the server knows itself.
    only_known_finalizers = True
    # Whether an update has times that are compared with now.
    checks_times = False

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        """Say what is wrong with a name, or with a generateName when `prefix`."""
        return subdomain_errors(name, prefix=prefix)

    def name_errors_on_update(self, name: str, prefix: bool) -> Iterable[str]:
        """The same for an object that is there: its generateName may still change."""
        return self.name_errors(name, prefix)

    def prepare_for_create(self, new: T, request: Request) -> T:
        """Fill in what the server decides. The object has its name, uid and creation time."""
        return new

    def validate(self, new: T) -> Iterator[FieldError]:
        """Yield all that is wrong with a new object by itself, metadata aside."""
        yield from ()

    def prepare_for_update(self, new: T, old: T, request: Request) -> T:
        """Fill in what the server decides, and silently undo what may not change."""
        return new

    def validate_update(self, new: T, old: T) -> Iterator[FieldError]:
        """Yield all that is wrong with this change. By default: what is wrong with the result."""
        yield from self.validate(new)

    def validate_times(self, new: T, old: T, now: datetime) -> Iterator[FieldError]:
        """Yield what is wrong with the times of a change that is valid otherwise.

        Asked if `checks_times`.
        """
        yield from ()

    def validate_transition(self, new: T, old: T) -> Iterator[FieldError]:
        """Yield what the stored object's state forbids. Asked last: who may not write at all
        learns that first."""
        yield from ()

    def warnings(self, new: T, old: T | None) -> Iterator[str]:
        """Yield texts for Warning headers; the request goes on."""
        yield from ()

    def holds_deletion(self, old: T) -> bool:
        """Whether a delete must only mark the object, finalizers aside."""
        return False

    def prepare_for_deletion(self, marked: T, old: T, request: Request) -> T:
        """Change an object that is being marked for deletion."""
        return marked
