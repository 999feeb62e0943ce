"""A short run of every target, from the corpus on; `make fuzz MINUTES=10` runs longer."""

import pytest

from tests.extras import needs_atheris
from tests.fuzz import blind
from tests.fuzz.run import CORPUS, TARGETS, started, summary
from tests.fuzz.targets import TARGETS as FUNCTIONS

SECONDS = 4
BLIND_SECONDS = 0.5


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    """A target without one begins blind; a corpus without a target is dead."""
    assert sorted(FUNCTIONS) == sorted(TARGETS)
    assert all(any((CORPUS / target).iterdir()) for target in TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_known_inputs_are_answered_or_refused(target: str) -> None:
    """Inputs that once failed pass."""
    for path in sorted((CORPUS / target).iterdir()):
        FUNCTIONS[target](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_changed_inputs_are_answered_or_refused(target: str) -> None:
    """A moment of random changes of the corpus finds nothing."""
    assert blind.run(FUNCTIONS[target], CORPUS / target, BLIND_SECONDS, seed=7) == ""


@pytest.mark.parametrize("target", TARGETS)
def test_new_inputs_are_answered_or_refused(target: str) -> None:
    """A few seconds of looking for what nobody thought of find nothing."""
    needs_atheris()

    (outcome,) = started([target], SECONDS, jobs=1)

    assert outcome.code == 0, summary(outcome)
    assert "Done" in outcome.said
