"""Trouble with one cluster touches no other: what another one issues is recorded, and as its own.

Recording is judged until somebody with the right changes the cluster, or what the controller needs
to read it.
"""

from collections.abc import Iterator

from tests.adversary.calls import Answer
from tests.adversary.clusters import FRIEND
from tests.adversary.invariants.violation import Violation
from tests.adversary.kinds import HOME
from tests.adversary.observer import Seen
from tests.adversary.operations import Operation

PATIENCE_SECONDS = 75.0  # a cluster is asked again after at most a minute


class Neighbours:
    """Certificates of the friend, by their SHA-256, and since when a record is missing."""

    def __init__(self) -> None:
        self._issued: set[str] = set()
        self._waiting: dict[str, float] = {}
        self._is_disturbed = False

    def answered(self, operation: Operation, answer: Answer, now: float) -> None:
        if operation.act == "cluster-issues" and operation.actor == FRIEND:
            sha256 = str(answer.json["sha256"])
            self._issued.add(sha256)
            self._waiting[sha256] = now
        elif answer.is_done and (operation.kind == "clusters" or operation.namespace == HOME):
            self._is_disturbed = True

    def saw(self, seen: Seen) -> Iterator[Violation]:
        spec = seen.object.get("spec", {})
        if seen.kind != "issuedcertificates" or spec.get("cluster") != FRIEND or seen.is_gone:
            return
        if self._waiting.pop(spec["sha256"], None) is None and spec["sha256"] not in self._issued:
            yield Violation("record of another", f"{FRIEND} never issued {spec['subject']}")

    def due(self, now: float) -> Iterator[Violation]:
        for sha256, since in list(self._waiting.items()):
            if now - since > PATIENCE_SECONDS:
                del self._waiting[sha256]
                if not self._is_disturbed:
                    yield Violation("cluster is not recorded", f"{sha256} of {FRIEND}")
