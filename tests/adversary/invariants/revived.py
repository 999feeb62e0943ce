"""A restore names everything that it makes valid again.

An object whose deletion ended a credential, or decided about credentials, exists again after the
restore of an older backup. That cannot be avoided, but the command must say so.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.adversary.invariants.violation import Violation
from tests.adversary.observer import Seen

DECIDE = ("approvalpolicies", "serviceaccounts", "certificateauthorities", "secrets")


class Revived:
    """Remembers deleted objects by uid."""

    def __init__(self) -> None:
        self._deleted: dict[str, tuple[str, str]] = {}

    def saw(self, seen: Seen) -> None:
        if seen.is_gone and seen.kind in DECIDE:
            meta = seen.object["metadata"]
            self._deleted[meta["uid"]] = seen.kind, meta["name"]

    def restored(
        self, printed: str, live: Mapping[tuple[str, str, str], Mapping[str, Any]]
    ) -> Iterator[Violation]:
        for (kind, _, name), document in live.items():
            if document["metadata"]["uid"] in self._deleted and name not in printed:
                yield Violation("back without a word", f"{kind}/{name}, deleted since the backup")
        for document in live.values():
            self._deleted.pop(document["metadata"]["uid"], None)
