"""From a request body to an object of the endpoint's kind.

A body may omit kind and apiVersion; if present they must match. Unknown and duplicate fields are
warnings, errors or ignored, depending on fieldValidation.
"""

from typing import Any, TypeVar

from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.codec.documents import (
    Malformed,
    Undecodable,
    body_summary,
    plain,
    strict_error,
    type_meta,
)
from orchid.kernel.wire.codec.protobuf import message_of, opened
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.meta import ManagedFieldsEntry, Object
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import REDACTED, quote, shown

T = TypeVar("T", bound=Object)

# An object cannot represent an empty list, so one empty entry means none.
NO_OWNERS = (ManagedFieldsEntry(),)

VERSION_UNREADABLE = "couldn't get version/kind; json parse error: "


def decode_object(
    catalog: Catalog, kind: Kind[T], body: bytes, request: Request, *, yaml: bool = False
) -> T:
    """Decode a JSON or YAML body; every error in it is a 400 with the reason."""
    mode = request.options.field_validation
    try:
        new, findings = kind.decoder.decode(body, yaml=yaml, findings=mode != "Ignore")
    except Undecodable as failure:
        raise undecodable(kind, body, failure, yaml=yaml) from None
    if not new.kind and not new.api_version:
        new = replace(new, kind=kind.name, api_version=kind.api_version)
    elif new.kind != kind.name or new.api_version != kind.api_version:
        _require_readable_version(kind, new, body)
        new = _identified(catalog, kind, new)
    if kind.defaults:
        new = kind.defaults(new)
    if findings:
        if mode == "Strict":
            raise cannot_be_handled(kind.name, kind.api_version, kind, strict_error(findings))
        for finding in findings:
            request.warn(finding)
    if b"managedFields" in body and not new.metadata.managed_fields:
        document = yaml_text.load(body)[0] if yaml else plain(body)
        if resets_ownership(document):
            new = new.with_meta(managed_fields=NO_OWNERS)
    return new


def _require_readable_version(kind: Kind[Any], new: Object, body: bytes) -> None:
    if new.api_version.count("/") > 1:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind.name}): unexpected "
            f"GroupVersion string: {shown(new.api_version)} ({summary(kind, body)})"
        )


def summary(kind: Kind[Any], body: bytes) -> str:
    """The beginning of a body that could not be decoded; omitted if it may be a secret."""
    return REDACTED if kind.confidential and body else body_summary(body)


def resets_ownership(document: Any) -> bool:
    """Whether a document resets managedFields: an empty list, not a missing one."""
    meta = document.get("metadata") if isinstance(document, dict) else None
    return isinstance(meta, dict) and meta.get("managedFields") == []


def decode_message(catalog: Catalog, kind: Kind[T], body: bytes) -> T:
    """Decode a protobuf body. It has no unknown field names, so nothing is reported."""
    try:
        said, message = opened(body)
    except Undecodable as failure:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind.name}): "
            f"{failure} ({summary(kind, body)})"
        ) from None
    if said.kind != kind.name or said.api_version != kind.api_version:
        # Field numbers mean nothing before the kind is known.
        _identified(catalog, kind, kind.type(kind=said.kind, api_version=said.api_version))
    try:
        new = message_of(kind.type).decode(message, kind=kind.name, api_version=kind.api_version)
    except Undecodable as failure:
        raise cannot_be_handled(kind.name, kind.api_version, kind, str(failure)) from None
    return kind.defaults(new) if kind.defaults else new


def _identified(catalog: Catalog, kind: Kind[T], new: T) -> T:
    """Check apiVersion and kind of the body, and fill in missing ones."""
    name, api_version = shown(new.kind) or kind.name, shown(new.api_version)
    if api_version.count("/") > 1:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind.name}): "
            f"unexpected GroupVersion string: {api_version}"
        )
    group, _, version = api_version.rpartition("/")
    if not api_version or (not version and group == kind.group):
        api_version = kind.api_version
    if name == kind.name and api_version == kind.api_version:
        return replace(new, kind=name, api_version=api_version)
    named = catalog.named(api_version, name)
    if (name, group) == (kind.name, kind.group) and version in kind.known_versions:
        named = kind
    if named is None:
        problem = f"no kind {quote(name)} is registered for version {quote(api_version)}"
    elif named.stored is kind.stored:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    else:
        problem = f"a {name} is not a {kind.name}"
    raise cannot_be_handled(name, api_version, kind, problem)


def cannot_be_handled(name: str, api_version: str, kind: Kind[Any], problem: str) -> BadRequest:
    version = api_version.rpartition("/")[2]
    return BadRequest(
        f"{name} in version {quote(version)} cannot be handled as a {kind.name}: {problem}"
    )


def undecodable(kind: Kind[Any], body: bytes, failure: Undecodable, *, yaml: bool) -> BadRequest:
    if not isinstance(failure, Malformed):
        try:
            said = type_meta(body, yaml=yaml)
        except Undecodable:
            pass
        else:
            return cannot_be_handled(
                shown(said.kind) or kind.name,
                shown(said.api_version) or kind.api_version,
                kind,
                str(failure),
            )
    # Kubernetes has this prefix for all but malformed YAML.
    blame = "" if yaml and isinstance(failure, Malformed) else VERSION_UNREADABLE
    return BadRequest(
        f"the object provided is unrecognized (must be of type {kind.name}): "
        f"{blame}{failure} ({summary(kind, body)})"
    )
