"""Packages that not every machine can have; without one, the tests that need it are skipped."""

import importlib.util

import pytest

from tests.system_packages import MISSING


def needs_atheris() -> None:
    """Skip the test that asked unless coverage can be followed here."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip(f"{MISSING}atheris")
