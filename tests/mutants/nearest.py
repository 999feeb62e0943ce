"""Which tests should notice a mistake in a file: the nearest ones first, then wider ones.

`near`: its own unit tests (tests/unit/FOLDER/test_NAME.py), those that the lists beside this file
name for it, and all unit, API and security tests that import it. `wider`: those that import one of
its importers, then the tests of its folder, then API, security and e2e tests with one of its words
in their name.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
TREE = HERE.parent.parent
SOURCE = Path("src/orchid")
TESTED_BY = ("unit", "security", "api")
CONTROLLER_NAME = re.compile(r'^    name="(.+)",$', re.MULTILINE)  # by which tests run it
IMPORT = re.compile(r"^\s*import (\S+)", re.MULTILINE)
FROM_IMPORT = re.compile(r"^\s*from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)
FEW_LETTERS = 4  # words with fewer say nothing about a test


@cache
def _texts(folder: str, pattern: str) -> dict[str, str]:
    """Every file with such a name in a folder of the tree, and its source."""
    return {str(path.relative_to(TREE)): path.read_text() for path in _paths(folder, pattern)}


def _paths(folder: str, pattern: str) -> list[Path]:
    return sorted((TREE / folder).rglob(pattern))


def _tests(*folders: str) -> dict[str, str]:
    return {
        path: text
        for folder in folders
        for path, text in _texts(f"tests/{folder}", "test_*.py").items()
    }


@cache
def _listed() -> list[tuple[str, list[str]]]:
    """Files and their tests, by the lists beside this file."""
    lists = [tomllib.loads(path.read_text())["mutant"] for path in HERE.glob("*.toml")]
    return [(str(SOURCE / row["file"]), row["tests"]) for rows in lists for row in rows]


@cache
def near(path: str) -> tuple[str, ...]:
    """The nearest tests of a file, its own first; never none."""
    own = _own(path)
    found = [own] if own else []
    found += sorted(
        {test for listed, tests in _listed() if listed == path for test in tests}
        | _importers(path, _tests(*TESTED_BY))
        | _that_name_its_controllers(path, _tests("unit"))
    )
    return tuple(dict.fromkeys(found)) or (_folder(path),)


@cache
def wider(path: str) -> tuple[str, ...]:
    """Further tests, in the order in which they are likely to notice."""
    tests = _tests(*TESTED_BY)
    users = _importers(path, _texts(str(SOURCE), "*.py"))
    words = {word for word in Path(path).stem.split("_") if len(word) >= FEW_LETTERS}
    found = [
        *sorted(_that_name_its_controllers(path, tests)),
        *(own for user in sorted(users) if (own := _own(user))),
        *(test for test in tests if test.startswith(f"{_folder(path)}/")),
        *sorted(test for user in users for test in _importers(user, tests)),
        *(test for test in _tests("api", "security", "e2e") if words & _words(test)),
    ]
    seen = near(path)
    return tuple(test for test in dict.fromkeys(found) if test not in seen)


def _words(test: str) -> set[str]:
    return set(Path(test).stem.split("_"))


def _own(path: str) -> str | None:
    if SOURCE not in Path(path).parents:
        return None
    name = f"test_{Path(path).name}"
    folders = Path("tests/unit", Path(path).relative_to(SOURCE)).parents
    return next((str(each / name) for each in folders if (TREE / each / name).exists()), None)


def _folder(path: str) -> str:
    """The nearest folder of unit tests."""
    if SOURCE not in Path(path).parents:
        return "tests/unit"
    own = Path("tests/unit", Path(path).relative_to(SOURCE))
    return str(next(each for each in own.parents if (TREE / each).is_dir()))


def _importers(path: str, texts: dict[str, str]) -> set[str]:
    """The files that import a module, by the words of their source."""
    module = path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/")
    name = module.replace("/", ".")
    return {each for each, text in texts.items() if each != path and name in _imported(text)}


@cache
def _imported(text: str) -> set[str]:
    """Every module that a source imports, and every name that may be one."""
    found = set(IMPORT.findall(text))
    for folder, names in FROM_IMPORT.findall(text):
        found |= {folder, *(f"{folder}.{name}" for name in re.findall(r"\w+", names))}
    return found


def _that_name_its_controllers(path: str, texts: dict[str, str]) -> set[str]:
    if "/controllers/" not in path or not (TREE / path).exists():
        return set()
    names = CONTROLLER_NAME.findall((TREE / path).read_text())
    return {each for each, text in texts.items() if any(f'"{name}"' in text for name in names)}
