"""References from one object to another, as several kinds carry them."""

from typing import Annotated

from orchid.wire.struct import Wire, proto


class ObjectReference(Wire):
    """Another object, by any of its marks."""

    kind: Annotated[str, proto(1)] = ""
    namespace: Annotated[str, proto(2)] = ""
    name: Annotated[str, proto(3)] = ""
    uid: Annotated[str, proto(4)] = ""
    api_version: Annotated[str, proto(5)] = ""
    resource_version: Annotated[str, proto(6)] = ""
    field_path: Annotated[str, proto(7)] = ""


class LocalObjectReference(Wire):
    """An object in the same namespace."""

    name: Annotated[str, proto(1)] = ""
