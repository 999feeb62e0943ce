"""A short attack in every run; `make adversary` attacks every store for longer."""

from tests.adversary.session import Setting, attacked

OPERATIONS = 30
SECONDS = 600.0  # the number of operations ends it, so that a seed means the same everywhere
SEED = 25
THEMES = ("tokens",)


def test_no_invariant_is_violated_in_a_short_attack() -> None:
    """Whatever the users do, with their rights, copied credentials and restarts of the server."""
    report = attacked(Setting(seed=SEED, themes=THEMES), seconds=SECONDS, operations=OPERATIONS)

    assert [str(found.violation) for found in report.found] == []
    accepted = {act for (act, status), count in report.done.items() if 200 <= status < 300}
    assert {act.partition(" ")[0] for act in accepted} >= {"create", "delete"}
    assert report.operations > 0
