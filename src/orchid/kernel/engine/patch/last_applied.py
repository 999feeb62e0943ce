"""The annotation in which client-side apply stores the last applied configuration.

Only for the command line's own manager name. `forgiven` returns conflicts with its own past: fields
that the annotation set and that did not change since. `refreshed` updates the annotation, so that
an older command line can still take over.
"""

from __future__ import annotations

from typing import Any

import msgspec

from orchid.kernel.engine.patch.compare import claimed, compare
from orchid.kernel.engine.patch.field_set import EMPTY, FieldSet
from orchid.kernel.engine.patch.schema_check import problems
from orchid.kernel.wire.schema import Fields

MOST_ANNOTATION_BYTES = 256 * 1024


def forgiven(
    live: dict[str, Any], annotation: str, *, schema: Fields, api_version: str
) -> FieldSet:
    """The fields whose value in the annotation is still the live one."""
    text = _annotations(live).get(annotation)
    if not isinstance(text, str) or not text:
        return EMPTY
    try:
        config = msgspec.json.decode(text)
        if not isinstance(config, dict) or config.get("apiVersion") != api_version:
            return EMPTY
        if any(True for _ in problems(schema, config)):
            return EMPTY
        changed, removed = compare(schema, config, live)
        return claimed(schema, config).difference(changed).difference(removed)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return EMPTY  # not a configuration


def refreshed(result: dict[str, Any], config: dict[str, Any], annotation: str) -> dict[str, Any]:
    """The result with its annotation, if it has one, updated."""
    annotations = _annotations(result)
    if not annotations.get(annotation):
        return result
    text = _as_applied(config, annotation)
    kept = {name: value for name, value in annotations.items() if name != annotation}
    if _size(kept) + len(annotation.encode()) + len(text.encode()) <= MOST_ANNOTATION_BYTES:
        kept[annotation] = text
    metadata = result["metadata"] | {"annotations": kept}
    return result | {"metadata": metadata}


def _as_applied(config: dict[str, Any], annotation: str) -> str:
    """The configuration as stored in the annotation: without the annotation itself."""
    annotations = _annotations(config)
    if annotation in annotations:
        kept = {name: value for name, value in annotations.items() if name != annotation}
        config = config | {"metadata": config["metadata"] | {"annotations": kept}}
    return msgspec.json.encode(config, order="deterministic").decode() + "\n"


def _annotations(value: dict[str, Any]) -> dict[str, Any]:
    metadata = value.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _size(annotations: dict[str, Any]) -> int:
    return sum(len(name.encode()) + len(str(value).encode()) for name, value in annotations.items())
