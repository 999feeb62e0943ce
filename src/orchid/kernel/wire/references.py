"""References to other objects, used by several kinds, and whether an object belongs to another.

A name says nothing of a relation: somebody else may take it, and dependents may outlive the object
that had it. An object belongs to the owner that its controlling reference names by kind, name and
uid (`belongs_to`); `is_owned_by` is the same for references of any sort.
"""

from collections.abc import Iterator
from typing import Annotated, Final

from orchid.kernel.wire.fields import FieldError, Path, invalid, required, too_long
from orchid.kernel.wire.meta import Object, ObjectMeta, OwnerReference
from orchid.kernel.wire.rules.names import label_errors, subdomain_errors
from orchid.kernel.wire.struct import Wire, always, describe, proto


class ObjectReference(Wire):
    """A reference to another object; every field is optional."""

    published_as = "core.v1.ObjectReference"
    atomic = True

    kind: Annotated[str, proto(1), describe("The kind of the object.")] = ""
    namespace: Annotated[str, proto(2), describe("The namespace of the object.")] = ""
    name: Annotated[str, proto(3), describe("The name of the object.")] = ""
    uid: Annotated[str, proto(4), describe("The uid of the object.")] = ""
    api_version: Annotated[str, proto(5), describe("The API version of the object.")] = ""
    resource_version: Annotated[str, proto(6), describe("The resourceVersion of the object.")] = ""
    field_path: Annotated[str, proto(7), describe("The path of a field of the object.")] = ""


class LocalObjectReference(Wire):
    """An object in the same namespace."""

    published_as = "core.v1.LocalObjectReference"
    atomic = True

    name: Annotated[str, proto(1), describe("The name of the object.")] = ""


class SecretReference(Wire):
    """A Secret in any namespace."""

    name: Annotated[str, proto(1), describe("The name of the Secret.")] = ""
    namespace: Annotated[str, proto(2), describe("The namespace of the Secret.")] = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


LONGEST_LABEL: Final = 128  # characters


class HsmKeyReference(Wire):
    """A pair of keys in the hardware security module of the server."""

    label: Annotated[str, proto(1), describe("Its label: CKA_LABEL of both keys.")] = always(str)


def hsm_key_errors(reference: HsmKeyReference, path: Path) -> Iterator[FieldError]:
    """Check the label of a key in an HSM."""
    if not reference.label:
        yield required(path / "label")
    elif len(reference.label) > LONGEST_LABEL:
        yield too_long(path / "label", LONGEST_LABEL, "character")
    elif not reference.label.isprintable():
        yield invalid(path / "label", reference.label, "must be printable")


def reference_errors(reference: SecretReference, path: Path) -> Iterator[FieldError]:
    """Check the namespace and the name of a referenced Secret."""
    for name, text, rule in (
        ("namespace", reference.namespace, label_errors),
        ("name", reference.name, subdomain_errors),
    ):
        if not text:
            yield required(path / name)
        for problem in rule(text) if text else ():
            yield invalid(path / name, text, problem)


# --- owners -----------------------------------------------------------------------------------


def owner_reference(
    owner: Object, api_version: str, *, controller: bool | None = True
) -> OwnerReference:
    """The reference of a dependent, by default the controlling one."""
    return OwnerReference(
        api_version=api_version,
        kind=type(owner).__name__,
        name=owner.name,
        uid=owner.metadata.uid,
        controller=controller,
    )


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The controlling reference, of which an object has at most one."""
    return next((one for one in meta.owner_references if one.controller), None)


def belongs_to(dependent: Object, owner: Object) -> bool:
    """Whether an object is the controlling owner of another; false for an owner without a uid."""
    reference = controller_of(dependent.metadata)
    return reference is not None and _names(reference, owner)


def is_owned_by(dependent: Object, owner: Object) -> bool:
    """Whether an object is one of the owners of another; false for an owner without a uid."""
    return any(_names(reference, owner) for reference in dependent.metadata.owner_references)


def _names(reference: OwnerReference, owner: Object) -> bool:
    named = reference.kind, reference.name, reference.uid
    return bool(reference.uid) and named == (type(owner).__name__, owner.name, owner.metadata.uid)
