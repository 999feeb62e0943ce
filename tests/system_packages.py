"""Programs of the operating system that some tests need; without them those tests are skipped."""

import shutil

import pytest

MISSING = "system package missing: "


def require_program(program: str) -> str:
    """Give the path of a program, or skip the test that asked for it."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{MISSING}{program}")
    return path
