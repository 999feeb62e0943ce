"""Status: the response body without an object, for errors and deletions."""

from typing import Annotated

from msgspec import field

from orchid.kernel.wire.struct import Wire, describe, proto


class StatusCause(Wire):
    """A single cause of a failure, usually a field."""

    reason: Annotated[str, proto(1), describe("The type of the error as one word.")] = ""
    message: Annotated[str, proto(2), describe("The error as a sentence.")] = ""
    field: Annotated[str, proto(3), describe("The path of the invalid field.")] = ""


class StatusDetails(Wire):
    """The object of a failure; the reason decides which fields are set."""

    name: Annotated[str, proto(1), describe("The name of the object.")] = ""
    group: Annotated[str, proto(2), describe("The API group of the object.")] = ""
    kind: Annotated[str, proto(3), describe("The kind or the resource of the object.")] = ""
    uid: Annotated[str, proto(6), describe("The uid of the object.")] = ""
    causes: Annotated[tuple[StatusCause, ...], proto(4), describe("The single errors.")] = ()
    retry_after_seconds: Annotated[
        int, proto(5, "int32"), describe("Seconds to wait before a retry.")
    ] = 0


class ListMeta(Wire):
    """Metadata of a list, and of a Status."""

    self_link: Annotated[str, proto(1), describe("Deprecated; never set.")] = ""
    resource_version: Annotated[
        str, proto(2), describe("The revision of the list; a watch can start there.")
    ] = ""
    continue_: Annotated[
        str, proto(3), describe("The token for the next page; empty on the last one.")
    ] = field(default="", name="continue")
    remaining_item_count: Annotated[
        int | None, proto(4), describe("The number of objects on further pages, if known.")
    ] = None


class Status(Wire):
    """The result of a request without an object."""

    kind: Annotated[str, describe("The kind of the document.", required=False)] = field(
        default_factory=lambda: "Status"
    )
    api_version: Annotated[str, describe("The API version of the document.", required=False)] = (
        field(default_factory=lambda: "v1")
    )
    metadata: Annotated[ListMeta, proto(1), describe("Metadata of the response.")] = field(
        default_factory=ListMeta
    )
    status: Annotated[str, proto(2), describe("`Success` or `Failure`.")] = ""
    message: Annotated[str, proto(3), describe("The result as a sentence.")] = ""
    reason: Annotated[str, proto(4), describe("The machine-readable reason.")] = ""
    details: Annotated[StatusDetails | None, proto(5), describe("The object and the causes.")] = (
        None
    )
    code: Annotated[int, proto(6, "int32"), describe("The HTTP status code.")] = 0
