"""Checks of the published bundles of a running server."""

from collections.abc import Iterator
from typing import Any, Final

from orchid.kernel.terminal.connection import path
from orchid.kernel.terminal.findings import Finding, Installation, good, note, soon

MOST_NAMED: Final = 5


def bundles(here: Installation) -> Iterator[Finding]:
    """The current edition of every published bundle has what its sources have."""
    if here.server is None:
        return
    url = path("apis", here.server.naming.identity, "v1beta1", "publishedbundles")
    objects = list(here.server.items(url))
    late = [(bundle["metadata"]["name"], _ready(bundle)) for bundle in objects]
    late = [(name, ready) for name, ready in late if ready.get("status") != "True"]
    for name, ready in late[:MOST_NAMED]:
        why = ready.get("message") or "no controller has published it"
        yield soon(f"the bundle {name} is not published: {why}", "see docs/trust.md, Editions")
    if len(late) > MOST_NAMED:
        yield note(f"{len(late) - MOST_NAMED} more bundles are not published")
    if not late:
        yield good(f"published bundles are current: {len(objects)}")


def _ready(bundle: dict[str, Any]) -> dict[str, Any]:
    conditions = bundle.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == "Ready"), {})
