"""Mistakes that are drawn: each is another programme, and has tests that exist."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests.mutants import drawn, nearest
from tests.mutants.drawn import TREE, changes, draw
from tests.mutants.run import Mutant, is_known, lines_of

OLD = "".join(f"word{number} = 7\n" for number in range(9))
PLACES = ("src/orchid/features/token_keys/policies", "src/orchid/features/approval")


def found_in(source: str) -> set[tuple[str, str]]:
    return {(one.before, one.after) for one in changes("a.py", source)}


KINDS = {
    "comparison": ("x = limit(y) < z", {("limit(y) < z", "(limit(y) <= z)")}),
    "membership": ("x = y in z", {("y in z", "(y not in z)")}),
    "word": (
        "x = y and é or z",
        {
            ("y and é or z", "((y and é) and (z))"),
            ("y and é or z", "((z))"),
            ("y and é or z", "((y and é))"),
            ("y and é", "((y) or (é))"),
            ("y and é", "((é))"),
            ("y and é", "((y))"),
        },
    ),
    "not": ("x = not é", {("not é", "(é)")}),
    "guard": (
        "if y:\n    raise Refused",
        {("y", "(not (y))"), ("y", "False"), ("raise Refused", "pass")},
    ),
    "elif": (
        "if x:\n    y = z\nelif y:\n    raise R",
        {("x", "(not (x))"), ("y", "(not (y))"), ("y", "False"), ("raise R", "pass")},
    ),
    "filter": ("x = [y for y in z if y]", {("y", "True")}),
    "yes or no": ("x = True", {("True", "False")}),
    "number": ("x = y[0]", {("0", "1")}),
    "default": (
        "def f(a, b=None, *, c='text', d=1) -> 'X':\n    x = a",
        {("None", "1"), ("'text'", "'textx'"), ("1", "2")},
    ),
    "key": (
        'x = y["a"] + z.get("b")',
        {('"a"', "'b'"), ('"b"', "'other'")},
    ),
    "arguments": (
        "x = f(y, z.a, Kind)",
        {("f(y, z.a, Kind)", "f(z.a, y, Kind)")},
    ),
    "named arguments": ("x = f(a=y, b=z)", {("f(a=y, b=z)", "f(a=z, b=y)")}),
    "element": (
        "x = [y, z]",
        {("[y, z]", "[y]"), ("[y, z]", "[z]")},
    ),
    "element of a set": ("x = {y, z}", {("{y, z}", "{y}"), ("{y, z}", "{z}")}),
    "element of a mapping": (
        "x = {y: z, **a}",
        {("{y: z, **a}", "{y: z}"), ("{y: z, **a}", "{**a}")},
    ),
    "element of a list of names": ("x = y, z = A, b.C", {("A, b.C", "(A,)"), ("A, b.C", "(b.C,)")}),
    "all": ("x = all(y)", {("all", "any")}),
    "least": ("x = min(y)", {("min", "max")}),
    "loop": ("for x in y:\n    z = x", {("z = x", "z = x\n    break")}),
    "call": ("check(y)", {("check(y)", "pass")}),
    "await": (
        "async def f():\n    x = await y",
        {("await y", "(y)")},
    ),
    "return": ("def f():\n    return y", {("return y", "pass")}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_found(kind: str) -> None:
    """These changes of these lines, and no others."""
    source, expected = KINDS[kind]

    assert found_in(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Text."""',
        'log.info("asked", user)',
        "x: Final[1]",
        'x = f"{y[0]}"',
        "x = y, z",
        "(x, y)",
    ],
)
def test_texts_types_and_logging_have_no_mistakes(source: str) -> None:
    assert found_in(source) == set()


def test_conditions_that_refuse_are_known() -> None:
    """Of an if that leaves, and of an answer; not those that choose between two ways."""
    source = """
def allowed(user):
    if user.a == 1:
        user.b = 2
    if user.c == 3:
        raise Refused
    return user.d == 4
"""

    refusing = {one.before for one in changes("a.py", source) if one.refuses}

    assert refusing == {"user.c == 3", "3", "raise Refused", "user.d == 4", "4"}


def test_conditions_that_refuse_are_drawn_more_often() -> None:
    """Each is three times as likely as another change."""
    found = [one for path in drawn._files(PLACES) for one in changes("a.py", path.read_text())]
    share = sum(one.refuses for one in found) / len(found)

    sample = draw(400, 5, PLACES)

    assert sum(one.refuses for one in sample) / len(sample) > 1.5 * share


def test_a_drawn_mistake_is_another_programme_with_tests() -> None:
    """The same seed draws the same ones."""
    sample = draw(20, 3, PLACES)

    assert sample == draw(20, 3, PLACES)
    assert sample != draw(20, 4, PLACES)
    for one in sample:
        source = (TREE / one.path).read_text()
        assert one.path.startswith(PLACES)
        assert ast.dump(ast.parse(one.applied(source))) != ast.dump(ast.parse(source))
        tests = (*nearest.near(one.path), *nearest.wider(one.path))
        assert all((TREE / test).exists() for test in tests)


def test_a_place_that_is_missing_is_named() -> None:
    """Not a sample of nothing."""
    with pytest.raises(FileNotFoundError, match=r"--in src/nothing: there is no such"):
        draw(1, 1, ["src/nothing"])


def test_only_lines_that_are_newer_than_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a file that was moved since."""

    def git(*words: str) -> None:
        person = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", *person, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(drawn, "TREE", tmp_path)
    git("init", "--quiet")
    Path(tmp_path, "a.py").write_text("x = 1\ny = 2\n")
    Path(tmp_path, "old.py").write_text(OLD)
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    Path(tmp_path, "a.py").write_text("x = 1\nz = 3\ny = 2\nz = 4\n")
    Path(tmp_path, "b.py").write_text("x = 5\n")
    Path(tmp_path, "later").mkdir()
    Path(tmp_path, "old.py").rename(tmp_path / "later/new.py")
    Path(tmp_path, "later/new.py").write_text(f"{OLD}x = 6\n")
    git("add", ".")

    sample = draw(10, 1, ["."], since="HEAD")

    assert sorted(one.before for one in sample) == ["3", "4", "5", "6"]


def test_noticing_a_module_are_its_own_and_those_that_import_it() -> None:
    """A module without either has those of its folder; wider ones are others."""
    path = "src/orchid/features/rights/policies/role_escalation.py"

    assert nearest.near(path)[0] == "tests/unit/features/rights/test_role_escalation.py"
    assert nearest.wider(path)
    assert not set(nearest.near(path)) & set(nearest.wider(path))
    assert nearest.near("src/orchid/features/rights/nothing.py") == ("tests/unit/features/rights",)
    assert "tests/unit/features/notices/test_notices.py" in nearest.near(
        "src/orchid/features/notices/controllers/send_notices.py"
    )


def test_a_mistake_that_is_explained_in_a_list_cannot_be_seen() -> None:
    """The same change, however it is written."""
    path = "kernel/credentials/x509/trust/certification_path.py"
    row = Mutant(path, "if not value.ca:", "if False:", ("t",), "the library refuses")
    sample = [
        one
        for one in changes(f"src/orchid/{path}", (TREE / "src/orchid" / path).read_text())
        if one.before == "not value.ca"
    ]

    assert [is_known(one, [row]) for one in sample] == [one.after == "False" for one in sample]
    assert any(is_known(one, [row]) for one in sample)
    assert lines_of(row).splitlines()[1:] == [
        "    -    if not value.ca:",
        "    +    if False:",
    ]
