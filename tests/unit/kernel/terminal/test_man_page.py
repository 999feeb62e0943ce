"""Manual pages, from the parsers themselves."""

import subprocess
from pathlib import Path

from orchid import cli
from orchid.kernel.terminal import man_page
from tests.system_packages import require_program

# All but those about lines that are too long for the paper: flags are not broken.
WARNINGS = ("-ww", "-W", "break")
PAGES = man_page.pages(cli.build())


def test_every_command_has_its_page() -> None:
    """And the program has one that lists them."""
    names = {f"orchid-{command.name}.1" for command in cli.COMMANDS}

    assert {name for name, text in PAGES.items() if ".TH" in text} == {"orchid.1", *names}


def test_the_name_of_an_action_leads_to_the_page_of_its_command() -> None:
    """`man orchid-csr-new` reads orchid-csr(1), where `new` has its section."""
    assert PAGES["orchid-csr-new.1"] == ".so man1/orchid-csr.1\n"
    assert PAGES["orchid-ledger-verify.1"] == ".so man1/orchid-ledger.1\n"


def test_actions_and_flags_stand_in_the_page() -> None:
    """With the words of the help."""
    page = PAGES["orchid-csr.1"]

    assert ".SH RENEW" in page
    assert "\\-\\-pending" in page
    assert "only undecided ones" in page


def test_pages_are_read_without_a_warning(tmp_path: Path) -> None:
    """groff reads each, and says nothing."""
    require_program("groff")
    (tmp_path / "man1").mkdir()
    for name, text in PAGES.items():
        (tmp_path / "man1" / name).write_text(text)

    read = subprocess.run(
        ["groff", "-man", "-Tutf8", *WARNINGS, "-I", str(tmp_path), "-z", *sorted(PAGES)],
        cwd=tmp_path / "man1",
        capture_output=True,
        text=True,
        check=True,
    )

    assert read.stderr == ""
