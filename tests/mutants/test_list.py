"""The list of mistakes fits the code as it is: each can be made, and its tests are there."""

import ast

import pytest

from tests.mutants.run import TREE, Mutant, mutants

MUTANTS = mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mistake_can_be_made(mutant: Mutant) -> None:
    """Its text occurs once, what comes of it is another programme, and its tests exist."""
    source = (TREE / "src" / "orchid" / mutant.file).read_text()

    mistaken = mutant.applied(source)

    assert ast.dump(ast.parse(mistaken)) != ast.dump(ast.parse(source))
    assert mutant.tests
    assert all((TREE / test).exists() for test in mutant.tests)


def test_no_mistake_is_listed_twice() -> None:
    """The shares of a run contain different mistakes."""
    assert len({(mutant.file, mutant.before, mutant.after) for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mistake_that_does_not_apply_is_reported() -> None:
    """A row whose text is gone, or is there twice, says so."""
    mutant = Mutant("a.py", "x", "y", ("t",))

    with pytest.raises(ValueError, match=r"a\.py has this 2 times: x"):
        mutant.applied("x = x")
    assert mutant.applied("x = 1") == "y = 1"
