"""Status: what the server answers when there is no object to answer with."""

from typing import Annotated

from msgspec import field

from orchid.wire.struct import Wire, describe, proto


class StatusCause(Wire):
    """One reason behind a failure, usually one field."""

    reason: Annotated[str, proto(1), describe("The sort of mistake, in one word.")] = ""
    message: Annotated[str, proto(2), describe("The mistake, in a sentence.")] = ""
    field: Annotated[str, proto(3), describe("The path of the field that is wrong.")] = ""


class StatusDetails(Wire):
    """What the failure is about; each reason fills in what it knows."""

    name: Annotated[str, proto(1), describe("The name of the object.")] = ""
    group: Annotated[str, proto(2), describe("The API group of the object.")] = ""
    kind: Annotated[str, proto(3), describe("The kind or the resource of the object.")] = ""
    uid: Annotated[str, proto(6), describe("The uid of the object.")] = ""
    causes: Annotated[
        tuple[StatusCause, ...], proto(4), describe("The single mistakes, if there are several.")
    ] = ()
    retry_after_seconds: Annotated[
        int, proto(5, "int32"), describe("How long to wait before another try.")
    ] = 0


class ListMeta(Wire):
    """Metadata of a list, and of a Status."""

    self_link: Annotated[
        str, proto(1), describe("Kept for old clients; the server never sets it.")
    ] = ""
    resource_version: Annotated[
        str, proto(2), describe("The state of the list; a watch may begin there.")
    ] = ""
    continue_: Annotated[
        str, proto(3), describe("Where the next page begins; empty on the last one.")
    ] = field(default="", name="continue")
    remaining_item_count: Annotated[
        int | None, proto(4), describe("How many objects the pages to come have, if that is known.")
    ] = None


class Status(Wire):
    """What became of a request when there is no object to answer with."""

    kind: Annotated[str, describe("The kind of the document.", required=False)] = field(
        default_factory=lambda: "Status"
    )
    api_version: Annotated[str, describe("The version of its form.", required=False)] = field(
        default_factory=lambda: "v1"
    )
    metadata: Annotated[ListMeta, proto(1), describe("About the answer.")] = field(
        default_factory=ListMeta
    )
    status: Annotated[str, proto(2), describe("`Success` or `Failure`.")] = ""
    message: Annotated[str, proto(3), describe("What happened, in a sentence.")] = ""
    reason: Annotated[str, proto(4), describe("Why, in one word that programs can compare.")] = ""
    details: Annotated[StatusDetails | None, proto(5), describe("What it is about.")] = None
    code: Annotated[int, proto(6, "int32"), describe("The HTTP status code.")] = 0
