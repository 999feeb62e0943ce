"""The pages agree with the program and with each other: commands, kinds, links, alerts."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from orchid.assembly.kinds import stored_kinds
from orchid.kernel.wire.naming import ORCH

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of headings, as GitHub makes them."""
    return {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in HEADING.findall(prose(page))
    }


def test_every_link_of_a_page_leads_somewhere() -> None:
    """To a file of the repository, and to a heading that it has."""
    broken = []
    for page in PAGES:
        for link in LINK.findall(prose(page)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")

    assert broken == []


def test_every_file_of_the_repository_that_a_page_names_exists() -> None:
    """Tests and sources move; a page that sends a reader to the old path is of no use."""
    named = re.compile(r"(?<![\w./-])(?:tests|src|scripts|benchmarks|requirements)/[\w./-]*\w")
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        if page.parent.name != "decisions"  # they are of their time
        for path in named.findall(page.read_text())
        if not (ROOT / path).exists()
    ]

    assert missing == []


def test_index_has_every_page() -> None:
    """A page that the index does not name is read by nobody."""
    index = (DOCS / "README.md").read_text()
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]

    missing = [page for page in pages if f"({page})" not in index]

    assert [page for page in missing if not page.startswith(("decisions/", "README.md"))] == []


def test_concepts_have_every_kind() -> None:
    """Each stored kind is explained in a sentence."""
    cells = re.findall(r"^\| ([\w, ]+) \|", (DOCS / "concepts.md").read_text(), re.MULTILINE)
    named = {name for cell in cells for name in cell.split(", ")}

    assert {kind.name for kind in stored_kinds(ORCH)} <= named


def test_page_of_commands_is_up_to_date() -> None:
    """`scripts/commands > docs/commands.md` writes it."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "commands"], capture_output=True, text=True, check=True
    )

    assert (DOCS / "commands.md").read_text() == done.stdout


def test_every_alert_is_on_the_page_of_metrics() -> None:
    """The page names the alert of each metric that has one, and no other."""
    rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text())
    alerts = {rule["alert"] for rule in rules["groups"][0]["rules"]}
    page = (DOCS / "metrics.md").read_text()

    assert set(re.findall(r"`(Orchid[A-Z]\w+)`", page)) == alerts
