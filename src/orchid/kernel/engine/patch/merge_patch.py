"""JSON merge patch (RFC 7396): objects merge, null removes, everything else replaces.

Start at `apply`. The document is never changed; parts that the patch does not name are shared with
it.
"""

from typing import Any

from orchid.kernel.wire.errors import BadRequest

TOO_DEEP = "error decoding patch: exceeded max depth"


def apply(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The document after the patch. A patch that is not an object is refused."""
    if patch is None:
        raise BadRequest("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise BadRequest("error decoding patch: a merge patch must be a JSON object")
    try:
        return _merged(document, patch)
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None


def _merged(target: Any, patch: dict[str, Any]) -> dict[str, Any]:
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _merged(result.get(name), value)
        else:
            result[name] = value
    return result
