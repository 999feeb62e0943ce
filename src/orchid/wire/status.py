"""Status: what the server answers when there is no object to answer with."""

from typing import Annotated

from msgspec import field

from orchid.wire.struct import Wire, proto


class StatusCause(Wire):
    """One reason behind a failure, usually one field."""

    reason: Annotated[str, proto(1)] = ""
    message: Annotated[str, proto(2)] = ""
    field: Annotated[str, proto(3)] = ""


class StatusDetails(Wire):
    """What the failure is about; each reason fills in what it knows."""

    name: Annotated[str, proto(1)] = ""
    group: Annotated[str, proto(2)] = ""
    kind: Annotated[str, proto(3)] = ""
    uid: Annotated[str, proto(6)] = ""
    causes: Annotated[tuple[StatusCause, ...], proto(4)] = ()
    retry_after_seconds: Annotated[int, proto(5, "int32")] = 0


class ListMeta(Wire):
    """Metadata of a list, and of a Status."""

    self_link: Annotated[str, proto(1)] = ""
    resource_version: Annotated[str, proto(2)] = ""
    continue_: Annotated[str, proto(3)] = field(default="", name="continue")
    remaining_item_count: Annotated[int | None, proto(4)] = None


class Status(Wire):
    kind: str = field(default_factory=lambda: "Status")
    api_version: str = field(default_factory=lambda: "v1")
    metadata: Annotated[ListMeta, proto(1)] = field(default_factory=ListMeta)
    status: Annotated[str, proto(2)] = ""
    message: Annotated[str, proto(3)] = ""
    reason: Annotated[str, proto(4)] = ""
    details: Annotated[StatusDetails | None, proto(5)] = None
    code: Annotated[int, proto(6, "int32")] = 0
