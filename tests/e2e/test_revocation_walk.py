"""Every command of docs/revocation.md does what the page shows."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_readme_walk import Walk, steps
from tests.system_packages import require_program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "revocation.md"


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    with ExitStack() as servers:
        yield Walk(tmp_path, servers)


def test_what_to_do_when_a_laptop_was_stolen_is_as_written(walk: Walk) -> None:
    """From the stolen certificates to the clients that fetch the revocation list."""
    for program in ("curl", "openssl"):
        require_program(program)

    walk.take(steps(PAGE.read_text()))
