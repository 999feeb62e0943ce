"""Namespace: a scope for names, created with the first object in it.

DELETE only marks it. features/objects/controllers/finish_namespaces.py deletes its objects and then
removes the `spec.finalizers` entry through the `finalize` endpoint, which removes the namespace.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated

from msgspec import field

from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.fields import FieldError, Path, invalid
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.metadata import STANDARD_FINALIZERS
from orchid.kernel.wire.rules.names import label_errors, qualified_name_errors
from orchid.kernel.wire.struct import Wire, always, describe, merge_key, null, proto, replace

ACTIVE, TERMINATING = "Active", "Terminating"
FINALIZERS = Path() / "spec" / "finalizers"
PHASE = Path() / "status" / "Phase"


class NamespaceSpec(Wire):
    """The finalizers of a namespace."""

    finalizers: Annotated[
        tuple[str, ...],
        proto(1),
        describe("Finalizers that block the removal of the namespace."),
    ] = ()


class NamespaceCondition(Wire):
    """A condition of a namespace."""

    type: Annotated[str, proto(1), describe("The type of the condition.")] = field(
        default_factory=str
    )
    status: Annotated[str, proto(2), describe("True, False or Unknown.")] = field(
        default_factory=str
    )
    last_transition_time: Annotated[
        Time | None, proto(4, embedded=True), describe("When the status last changed.")
    ] = always(null)
    reason: Annotated[str, proto(5), describe("The reason as one word.")] = ""
    message: Annotated[str, proto(6), describe("The reason as a sentence.")] = ""


class NamespaceStatus(Wire):
    """The phase and the conditions of a namespace."""

    phase: Annotated[str, proto(1), describe("Active or Terminating.")] = ""
    conditions: Annotated[
        tuple[NamespaceCondition, ...],
        merge_key("type"),
        proto(2),
        describe("The conditions."),
    ] = ()


class Namespace(Object):
    """A scope for names: two namespaces may have objects of the same name."""

    spec: Annotated[NamespaceSpec, proto(2), describe("The finalizers.")] = field(
        default_factory=NamespaceSpec
    )
    status: Annotated[NamespaceStatus, proto(3), describe("The phase and the conditions.")] = field(
        default_factory=NamespaceStatus
    )


class Rules(Strategy[Namespace]):
    def __init__(self, naming: Naming) -> None:
        self._finalizer = naming.namespace_finalizer
        self._name_label = naming.namespace_name_label

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return label_errors(name, prefix=prefix)

    def prepare_for_create(self, new: Namespace, request: Request) -> Namespace:
        finalizers = new.spec.finalizers
        if self._finalizer not in finalizers:
            finalizers = (*finalizers, self._finalizer)
        return replace(
            self.labelled(new),
            spec=NamespaceSpec(finalizers=finalizers),
            status=NamespaceStatus(phase=ACTIVE),
        )

    def prepare_for_update(self, new: Namespace, old: Namespace, request: Request) -> Namespace:
        return self.labelled(new)

    def validate(self, new: Namespace) -> Iterator[FieldError]:
        for name in new.spec.finalizers:
            yield from _finalizer_errors(FINALIZERS, name)

    def validate_update(self, new: Namespace, old: Namespace) -> Iterator[FieldError]:
        yield from ()  # this endpoint does not write the finalizers

    def holds_deletion(self, old: Namespace) -> bool:
        return bool(old.spec.finalizers)

    def prepare_for_deletion(
        self, marked: Namespace, old: Namespace, request: Request
    ) -> Namespace:
        """A namespace has no grace period: its finalizers decide when it is removed.

        Until then another DELETE changes nothing, whatever its propagation policy.
        """
        if old.metadata.deletion_timestamp is not None and self.holds_deletion(old):
            return old
        marked = marked.with_meta(
            deletion_grace_period_seconds=None, generation=old.metadata.generation
        )
        return replace(marked, status=replace(marked.status, phase=TERMINATING))

    def defaulted(self, new: Namespace) -> Namespace:
        status = new.status if new.status.phase else replace(new.status, phase=ACTIVE)
        return replace(self.labelled(new), status=status)

    def labelled(self, new: Namespace) -> Namespace:
        """Label each namespace with its own name for selectors."""
        labels = new.metadata.labels
        if not new.name or labels.get(self._name_label) == new.name:
            return new
        return new.with_meta(labels={**labels, self._name_label: new.name})


class StatusRules(Rules):
    """The `status` endpoint: the phase must agree with the deletion timestamp."""

    def validate_update(self, new: Namespace, old: Namespace) -> Iterator[FieldError]:
        going = new.metadata.deletion_timestamp is not None
        expected = TERMINATING if going else ACTIVE
        if new.status.phase != expected:
            state = "not empty" if going else "empty"
            yield invalid(
                PHASE,
                new.status.phase,
                f"may only be '{expected}' if `deletionTimestamp` is {state}",
            )


class FinalizeRules(Rules):
    """The `finalize` endpoint writes the finalizers of the namespace."""

    def validate_update(self, new: Namespace, old: Namespace) -> Iterator[FieldError]:
        for index, name in enumerate(new.spec.finalizers):
            yield from _finalizer_errors(FINALIZERS[index], name)


def _finalizer_errors(path: Path, name: str) -> Iterator[FieldError]:
    for problem in qualified_name_errors(name):
        yield invalid(path, name, problem)
    if "/" not in name and name not in STANDARD_FINALIZERS:
        yield invalid(
            path, name, "name is neither a standard finalizer name nor is it fully qualified"
        )


def declare(naming: Naming) -> Kind[Namespace]:
    rules = Rules(naming)
    return Kind(
        type=Namespace,
        group="",
        version="v1",
        plural="namespaces",
        scope=Scope.CLUSTER,
        rules=rules,
        defaults=rules.defaulted,  # the first writer owns the label
        short_names=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        writes=("metadata",),
        creates=("metadata", "spec"),
        owned=("spec",),
        answers_deleted_object=True,
        columns=(
            NAME,
            Column("Status", lambda ns, now: ns.status.phase, description="Active or Terminating."),
            AGE,
        ),
        selectable={"status.phase": lambda ns: ns.status.phase},
        endpoints=(
            Endpoint(
                "finalize",
                writes=("metadata", "spec"),
                rules=FinalizeRules(naming),
                verbs=("update",),
                has_table=False,
            ),
            Endpoint("status", writes=("metadata", "status"), rules=StatusRules(naming)),
        ),
    )
