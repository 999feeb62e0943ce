"""Settings for tests, by the names of their fields."""

from typing import Any

from orchid.assembly.settings import read
from orchid.kernel.settings.given import Given


def written(**values: Any) -> Given:
    """Every setting as written in a file; raises BadSettings."""
    return read(None, {name.replace("_", "-"): value for name, value in values.items()})
