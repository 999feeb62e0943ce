"""There is always a next token key: without one, a revocation of the key would end all tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.adversary.invariants.violation import Violation

PATIENCE_SECONDS = 20.0


class Successors:
    """Since when no token key is Published."""

    def __init__(self) -> None:
        self._since: float | None = None

    def due(self, keys: Sequence[dict[str, Any]], now: float) -> Iterator[Violation]:
        is_published = any(
            not key["spec"].get("authority") and key["spec"].get("state") == "Published"
            for key in keys
        )
        if is_published:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since > PATIENCE_SECONDS:
            self._since = now
            yield Violation("no next token key", f"for {PATIENCE_SECONDS:.0f} seconds")
