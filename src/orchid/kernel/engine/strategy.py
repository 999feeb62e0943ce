"""The hooks of a kind, and when each runs. A kind overrides the few it needs.

A create runs   admit -> prepare_for_create -> metadata rules -> validate -> warnings -> review
                -> store
An update runs  admit -> prepare_for_update -> metadata rules -> validate_update
                -> validate_times -> warnings -> review -> validate_transition -> store

The writable fields of an endpoint are not a hook but data (`Kind.writes`, `Endpoint.writes`), and
the engine restores all others before `prepare_for_update` sees the object. So is the generation
(`Kind.counts_generation`).

Hooks are pure: no I/O, no clock but `request.now`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

from orchid.kernel.engine.request import Request
from orchid.kernel.wire.fields import FieldError
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.rules.names import subdomain_errors

T = TypeVar("T", bound=Object)


class Strategy(Generic[T]):
    """The rules of a kind. Every hook does nothing by default."""

    # Whether a finalizer without a prefix must be one of the server's own.
    only_known_finalizers = True
    # Whether `validate` verifies a signature: those of several requests are verified together.
    verifies_signature = False
    # Whether times of an update are compared with now.
    checks_times = False

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        """Validate a name, or a generateName if `prefix`."""
        return subdomain_errors(name, prefix=prefix)

    def name_errors_on_update(self, name: str, prefix: bool) -> Iterable[str]:
        """The same for an existing object: its generateName may still change."""
        return self.name_errors(name, prefix)

    def prepare_for_create(self, new: T, request: Request) -> T:
        """Fill in server-set fields. The object has its name, uid and creation time."""
        return new

    def validate(self, new: T) -> Iterator[FieldError]:
        """Yield all errors of a new object, except metadata."""
        yield from ()

    def prepare_for_update(self, new: T, old: T, request: Request) -> T:
        """Fill in server-set fields, and silently revert immutable ones."""
        return new

    def validate_update(self, new: T, old: T) -> Iterator[FieldError]:
        """Yield all errors of a change. By default: the errors of the result."""
        yield from self.validate(new)

    def validate_times(self, new: T, old: T, now: datetime) -> Iterator[FieldError]:
        """Yield errors in the times of an otherwise valid change.

        Called if `checks_times`.
        """
        yield from ()

    def validate_transition(self, new: T, old: T) -> Iterator[FieldError]:
        """Yield changes that the stored object's state forbids. Runs last, after the permission
        checks.
        """
        yield from ()

    def warnings(self, new: T, old: T | None) -> Iterator[str]:
        """Yield texts for Warning headers."""
        yield from ()

    def holds_deletion(self, old: T) -> bool:
        """Whether a delete only marks the object, regardless of finalizers."""
        return False

    def prepare_for_deletion(self, marked: T, old: T, request: Request) -> T:
        """Change an object that is being marked for deletion."""
        return marked
