"""The project's own files keep the promises that its documents make."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PINNED = re.compile(r"^[a-z0-9-]+==\S+( ; .+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_holds_pinned_versions_and_hashes_alone(lock: Path) -> None:
    """A lock file names no host, no path and no unpinned package."""
    lines = lock.read_text().splitlines()

    odd = [line for line in lines if not PINNED.match(line) and not HASH.match(line)]

    assert lines
    assert odd == []


def test_every_script_is_explained() -> None:
    """Each script has its line in scripts/README.md, and each line its script."""
    readme = (ROOT / "scripts" / "README.md").read_text()

    explained = set(re.findall(r"^\| `([\w-]+)` \|", readme, re.MULTILINE))

    assert explained == {path.name for path in (ROOT / "scripts").iterdir()} - {"README.md"}


def test_decisions_are_numbered_without_gaps() -> None:
    """Decisions are counted from 0001, and no number is given twice."""
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("*.md"))

    assert numbers == list(range(1, len(numbers) + 1))


def test_everything_installs_our_distribution() -> None:
    """`orchid` on PyPI is somebody else's: what tells people what to install names ours."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    wrong = re.compile(
        r"(?<![\w/.-])orchid\[|pipx? install\b[^\n`]*?(?<![\w/.-])orchid(?![\w/.{-])"
    )
    texts = list(ROOT.glob("*.md"))
    for folder in ("docs", "src", "deploy", "scripts"):
        found_here = (ROOT / folder).rglob("*")
        texts += [path for path in found_here if path.is_file() and path.suffix != ".pyc"]

    found = [path for path in texts if wrong.search(path.read_text(errors="replace"))]

    assert name == "orchid-identity"
    assert wrong.search("pip install 'orchid[cel]'")
    assert wrong.search("pip install orchid")
    assert not wrong.search(f"pip install '{name}[cel]'; pip install ./orchid")
    assert [str(path) for path in found] == []


def test_every_exemption_has_its_reason() -> None:
    """A rule is switched off for a line only with the reason beside it, on the same line."""
    exempt = re.compile(r"# (?:noqa|type: ignore)\b(.*)")
    reason = re.compile(r"(?:: [A-Z]+\d+(?:, [A-Z]+\d+)*|\[[a-z-]+\]) +(?:#|--?) [\w\"'`]")
    files = [
        path for folder in ("src", "tests", "benchmarks") for path in ROOT.glob(f"{folder}/**/*.py")
    ]

    bare = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in exempt.finditer(line)
        if not reason.match(found[1])
    ]

    assert files
    assert bare == []


def test_time_is_measured_by_what_was_handed_in() -> None:
    """`time.monotonic` stands in clock.py alone; everybody else gets it from the assembly."""
    sources = [path for path in ROOT.glob("src/**/*.py") if path != ROOT / "src/orchid/clock.py"]
    direct = re.compile(r"\btime\.monotonic|from time import .*\bmonotonic")

    found = [
        f"{path.relative_to(ROOT)}:{number}: take a Clock, or a Monotonic, as an argument"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if direct.search(line)
    ]

    assert direct.search("started = time.monotonic()")
    assert direct.search("from time import monotonic, sleep")
    assert sources
    assert found == []
