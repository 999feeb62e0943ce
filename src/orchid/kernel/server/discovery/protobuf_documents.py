"""Discovery in protobuf: the same documents as in documents.py.

`packed` converts a JSON document into the body. The types only declare field numbers.
"""

from typing import Annotated, Any

import msgspec
from msgspec import field

from orchid.kernel.wire.codec.protobuf import message_of, sealed
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.status import ListMeta
from orchid.kernel.wire.struct import Wire, proto


class _Address(Wire):
    client_cidr: Annotated[str, proto(1)] = field(default="", name="clientCIDR")
    server_address: Annotated[str, proto(2)] = ""


class _Versions(Wire):
    versions: Annotated[tuple[str, ...], proto(1)] = ()
    addresses: Annotated[tuple[_Address, ...], proto(2)] = field(
        default=(), name="serverAddressByClientCIDRs"
    )


class _GroupVersion(Wire):
    group_version: Annotated[str, proto(1)] = ""
    version: Annotated[str, proto(2)] = ""


class _Group(Wire):
    name: Annotated[str, proto(1)] = ""
    versions: Annotated[tuple[_GroupVersion, ...], proto(2)] = ()
    preferred_version: Annotated[_GroupVersion, proto(3)] = field(default_factory=_GroupVersion)


class _GroupList(Wire):
    groups: Annotated[tuple[_Group, ...], proto(1)] = ()


class _Verbs(Wire):
    items: Annotated[tuple[str, ...], proto(1)] = ()


class _Resource(Wire):
    name: Annotated[str, proto(1)] = ""
    namespaced: Annotated[bool, proto(2)] = False
    kind: Annotated[str, proto(3)] = ""
    verbs: Annotated[_Verbs, proto(4)] = field(default_factory=_Verbs)
    short_names: Annotated[tuple[str, ...], proto(5)] = ()
    singular_name: Annotated[str, proto(6)] = ""
    categories: Annotated[tuple[str, ...], proto(7)] = ()
    group: Annotated[str, proto(8)] = ""
    version: Annotated[str, proto(9)] = ""
    storage_version_hash: Annotated[str, proto(10)] = ""


class _ResourceList(Wire):
    group_version: Annotated[str, proto(1)] = ""
    resources: Annotated[tuple[_Resource, ...], proto(2)] = ()


class _ResponseKind(Wire):
    group: Annotated[str, proto(1)] = ""
    version: Annotated[str, proto(2)] = ""
    kind: Annotated[str, proto(3)] = ""


class _Subresource(Wire):
    subresource: Annotated[str, proto(1)] = ""
    response_kind: Annotated[_ResponseKind | None, proto(2)] = None
    verbs: Annotated[tuple[str, ...], proto(4)] = ()


class _Discovered(Wire):
    resource: Annotated[str, proto(1)] = ""
    response_kind: Annotated[_ResponseKind | None, proto(2)] = None
    scope: Annotated[str, proto(3)] = ""
    singular_resource: Annotated[str, proto(4)] = ""
    verbs: Annotated[tuple[str, ...], proto(5)] = ()
    short_names: Annotated[tuple[str, ...], proto(6)] = ()
    categories: Annotated[tuple[str, ...], proto(7)] = ()
    subresources: Annotated[tuple[_Subresource, ...], proto(8)] = ()


class _DiscoveredVersion(Wire):
    version: Annotated[str, proto(1)] = ""
    resources: Annotated[tuple[_Discovered, ...], proto(2)] = ()
    freshness: Annotated[str, proto(3)] = ""


class _DiscoveredGroup(Wire):
    metadata: Annotated[ObjectMeta, proto(1)] = field(default_factory=ObjectMeta)
    versions: Annotated[tuple[_DiscoveredVersion, ...], proto(2)] = ()


class _DiscoveredGroupList(Wire):
    metadata: Annotated[ListMeta, proto(1)] = field(default_factory=ListMeta)
    items: Annotated[tuple[_DiscoveredGroup, ...], proto(2)] = ()


_TYPES: dict[str, type[Wire]] = {
    "APIVersions": _Versions,
    "APIGroup": _Group,
    "APIGroupList": _GroupList,
    "APIResourceList": _ResourceList,
    "APIGroupDiscoveryList": _DiscoveredGroupList,
}


def packed(document: bytes) -> bytes:
    """The protobuf body of a JSON document."""
    said: dict[str, Any] = msgspec.json.decode(document)
    kind = said["kind"]
    for resource in said.get("resources", ()):
        resource["verbs"] = {"items": resource["verbs"]}
    type_ = _TYPES[kind]
    message = message_of(type_).encode(msgspec.convert(said, type_))
    return sealed(said.get("apiVersion", ""), kind, message)
