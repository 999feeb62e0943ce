"""Check of the receiver of notices, by the progress that the controller stores."""

import json
from collections.abc import Iterator
from typing import Any, Final

from orchid.features.notices.settings import ReceiverSettings
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import NOT_FOUND, CommandRefused, Json, path
from orchid.kernel.terminal.findings import Check, Finding, Installation, good, note, wrong

NAME: Final = "notices"
ENTRY: Final = "progress.json"


def notices(here: Installation) -> Iterator[Finding]:
    """The receiver of --notice-url takes the notices."""
    if here.server is None or not here.settings.given.of(ReceiverSettings).notice_url:
        return
    place = path("api", "v1", "namespaces", here.server.naming.system_namespace, "configmaps", NAME)
    try:
        progress = _progress(here.server.get(place))
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        yield note("no notice was sent yet: no controller has begun")
        return
    waiting = len(progress.get("pending") or ())
    failing = progress.get("failing")
    if failing:
        since = times.parse(failing.get("since"))
        how_long = times.span((here.now - since).total_seconds()) if since else "some time"
        yield wrong(
            f"the receiver of notices fails since {how_long}: {failing.get('why')}; {waiting} wait",
            "see --notice-url, --notice-ca-file and --notice-token-file, and the receiver's log",
        )
    elif progress.get("delivered"):
        yield good(f"notices are delivered, the last one {progress['delivered']}; {waiting} wait")
    else:
        yield good(f"there was no reason for a notice yet; {waiting} wait")


def _progress(config_map: Json) -> dict[str, Any]:
    try:
        progress = json.loads((config_map.get("data") or {}).get(ENTRY, "{}"))
    except ValueError:
        return {}
    return progress if isinstance(progress, dict) else {}


CHECKS: Final[dict[str, Check]] = {"notices": notices}
