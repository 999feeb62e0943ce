"""The tests of what changed since main: `make near`, or `python -m tests.near [options of pytest]`.

A changed file of src selects the tests of its package, or of its whole feature, and those that name
it. A changed test selects itself, a changed module of tests all that import it. Every other file
selects the tests of the project, tests/unit/test_*.py, and those that name it.

Changes that are not committed count, too. If nothing differs from main, it is the last commit.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = PurePosixPath("src/orchid")
UNIT: Final = PurePosixPath("tests/unit")
IMPORT: Final = r"from ((?:orchid|tests)[\w.]*) import (?:\(([^)]*)\)|(.*))"
LAYERS: Final = {"kernel", "features", "commands"}  # folders of packages, not packages themselves


def main() -> int:
    """Run pytest with the selected tests."""
    base, changed = changes(ROOT)
    sys.stderr.write(f"{len(changed)} files changed since {base}\n")
    selected = near(ROOT, changed)
    if not selected:
        sys.stderr.write("no tests are near them; make quick runs the fast ones, make test all\n")
        return 0
    sys.stderr.write("".join(f"  {path}\n" for path in selected))
    command = [sys.executable, "-m", "pytest", *sys.argv[1:], *selected]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def changes(root: Path) -> tuple[str, list[str]]:
    """Where the changes begin, and the paths that were changed, added or deleted since."""
    untracked = _git(root, "ls-files", "--others", "--exclude-standard")
    for main in ("main", "origin/main"):
        fork = _git(root, "merge-base", main, "HEAD")
        if fork and (changed := _git(root, "diff", "--name-only", "--no-renames", *fork)):
            return main, sorted({*changed, *untracked})
        if fork and untracked:
            return main, untracked
    last = _git(root, "diff", "--name-only", "--no-renames", "HEAD~1")
    return "HEAD~1, since nothing differs from main", last


def _git(root: Path, *arguments: str) -> list[str]:
    """Lines of the output; none if git refuses, as without a branch of that name."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def near(root: Path, changed: Iterable[str]) -> list[str]:
    """Files and folders of the tests that are near the changed paths."""
    texts = {
        PurePosixPath(path.relative_to(root).as_posix()): path.read_text()
        for path in (root / "tests").rglob("*.py")
    }
    selected: set[PurePosixPath] = set()
    for path in map(PurePosixPath, changed):
        if path.is_relative_to(SOURCE):
            selected |= _package(root, path) | set(filter(_is_test, _naming(path, texts)))
        elif path.is_relative_to("tests"):
            selected |= _of_tests(root, path, texts)
        else:
            project = (each for each in texts if each.parent == UNIT)
            selected |= set(filter(_is_test, {*project, *_naming(path, texts)}))
    return sorted(str(path) for path in selected if not selected & set(path.parents))


def _is_test(path: PurePosixPath) -> bool:
    return path.match("test_*.py")


def _package(root: Path, source: PurePosixPath) -> set[PurePosixPath]:
    """The tests in the folder of a source file: that of its feature, or the nearest that exists."""
    package = source.relative_to(SOURCE).parent
    if package.is_relative_to("features"):
        package = PurePosixPath(*package.parts[:2])
    while str(package) not in {".", *LAYERS}:
        if (root / UNIT / package).is_dir():
            return {UNIT / package}
        package = package.parent
    files = (root / UNIT / package).glob(f"test_{source.stem}*.py")
    return {UNIT / package / file.name for file in files}


def _of_tests(
    root: Path, path: PurePosixPath, texts: dict[PurePosixPath, str]
) -> set[PurePosixPath]:
    """A test selects itself, another module those that import it, and data those beside it."""
    selected: set[PurePosixPath] = set()
    waiting, visited = [path], {path}
    while waiting:
        path = waiting.pop()
        if _is_test(path) or path.name == "conftest.py":
            selected.add(path.parent if path.name == "conftest.py" else path)
            continue
        if path.suffix != ".py" and any((root / path.parent).glob("test_*.py")):
            selected.add(path.parent)
        users = _naming(path, texts) - visited
        waiting += users
        visited |= users
    return {path for path in selected if (root / path).exists()}


def _naming(path: PurePosixPath, texts: dict[PurePosixPath, str]) -> set[PurePosixPath]:
    """The modules of tests that import a module, or name a file."""
    tail = path.relative_to("src") if path.is_relative_to("src") else path
    name = str(tail) if path.suffix == ".py" else path.name
    written = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
    module = ".".join(tail.with_suffix("").parts)
    return {
        each
        for each, text in texts.items()
        if each != path and ((name in text and written.search(text)) or module in _modules(text))
    }


@cache
def _modules(text: str) -> frozenset[str]:
    """The modules that a text names or imports, and what could be one, of the product and tests."""
    names = set(re.findall(r"\b(?:orchid|tests)(?:\.\w+)+", text))
    for package, several, single in re.findall(IMPORT, text):
        names |= {f"{package}.{name}" for name in re.findall(r"\w+", several or single)}
    parts = [name.split(".") for name in names]
    return frozenset(".".join(each[:length]) for each in parts for length in range(2, 9))


if __name__ == "__main__":
    sys.exit(main())
