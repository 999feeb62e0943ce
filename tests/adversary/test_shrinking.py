"""Histories become short without losing what they show."""

from collections.abc import Sequence

from tests.adversary.operations import Operation
from tests.adversary.shrinking import shrunk

MANY = 1000


def history(length: int) -> list[Operation]:
    return [Operation(number, "alice", "read", "secrets", f"s{number}") for number in range(length)]


def ids(operations: Sequence[Operation]) -> list[int]:
    return [operation.id for operation in operations]


def test_only_what_is_needed_stays_in_its_order() -> None:
    """Three operations of sixty, far from each other."""
    needed = {3, 31, 59}

    result = shrunk(history(60), lambda shorter: needed <= set(ids(shorter)), MANY)

    assert ids(result) == [3, 31, 59]


def test_the_last_operation_always_stays() -> None:
    """The violation was seen after it, whatever caused it."""
    assert ids(shrunk(history(20), lambda shorter: True, MANY)) == [19]


def test_a_history_that_does_not_fail_again_is_left_as_it_is() -> None:
    """A race may need another try; the whole history is then what there is to show."""
    assert ids(shrunk(history(9), lambda shorter: False, MANY)) == list(range(9))


def test_no_more_tries_are_made_than_the_budget() -> None:
    """Each of them costs a server."""
    tries = []

    def fails(shorter: Sequence[Operation]) -> bool:
        tries.append(len(shorter))
        return {5, 99} <= set(ids(shorter))

    result = shrunk(history(100), fails, 7)

    assert len(tries) == 7
    assert {5, 99} <= set(ids(result))
    assert len(result) < 100


def test_a_history_is_printed_by_names() -> None:
    """A person must be able to repeat it by hand."""
    options = {"propagation": "Orphan", "target": {"key": {"name": "web-1"}}, "secret": ["a", "b"]}
    made = Operation(7, "alice", "delete", "secrets", "ca", "team", options, waits=False)

    text = str(made)

    assert "7  alice delete secrets/team/ca propagation=Orphan" in text
    assert "target={key: {name: web-1}} secret=[a, b]" in text
    assert text.endswith("(and goes on at once)")
