"""References to other objects, used by several kinds."""

from typing import Annotated

from orchid.wire.struct import Wire, describe, proto


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
