"""A violation: the rule, by which a shorter history is compared, and what was seen."""

from dataclasses import dataclass
from typing import Final

# A violation in what controllers write counts after this time: another server leads after 15
# seconds, and watches of several kinds may arrive late and in any order.
LATEST_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Violation:
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"
