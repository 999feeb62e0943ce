"""Options of a deletion, from the query and the body of its request.

`delete_options` is the start. Both may have options; a value that both have must be the same.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from orchid.kernel.engine.verbs.delete import IGNORE, DeleteOptions
from orchid.kernel.server.negotiate import PROTOBUF, SERVED, YAML, unsupported_media
from orchid.kernel.server.parse import query_delete_options
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire import options as values
from orchid.kernel.wire.codec.documents import Undecodable, decoder_of
from orchid.kernel.wire.codec.protobuf import message_of, opened
from orchid.kernel.wire.errors import BadRequest, ErrorSubject, refuse_if_any
from orchid.kernel.wire.fields import FieldError, invalid
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, replace
from orchid.kernel.wire.text import quote

LARGEST_OPTIONS = 65_536  # of the body of a deletion

W = TypeVar("W", bound=Wire)


def delete_options(
    state: RequestState, body: bytes, naming: Naming, *, collection: bool
) -> DeleteOptions:
    """The valid options of a request."""
    options = query_delete_options(state.query, collection=collection)
    if body:
        sent = state.sent = _sent_options(state, body)
        options = _merged(sent, options)
    refuse_if_any(
        ErrorSubject(naming.meta, "DeleteOptions"),
        _option_errors(options, collection=collection),
    )
    return options


def _sent_options(state: RequestState, body: bytes) -> DeleteOptions:
    media = _media_type(state)
    try:
        if media == PROTOBUF:
            said, message = opened(body)
            options = message_of(DeleteOptions).decode(
                message, kind=said.kind, api_version=said.api_version
            )
        else:
            options, _ = decoder_of(DeleteOptions).decode(body, yaml=media == YAML, findings=False)
    except Undecodable as failure:
        raise BadRequest(str(failure)) from None
    if options.kind not in ("", "DeleteOptions"):
        raise BadRequest(
            f"no kind {quote(options.kind)} is registered for version {quote(options.api_version)}"
        )
    return options


def _media_type(state: RequestState) -> str:
    """The media type of a request body; JSON by default."""
    media = state.head.client.media
    if media not in SERVED:
        raise unsupported_media()
    return media


def _merged(sent: DeleteOptions, asked: DeleteOptions) -> DeleteOptions:
    """The options of the body and of the query merged; a dry run if either says so."""
    agreed = _agreed(sent, replace(asked, dry_run=()))
    return replace(agreed, dry_run=(*sent.dry_run, *asked.dry_run))


def _agreed(sent: W, asked: W) -> W:
    """Either may omit a value; if both have one, they must agree."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(sent):
        from_body, from_query = getattr(sent, field.name), getattr(asked, field.name)
        if isinstance(from_body, Wire) and isinstance(from_query, Wire):
            from_body = from_query = _agreed(from_body, from_query)
        if from_body != from_query and field.default not in (from_body, from_query):
            said = f"{field.encode_name}: the body says {from_body} and the query says {from_query}"
            raise BadRequest(said)
        values[field.name] = from_query if from_body == field.default else from_body
    return replace(sent, **values)


def _option_errors(options: DeleteOptions, *, collection: bool = False) -> Iterator[FieldError]:
    if options.ignores_read_errors:
        yield from _unreadable_errors(options, collection)
    yield from values.propagation_policy_errors(
        options.propagation_policy, options.orphan_dependents
    )
    if options.dry_run:
        yield from values.dry_run_errors(options.dry_run)


def _unreadable_errors(options: DeleteOptions, collection: bool) -> Iterator[FieldError]:
    """Removing an undecodable object excludes all other options: there is no object to apply them
    to.
    """
    if collection:
        yield invalid(IGNORE, True, "is not allowed with DELETECOLLECTION")
    others = {
        "dryRun": options.dry_run,
        "gracePeriodSeconds": options.grace_period_seconds is not None,
        "orphanDependents": options.orphan_dependents is not None,
        "preconditions": options.preconditions is not None,
        "propagationPolicy": options.propagation_policy is not None,
    }
    for name, is_set in others.items():
        if is_set:
            yield invalid(IGNORE, True, f"cannot be set together with .{name}")
