"""Validation of metadata, for all kinds.

Start with `creation_errors` for a new object and `update_errors` for a changed one; a kind provides
the rule for its names. `path_errors` is a second check of a new name, run only if everything else
is valid. They yield errors and change nothing: the engine copies server-owned fields from the
stored object before.

On update an error occurs more than once. Kubernetes validates metadata twice, for all kinds and for
the kind, each time the values and the change; clients see all errors in the causes, so the
repetition is part of the response.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping

from orchid.kernel.wire.fields import (
    METADATA,
    FieldError,
    Path,
    Printed,
    forbidden,
    gathered,
    invalid,
    printed,
    required,
    too_long,
)
from orchid.kernel.wire.meta import ManagedFieldsEntry, ObjectMeta, OwnerReference, Time
from orchid.kernel.wire.naming import PLAIN_FINALIZERS
from orchid.kernel.wire.options import MANAGER_LENGTH, manager_errors
from orchid.kernel.wire.rules.names import (
    LABEL,
    are_labels,
    label_errors,
    label_value_errors,
    path_segment_errors,
    qualified_name_errors,
)
from orchid.kernel.wire.text import quote, timestamp

NameErrors = Callable[[str, bool], Iterable[str]]

NAME = METADATA / "name"
GENERATE_NAME = METADATA / "generateName"
NAMESPACE = METADATA / "namespace"
GENERATION = METADATA / "generation"
LABELS = METADATA / "labels"
ANNOTATIONS = METADATA / "annotations"
OWNERS = METADATA / "ownerReferences"
FINALIZERS = METADATA / "finalizers"
MANAGED_FIELDS = METADATA / "managedFields"

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
STANDARD_FINALIZERS = PLAIN_FINALIZERS | {ORPHAN, FOREGROUND}
ANNOTATIONS_SIZE = 256 * 1024
SUBRESOURCE_LENGTH = 256

# A body full of invalid keys would cause a response a hundred times its size.
_MOST_FINDINGS = 1000

_UNCHANGEABLE = operator.attrgetter(
    "name",
    "namespace",
    "uid",
    "creation_timestamp",
    "deletion_timestamp",
    "deletion_grace_period_seconds",
)

_DUPLICATE_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries{moment}; API server dedups owner "
    "references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
    "duplicate UID(s) observed: {uids}"
)


def creation_errors(
    meta: ObjectMeta,
    *,
    namespaced: bool,
    name_errors: NameErrors,
    only_known_finalizers: bool = True,
) -> Iterator[FieldError]:
    """Errors in the metadata of a new object, in the order of Kubernetes."""
    if _is_plain(meta, namespaced):
        yield from map(functools.partial(invalid, NAME, meta.name), name_errors(meta.name, False))
        return
    yield from _identity_errors(meta, namespaced, name_errors)
    yield from _content_errors(meta)
    yield from _finalizer_errors(meta.finalizers)
    yield from _managed_fields_errors(meta.managed_fields)
    if only_known_finalizers:
        yield from _standard_finalizer_errors(meta.finalizers)


def path_errors(meta: ObjectMeta) -> Iterator[FieldError]:
    """Names that are impossible in a URL, whatever the kind's own rule."""
    if meta.generate_name:
        yield from _each(GENERATE_NAME, meta.generate_name, path_segment_errors, prefix=True)
    yield from _each(NAME, meta.name, path_segment_errors, prefix=False)


def update_errors(
    new: ObjectMeta,
    old: ObjectMeta,
    *,
    namespaced: bool,
    name_errors: NameErrors,
    only_known_finalizers: bool = True,
) -> Iterable[FieldError]:
    """Errors in changed metadata, each as often as Kubernetes repeats it."""
    if (
        _UNCHANGEABLE(new) == _UNCHANGEABLE(old)
        and new.generation >= old.generation
        and _is_plain(new, namespaced)
    ):
        problems = (*path_segment_errors(new.name), *name_errors(new.name, False))
        return map(functools.partial(invalid, NAME, new.name), problems) if problems else ()
    return _all_update_errors(new, old, namespaced, name_errors, only_known_finalizers)


def _all_update_errors(
    new: ObjectMeta,
    old: ObjectMeta,
    namespaced: bool,
    name_errors: NameErrors,
    only_known_finalizers: bool,
) -> Iterator[FieldError]:
    changes = gathered(_change_errors(new, old))
    content = gathered(_content_errors(new))
    finalizers = gathered(_finalizer_errors(new.finalizers))
    managed = gathered(_managed_fields_errors(new.managed_fields))
    nonstandard = gathered(
        _standard_finalizer_errors(new.finalizers) if only_known_finalizers else ()
    )

    yield from _identity_errors(new, namespaced, path_segment_errors)
    yield from (*content, *finalizers, *managed)
    yield from (*changes, *content, *managed)

    yield from (*changes, *content, *managed, *nonstandard)
    yield from _identity_errors(new, namespaced, name_errors)
    yield from (*content, *finalizers, *managed, *nonstandard)


def dedup_owner_references(
    references: tuple[OwnerReference, ...], *, after_admission: bool = False
) -> tuple[tuple[OwnerReference, ...], str | None]:
    """Drop references that equal another in every field; return a warning if there were any.

    `after_admission` is for the second check, and for every patch.
    """
    if len(set(references)) == len(references):
        return references, None
    kept = dict.fromkeys(references)
    seen: set[OwnerReference] = set()
    repeated = []
    for reference in references:
        if reference in seen:
            repeated.append(reference.uid)
        seen.add(reference)
    moment = " after mutating admission happens" if after_admission else ""
    return tuple(kept), _DUPLICATE_OWNERS.format(moment=moment, uids=", ".join(repeated))


def _is_plain(meta: ObjectMeta, namespaced: bool) -> bool:
    """Fast check: whether only the name can be invalid, as in most objects."""
    return bool(
        meta.name
        and not (meta.generate_name or meta.annotations or meta.owner_references or meta.finalizers)
        and meta.generation >= 0
        and (LABEL(meta.namespace) if namespaced else not meta.namespace)
        and (not meta.labels or are_labels(meta.labels))
        and (not meta.managed_fields or all(map(_is_ordinary, meta.managed_fields)))
    )


def _identity_errors(
    meta: ObjectMeta, namespaced: bool, name_errors: NameErrors
) -> Iterator[FieldError]:
    if meta.generate_name:
        yield from _each(GENERATE_NAME, meta.generate_name, name_errors, prefix=True)
    if meta.name:
        yield from _each(NAME, meta.name, name_errors, prefix=False)
    else:
        yield required(NAME, "name or generateName is required")
    if namespaced:
        if meta.namespace:
            yield from _each(NAMESPACE, meta.namespace, label_errors, prefix=False)
        else:
            yield required(NAMESPACE)
    elif meta.namespace:
        yield forbidden(NAMESPACE, "not allowed on this type")
    if meta.generation < 0:
        yield invalid(GENERATION, meta.generation, "must be greater than or equal to 0")


def _each(path: Path, value: str, rule: NameErrors, *, prefix: bool) -> Iterator[FieldError]:
    for detail in rule(value, prefix):
        yield invalid(path, value, detail)


def _content_errors(meta: ObjectMeta) -> Iterator[FieldError]:
    if meta.labels:
        yield from itertools.islice(_label_errors(meta.labels), _MOST_FINDINGS)
    if meta.annotations:
        yield from _annotation_errors(meta.annotations)
    if meta.owner_references:
        yield from itertools.islice(_owner_errors(meta.owner_references), _MOST_FINDINGS)


def _label_errors(labels: Mapping[str, str]) -> Iterator[FieldError]:
    for key, value in labels.items():
        for detail in qualified_name_errors(key):
            yield invalid(LABELS, key, detail)
        for detail in label_value_errors(value):
            yield invalid(LABELS, value, detail)


def _annotation_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    errors = (
        invalid(ANNOTATIONS, key, detail)
        for key in annotations
        for detail in qualified_name_errors(key.lower())
    )
    yield from itertools.islice(errors, _MOST_FINDINGS)
    # A character takes at most four bytes: short texts need no exact count.
    characters = sum(len(key) + len(value) for key, value in annotations.items())
    if characters * 4 > ANNOTATIONS_SIZE and annotations_size(annotations) > ANNOTATIONS_SIZE:
        yield too_long(ANNOTATIONS, ANNOTATIONS_SIZE)


def annotations_size(annotations: Mapping[str, str]) -> int:
    """Size of all keys and values in bytes, which is limited."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def _owner_errors(references: tuple[OwnerReference, ...]) -> Iterator[FieldError]:
    controller = ""
    whole: Printed | None = None
    for reference in references:
        yield from _one_owner_errors(reference)
        if not reference.controller:
            continue
        title = f"{reference.kind}/{reference.name}"
        if controller:
            whole = whole or Printed(printed(references))
            yield invalid(
                OWNERS,
                whole,
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {controller} and {title}',
            )
        else:
            controller = title


def _one_owner_errors(reference: OwnerReference) -> Iterator[FieldError]:
    if not _version(reference.api_version):
        yield invalid(OWNERS / "apiVersion", reference.api_version, "version must not be empty")
    for member in ("kind", "name", "uid"):
        if not getattr(reference, member):
            yield invalid(OWNERS / member, "", "must not be empty")
    if reference.kind == "Event" and reference.api_version.removeprefix("/") == "v1":
        yield invalid(OWNERS, reference, "/v1, Kind=Event is disallowed from being an owner")


def _version(api_version: str) -> str:
    """The version in `group/version`; empty if it is invalid."""
    group, _, version = api_version.rpartition("/")
    return "" if "/" in group else version


def _finalizer_errors(finalizers: tuple[str, ...]) -> Iterator[FieldError]:
    if not finalizers:
        return
    errors = (
        invalid(FINALIZERS, finalizer, detail)
        for finalizer in finalizers
        for detail in qualified_name_errors(finalizer)
    )
    yield from itertools.islice(errors, _MOST_FINDINGS)
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        yield invalid(
            FINALIZERS, finalizers, f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        )


def _standard_finalizer_errors(finalizers: tuple[str, ...]) -> Iterator[FieldError]:
    errors = (
        invalid(
            FINALIZERS[index],
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        )
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS
    )
    yield from itertools.islice(errors, _MOST_FINDINGS)


def _managed_fields_errors(entries: tuple[ManagedFieldsEntry, ...]) -> Iterator[FieldError]:
    for index, entry in enumerate(entries):
        if _is_ordinary(entry):
            continue
        path = MANAGED_FIELDS[index]
        if entry.operation not in ("Apply", "Update"):
            yield invalid(path / "operation", entry.operation, "must be `Apply` or `Update`")
        if entry.fields_type not in ("FieldsV1", ""):
            yield invalid(path / "fieldsType", entry.fields_type, "must be `FieldsV1`")
        yield from manager_errors(path / "manager", entry.manager)
        if len(entry.subresource.encode()) > SUBRESOURCE_LENGTH:
            yield too_long(path / "subresource", SUBRESOURCE_LENGTH)


def _is_ordinary(entry: ManagedFieldsEntry) -> bool:
    """Fast check: an entry as the server writes it, which is valid."""
    return (
        entry.operation in ("Apply", "Update")
        and entry.fields_type == "FieldsV1"
        and entry.manager.isascii()
        and entry.manager.isprintable()
        and len(entry.manager) <= MANAGER_LENGTH
        and entry.subresource.isascii()
        and len(entry.subresource) <= SUBRESOURCE_LENGTH
    )


def _change_errors(new: ObjectMeta, old: ObjectMeta) -> Iterator[FieldError]:
    if old.deletion_timestamp is not None and new.finalizers != old.finalizers:
        yield from _new_finalizer_errors(new.finalizers, old.finalizers)
    if new.generation < old.generation:
        yield invalid(GENERATION, new.generation, "must not be decremented")
    for member, now, before in (
        ("name", new.name, old.name),
        ("namespace", new.namespace, old.namespace),
        ("uid", new.uid, old.uid),
        ("creationTimestamp", new.creation_timestamp, old.creation_timestamp),
        ("deletionTimestamp", new.deletion_timestamp, old.deletion_timestamp),
        (
            "deletionGracePeriodSeconds",
            new.deletion_grace_period_seconds,
            old.deletion_grace_period_seconds,
        ),
    ):
        if now != before:
            value = timestamp(now) if isinstance(now, Time) else now
            yield invalid(METADATA / member, value, "field is immutable")


def _new_finalizer_errors(new: tuple[str, ...], old: tuple[str, ...]) -> Iterator[FieldError]:
    added = sorted(set(new) - set(old))
    if added:
        names = ", ".join(quote(name) for name in added)
        yield forbidden(
            FINALIZERS,
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{names}}}",
        )
