"""How servers behave: no 5xx, no traceback, no held event loop, no controller that fails for ever.

On a busy machine a process may not be scheduled: the watchdog says `by=idle` then, which counts
for nothing. A hold counts when the same function holds the loop again: what is done once, as the
import of a module, may take long on such a machine.
"""

import re
from collections import Counter
from collections.abc import Iterator

from tests.adversary.calls import Answer
from tests.adversary.invariants.violation import Violation
from tests.adversary.operations import Operation

UNAVAILABLE = 503
MOST_FAILURES = 12
LONG_HOLD = 1.0
COLLECTOR = "garbagecollector"
_held = re.compile(r"loop\.held.*?seconds=([0-9.]+).*?by=(\S.*)").search
_failed = re.compile(r"controller\.failed (.*)").search
_field = re.compile(r"(\w+)=(\"[^\"]*\"|\S+)").findall
WENT_WRONG = ("request.failed", "Traceback (most recent call last)")


class Conduct:
    """Reads answers and the log."""

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()
        self._holds: Counter[str] = Counter()  # by function

    def answered(self, operation: Operation, answer: Answer) -> Iterator[Violation]:
        if answer.status >= 500 and answer.status != UNAVAILABLE:
            yield Violation("5xx", f"{operation.act} {operation.kind}: {answer.status}")

    def logged(self, text: str) -> Iterator[Violation]:
        for line in text.splitlines():
            if any(word in line for word in WENT_WRONG):
                yield Violation("traceback", line[:400])
            yield from self._held(line)
            yield from self._failed(line)

    def _held(self, line: str) -> Iterator[Violation]:
        held = _held(line)
        if held and "idle" not in held[2] and float(held[1]) > LONG_HOLD:
            by = held[2].partition(" < ")[0]
            self._holds[by] += 1
            if self._holds[by] > 1:
                yield Violation("loop was held", line[:400])

    def _failed(self, line: str) -> Iterator[Violation]:
        failed = _failed(line)
        if not failed:
            return
        fields = dict(_field(failed[1]))
        if fields.get("controller") == COLLECTOR and "is forbidden" in failed[1]:
            return  # an owner that a user wrote is gone, and the object stays
        key = f"{fields.get('controller')} {fields.get('object', '')}"
        self._failures[key] += 1
        if self._failures[key] == MOST_FAILURES:
            yield Violation("controller fails", line[:400])
