"""A class of differences, as it is counted and shown: `Found`."""

from dataclasses import dataclass
from typing import Any

from tests.comparison.grammar import Asked


@dataclass
class Found:
    """How many there were, and the first of them."""

    asked: Asked
    answers: tuple[dict[str, Any], dict[str, Any]]
    count: int = 0
