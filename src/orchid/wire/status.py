"""Status: what the server answers when there is no object to answer with."""

from msgspec import field

from orchid.wire.struct import Wire


class StatusCause(Wire):
    """One reason behind a failure, usually one field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire):
    """What the failure is about; each reason fills in what it knows."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class ListMeta(Wire):
    """Metadata of a list, and of a Status."""

    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None


class Status(Wire):
    kind: str = field(default_factory=lambda: "Status")
    api_version: str = field(default_factory=lambda: "v1")
    metadata: ListMeta = field(default_factory=ListMeta)
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0
