"""Mistakes that are drawn: each is another programme, and has tests that exist."""

import ast

from tests.mutants.drawn import SOURCE, TREE, changes, draw, noticing

SAMPLE = '''
def allowed(user: int = 1, *, é: bool = False) -> bool:
    """Text."""
    log.info("asked")
    if user in known and not é:
        check(user)
        return limit(3) < 4
    if user:
        raise Refused
    return True
'''


def test_every_known_change_is_found() -> None:
    """Comparisons, conditions, constants and statements; neither texts, types nor logging."""
    found = {(one.before, one.after) for one in changes("a.py", SAMPLE)}

    assert found == {
        ("1", "2"),
        ("3", "4"),
        ("4", "5"),
        ("False", "True"),
        ("True", "False"),
        ("user in known", "(user not in known)"),
        ("not é", "(é)"),
        ("user in known and not é", "((user in known) or (not é))"),
        ("user in known and not é", "(not (user in known and (not é)))"),
        ("user", "(not (user))"),
        ("check(user)", "pass"),
        ("limit(3) < 4", "(limit(3) <= 4)"),
        ("return limit(3) < 4", "pass"),
        ("raise Refused", "pass"),
        ("return True", "pass"),
    }


def test_a_drawn_mistake_is_another_programme_with_tests() -> None:
    """The same seed draws the same ones."""
    drawn = draw(60, 3, "admission/")

    assert drawn == draw(60, 3, "admission/")
    assert drawn != draw(60, 4, "admission/")
    for one in drawn:
        source = (SOURCE / one.file).read_text()
        assert ast.dump(ast.parse(one.applied(source))) != ast.dump(ast.parse(source))
        assert all((TREE / test).exists() for test in one.tests)


def test_noticing_a_module_are_its_own_and_those_that_import_it() -> None:
    """A module without either has those of its folder."""
    assert "tests/unit/admission/test_role_escalation.py" in noticing(
        "admission/role_escalation.py"
    )
    assert noticing("admission/nothing.py") == ("tests/unit/admission",)
