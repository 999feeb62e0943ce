"""docs/security.md names a test in every row, and each of them exists."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
THREATS, FAILURES, FINDINGS, SECOND_FINDINGS = 16, 24, 39, 31
# Numbers that are missing were repeated by others. Further rows begin with C-.
THIRD_FINDINGS = {
    *(f"A{number}" for number in range(1, 18)),
    *(f"B{number:02}" for number in (*range(1, 14), *range(16, 21), 22, *range(24, 29))),
    "Imported",
}


def rows(title: str) -> list[str]:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


@cache
def defined_in(file: str) -> frozenset[str]:
    text = (ROOT / file).read_text()
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_a_named_test_exists(file: str, name: str) -> None:
    """A renamed test must be renamed on the page."""
    assert name in defined_in(file)


@pytest.mark.parametrize(
    ("title", "count"), [("Threats", THREATS), ("Vulnerabilities of other systems", FAILURES)]
)
def test_every_row_names_a_test(title: str, count: int) -> None:
    """No threat and no failure is listed without what shows that it does not work."""
    assert len(rows(title)) == count
    assert [row for row in rows(title) if not NAMED.search(row)] == []


def test_the_attack_of_every_finding_is_kept_here() -> None:
    """The findings are numbered without a gap; what an audit did to us is done again and again."""
    found = [row.split("|")[1:3] for row in rows("Found by an audit of this project")]

    assert [int(finding.split()[0]) for finding, _ in found] == [*range(1, FINDINGS + 1)]
    assert [finding for finding, attack in found if "`tests/security/" not in attack] == []


def test_the_attack_of_every_finding_of_the_second_audit_is_kept_here() -> None:
    """They are numbered without a gap, and each has an attack under tests/security."""
    found = [row.split("|")[1:3] for row in rows("Found by the second audit")]
    numbers = [int(finding.split()[0]) for finding, _ in found]

    assert numbers == [*range(1, SECOND_FINDINGS + 1)]
    assert [finding for finding, attack in found if "`tests/security/" not in attack] == []


def test_the_attack_of_every_finding_of_the_third_audit_is_kept_here() -> None:
    """None is missing or listed twice, and each has an attack under tests/security."""
    listed = [row.split("|")[1:3] for row in rows("Found by the third audit")]
    numbers = [finding.split()[0] for finding, _ in listed]

    assert len(set(numbers)) == len(numbers)
    assert {number for number in numbers if not number.startswith("C-")} == THIRD_FINDINGS
    assert [finding for finding, attack in listed if "`tests/security/" not in attack] == []


def test_every_test_of_this_directory_is_on_the_page_or_beside_one_that_is() -> None:
    """A file of security tests that the page does not know would be overlooked."""
    files = {f"tests/security/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    named = {file for file, _ in NAMED.findall(PAGE)}

    assert files - named == {"tests/security/test_this_page.py"}
