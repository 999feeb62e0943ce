"""The messages of etcd's API that the store needs.

Each message is declared here as a typed class, with the field numbers of etcd's v3 API, and
converted into a protobuf class; unused fields are omitted, and protobuf skips them. The calls are
at the end. No code is generated, and nothing here does I/O.

An absent submessage reads as an empty one: a key that does not exist is at revision 0.
"""

from collections.abc import Callable, Sequence
from typing import (
    Any,
    Generic,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_pool = DescriptorPool()  # our own, so that other users of protobuf cannot interfere
_PACKAGE = "orchid.etcd"
_SCALARS = {
    bytes: FieldDescriptorProto.TYPE_BYTES,
    str: FieldDescriptorProto.TYPE_STRING,
    int: FieldDescriptorProto.TYPE_INT64,  # enumerations too: they have the same encoding
    bool: FieldDescriptorProto.TYPE_BOOL,
}


class Repeated(Protocol[T_co]):
    """A list of messages in a request; `add` makes one in its place, which copies nothing."""

    def add(self, **fields: Any) -> T_co: ...


def number(tag: int) -> Any:
    """The number of a field."""
    return tag


@dataclass_transform(kw_only_default=True)
def message(declared: type[T]) -> type[T]:
    """Create a protobuf class from a declaration."""
    name = declared.__name__
    file = FileDescriptorProto(name=name, package=_PACKAGE, syntax="proto3")
    kind = file.message_type.add(name=name)
    for field, hint in get_type_hints(declared).items():
        repeated = get_origin(hint) in (Sequence, Repeated)
        type_ = get_args(hint)[0] if repeated else hint
        added = kind.field.add(name=field, number=getattr(declared, field))
        added.label = (
            FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        )
        if type_ in _SCALARS:
            added.type = _SCALARS[type_]
        else:
            added.type = FieldDescriptorProto.TYPE_MESSAGE
            added.type_name = f".{_PACKAGE}.{type_.__name__}"
            if type_.__name__ not in file.dependency:
                file.dependency.append(type_.__name__)
    _pool.Add(file)
    class_ = GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
    return cast("type[T]", class_)


@message
class Header:
    revision: int = number(3)


@message
class KeyValue:
    key: bytes = number(1)
    create_revision: int = number(2)
    mod_revision: int = number(3)
    value: bytes = number(5)


@message
class RangeRequest:
    key: bytes = number(1)
    range_end: bytes = number(2)
    limit: int = number(3)
    revision: int = number(4)
    keys_only: bool = number(8)
    count_only: bool = number(9)
    min_mod_revision: int = number(10)


@message
class RangeResponse:
    header: Header = number(1)
    kvs: Sequence[KeyValue] = number(2)
    more: bool = number(3)


@message
class PutRequest:
    key: bytes = number(1)
    value: bytes = number(2)
    prev_kv: bool = number(4)


@message
class PutResponse:
    prev_kv: KeyValue = number(2)


@message
class DeleteRangeRequest:
    key: bytes = number(1)
    range_end: bytes = number(2)
    prev_kv: bool = number(3)


@message
class DeleteRangeResponse:
    prev_kvs: Sequence[KeyValue] = number(3)


@message
class RequestOp:
    """A oneof."""

    request_range: RangeRequest = number(1)
    request_put: PutRequest = number(2)
    request_delete_range: DeleteRangeRequest = number(3)


@message
class ResponseOp:
    """A oneof, as in the request."""

    response_range: RangeResponse = number(1)
    response_put: PutResponse = number(2)
    response_delete_range: DeleteRangeResponse = number(3)


MOD_REVISION = 2
"""A Compare's `target`: the revision that last changed the key."""

LESS = 2
"""A Compare's `result`, which must hold for every key of its range; 0 means equal."""


@message
class Compare:
    result: int = number(1)
    target: int = number(2)
    key: bytes = number(3)
    mod_revision: int = number(6)
    range_end: bytes = number(64)


@message
class TxnRequest:
    compare: Repeated[Compare] = number(1)
    success: Repeated[RequestOp] = number(2)
    failure: Repeated[RequestOp] = number(3)


@message
class TxnResponse:
    header: Header = number(1)
    succeeded: bool = number(2)
    responses: Sequence[ResponseOp] = number(3)


@message
class CompactionRequest:
    revision: int = number(1)


@message
class CompactionResponse:
    header: Header = number(1)


@message
class StatusRequest:
    pass


@message
class StatusResponse:
    header: Header = number(1)
    version: str = number(2)


@message
class WatchCreateRequest:
    key: bytes = number(1)
    range_end: bytes = number(2)
    start_revision: int = number(3)
    progress_notify: bool = number(4)
    prev_kv: bool = number(6)


@message
class WatchRequest:
    create_request: WatchCreateRequest = number(1)


DELETED = 1
"""A WatchEvent's `type`; 0 is a put."""


@message
class EtcdEvent:
    type: int = number(1)
    kv: KeyValue = number(2)
    prev_kv: KeyValue = number(3)


@message
class WatchResponse:
    header: Header = number(1)
    created: bool = number(3)
    canceled: bool = number(4)
    compact_revision: int = number(5)
    cancel_reason: str = number(6)
    events: Sequence[EtcdEvent] = number(11)


class Method(msgspec.Struct, Generic[Q, A], frozen=True):
    """A call: its path, its request and its response type."""

    path: str
    request: type[Q]
    answer: type[A]

    @property
    def encode(self) -> Callable[[Q], bytes]:
        return cast("Callable[[Q], bytes]", cast("Any", self.request).SerializeToString)

    @property
    def decode(self) -> Callable[[bytes], A]:
        return cast("Callable[[bytes], A]", cast("Any", self.answer).FromString)


RANGE = Method("/etcdserverpb.KV/Range", RangeRequest, RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", TxnRequest, TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", CompactionRequest, CompactionResponse)
STATUS = Method("/etcdserverpb.Maintenance/Status", StatusRequest, StatusResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", WatchRequest, WatchResponse)
