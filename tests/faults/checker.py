"""Judge a history: is it what clients of one correct store, struck by faults, could have seen?

Start with `violations`. Every commit has a revision, and revisions are commit order, so the order
of the writes is given and need not be searched for. What is left is to find each read, and each
refusal, a place in that order, no earlier than whatever had ended before it began. One pass over
the calls by the time they began does it: each takes the earliest place it can, and the highest
place among those that have ended is where later ones may begin. If the earliest places do not fit,
none do; so the pass is exact, and its time grows as n log n.

    lost       acknowledged, and not in the log
    invented   in the log or in an answer, and nobody asked for it, or it was refused
    swapped    committed on another version than the one it expected
    order      the log's revisions or states contradict themselves, or the order of time
    stale      a read or a refusal that nothing between its beginning and its end explains
    list       not what the store held at the revision that the list shows
    watch      a change is missing, repeated, out of order, or not what happened
    answer     a status that no fault excuses

Judges only: it asks no server, and never looks at a clock.
"""

import heapq
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.history import ABSENT, Call, Commit, Event, History, Outcome, Segment, Version

WRITES = ("create", "update", "delete")
BOOKMARK = "BOOKMARK"
NOT_FOUND, CONFLICT = 404, 409


class Violation(NamedTuple):
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def violations(history: History, log: Sequence[Commit]) -> list[Violation]:
    """Everything in a history that no correct store allows, given the store's own log."""
    timelines = timelines_of(log)
    made = made_by(history.calls, log, timelines)
    return [
        *(Violation("answer", text) for text in history.improper),
        *log_violations(log, made),
        *write_violations(history.calls, timelines),
        *seen_violations(history.calls, timelines),
        *order_violations(history, timelines, made),
        *list_violations(history.calls, log),
        *watch_violations(history, log),
    ]


# The log


@dataclass
class Timeline:
    """The life of one key: its versions, in order."""

    revisions: list[int] = field(default_factory=list)
    values: list[str | None] = field(default_factory=list)

    def current(self, place: int) -> int:
        """The key's version at a revision of the store; ABSENT if there was none."""
        return self._version(bisect_right(self.revisions, place) - 1)

    def before(self, revision: int) -> int:
        return self.current(revision - 1)

    def value(self, revision: int) -> str | None:
        index = bisect_right(self.revisions, revision) - 1
        return self.values[index] if index >= 0 and self.revisions[index] == revision else None

    def has(self, revision: int) -> bool:
        index = bisect_right(self.revisions, revision) - 1
        return index >= 0 and self.revisions[index] == revision

    def earliest(self, lowest: int, holds: Callable[[int], bool]) -> int | None:
        """The first place from `lowest` on where something holds of the current version."""
        index, place = bisect_right(self.revisions, lowest) - 1, lowest
        while not holds(self._version(index)):
            index += 1
            if index == len(self.revisions):
                return None
            place = self.revisions[index]
        return place

    def _version(self, index: int) -> int:
        if index < 0 or self.values[index] is None:
            return ABSENT
        return self.revisions[index]


Timelines = defaultdict[str, Timeline]


def timelines_of(log: Iterable[Commit]) -> Timelines:
    timelines: Timelines = defaultdict(Timeline)
    for commit in log:
        timelines[commit.key].revisions.append(commit.revision)
        timelines[commit.key].values.append(commit.value)
    return timelines


def made_by(calls: Iterable[Call], log: Iterable[Commit], timelines: Timelines) -> dict[int, Call]:
    """Which call made each commit; of several that may have, the one that began first."""
    by_value = {call.value: call for call in calls if call.value}
    deletions: dict[tuple[str, int], Call] = {}
    for call in calls:
        if call.action == "delete" and call.outcome is not Outcome.REFUSED:
            known = deletions.setdefault((call.key, call.expected), call)
            if call.outcome is Outcome.DONE or (
                known.outcome is not Outcome.DONE and call.began < known.began
            ):
                deletions[call.key, call.expected] = call
    made = {}
    for commit in log:
        if commit.value is not None:
            maker = by_value.get(commit.value)
        else:
            maker = deletions.get((commit.key, timelines[commit.key].before(commit.revision)))
        if maker is not None and maker.key == commit.key:
            made[commit.revision] = maker
    return made


def log_violations(log: Sequence[Commit], made: dict[int, Call]) -> Iterator[Violation]:
    """Every entry has its own revision, its own call, and a state that it can follow on."""
    last, present, values = 0, set[str](), set[str]()
    for commit in log:
        if commit.revision <= last:
            yield Violation("order", f"in the log, {commit} follows on revision {last}")
        last = commit.revision
        maker = made.get(commit.revision)
        if maker is None or maker.outcome is Outcome.REFUSED:
            yield Violation("invented", f"{commit} is in the log; its call: {maker}")
        if commit.value is None:
            if commit.key not in present:
                yield Violation("order", f"{commit} deletes what is not there")
            present.discard(commit.key)
            continue
        if commit.value in values:
            yield Violation("order", f"{commit} is in the log twice")
        values.add(commit.value)
        if maker and maker.action == "create" and commit.key in present:
            yield Violation("swapped", f"{commit} creates what is there already")
        present.add(commit.key)


def write_violations(calls: Iterable[Call], timelines: Timelines) -> Iterator[Violation]:
    """Acknowledged writes that the log lacks, or has on top of another revision than expected."""
    for call in calls:
        if call.action not in WRITES or call.outcome is not Outcome.DONE:
            continue
        timeline = timelines[call.key]
        wanted = None if call.action == "delete" else call.value
        if not timeline.has(call.revision) or timeline.value(call.revision) != wanted:
            yield Violation("lost", str(call))
        elif timeline.before(call.revision) != call.expected:
            found = timeline.before(call.revision)
            yield Violation("swapped", f"{call}, but it followed on revision {found}")


# The answers


def seen_violations(calls: Iterable[Call], timelines: Timelines) -> Iterator[Violation]:
    """Every value that a get returned was written before."""
    for call in calls:
        for key, version in call.found.items() if call.action == "get" else ():
            if timelines[key].value(version.revision) != version.value:
                yield Violation("invented", f"{call} shows {version}, which is not in the log")


class Point(NamedTuple):
    """Something that has a place in the order of revisions, if `place` finds one."""

    began: float
    ended: float
    place: Callable[[int], int | None]  # given the lowest one allowed
    what: Call | Event
    commits: bool = False


def order_violations(
    history: History, timelines: Timelines, made: dict[int, Call]
) -> Iterator[Violation]:
    """Find everything a place that agrees with the order of time."""
    begun = Begun(made)
    floor = 0
    ended: list[tuple[float, int]] = []
    for point in sorted(points(history, timelines, made), key=lambda point: point.began):
        while ended and ended[0][0] < point.began:
            floor = max(floor, heapq.heappop(ended)[1])
        place = point.place(floor)
        if place is not None and place < begun.after(point.ended):
            heapq.heappush(ended, (point.ended, place))
            continue
        seen = f"{point.what}, but revision {floor} was seen before it began"
        yield Violation("order" if point.commits else "stale", seen)


class Begun:
    """When commits were asked for: what could not have happened yet at a moment."""

    def __init__(self, made: dict[int, Call]) -> None:
        order = sorted((call.began, revision) for revision, call in made.items())
        self._times = [began for began, _ in order]
        self._lowest = [math.inf]  # from each one on; built from the end
        for _, revision in reversed(order):
            self._lowest.append(min(self._lowest[-1], revision))
        self._lowest.reverse()

    def after(self, moment: float) -> float:
        """The lowest revision among the commits that were asked for later."""
        return self._lowest[bisect_right(self._times, moment)]


def points(history: History, timelines: Timelines, made: dict[int, Call]) -> Iterator[Point]:
    for revision, call in made.items():
        ended = call.ended if call.outcome is Outcome.DONE else math.inf
        yield Point(call.began, ended, _after(revision), call, commits=True)
    for call in history.calls:
        if call.outcome is Outcome.REFUSED:
            yield Point(call.began, call.ended, _refusal(call, timelines[call.key]), call)
        elif call.outcome is Outcome.DONE and call.action == "get":
            version = call.found.get(call.key, Version(ABSENT, "")).revision
            yield Point(call.began, call.ended, _current(timelines[call.key], version), call)
        elif call.outcome is Outcome.DONE and call.action == "list":
            lowest = _from(call.revision) if call.fresh else _fact(call.revision)
            yield Point(call.began, call.ended, lowest, call)
    for watcher in history.watchers:
        for segment in watcher.segments:
            for event in segment.events:  # an event shows that its change was committed
                yield Point(event.at, event.at, _fact(event.revision), event)


def _after(revision: int) -> Callable[[int], int | None]:
    return lambda lowest: revision if revision > lowest else None


def _from(revision: int) -> Callable[[int], int | None]:
    return lambda lowest: revision if revision >= lowest else None


def _fact(revision: int) -> Callable[[int], int | None]:
    return lambda _: revision


def _current(timeline: Timeline, version: int) -> Callable[[int], int | None]:
    return lambda lowest: timeline.earliest(lowest, lambda current: current == version)


def _refusal(call: Call, timeline: Timeline) -> Callable[[int], int | None]:
    """A refused write is correct if another value existed at some moment during it."""
    if call.status == NOT_FOUND:
        return _current(timeline, ABSENT)
    # A create expects nothing to be there; all others, their version.
    return lambda lowest: timeline.earliest(lowest, lambda current: current != call.expected)


def list_violations(calls: Iterable[Call], log: Sequence[Commit]) -> Iterator[Violation]:
    """Each list is the state of the store at the revision that it shows, and nothing else."""
    lists = [each for each in calls if each.action == "list" and each.outcome is Outcome.DONE]
    state: dict[str, Version] = {}
    index = 0
    for call in sorted(lists, key=lambda call: call.revision):
        while index < len(log) and log[index].revision <= call.revision:
            revision, key, value = log[index]
            index += 1
            if value is None:
                state.pop(key, None)
            else:
                state[key] = Version(revision, value)
        if call.found != state:
            wrong = sorted(set(call.found.items()) ^ set(state.items()))
            yield Violation("list", f"{call} differs from the log in {wrong[:4]}")


# The watches


def watch_violations(history: History, log: Sequence[Commit]) -> Iterator[Violation]:
    """Each watcher has seen the log: from its beginning, in order, everything once, to the end."""
    expected = list(_as_events(log))
    revisions = [event.revision for event in expected]
    for watcher in history.watchers:
        for segment in watcher.segments:
            start = bisect_right(revisions, segment.after)
            yield from _segment_violations(f"watcher {watcher.number}", segment, expected, start)
        last = watcher.segments[-1] if watcher.segments else Segment(ABSENT)
        reached = last.events[-1].revision if last.events else last.after
        if reached < history.end:
            what = f"watcher {watcher.number} came to {reached}, not to the end, {history.end}"
            yield Violation("watch", what)


def _segment_violations(
    who: str, segment: Segment, expected: Sequence[Event], index: int
) -> Iterator[Violation]:
    reached = segment.after
    for event in segment.events:
        due = expected[index] if index < len(expected) else None
        if event.type == BOOKMARK:
            if due is not None and due.revision <= event.revision:
                yield Violation("watch", f"{who}: {event} came without {due}")
                return
        elif due is None or due[1:] != event[1:]:
            problem = "repeats or reorders" if event.revision <= reached else "is not"
            yield Violation("watch", f"{who}: {event} {problem} what is due: {due}")
            return
        else:
            index += 1
        if event.revision < reached:
            yield Violation("watch", f"{who}: {event} came after revision {reached}")
            return
        reached = event.revision


def _as_events(log: Iterable[Commit]) -> Iterator[Event]:
    """The log as watch events; a deletion contains the deleted value."""
    values: dict[str, str] = {}
    for revision, key, value in log:
        if value is None:
            yield Event(0.0, "DELETED", key, values.pop(key, ""), revision)
        else:
            yield Event(0.0, "MODIFIED" if key in values else "ADDED", key, value, revision)
            values[key] = value
