"""A violation: the rule, by which a shorter history is compared, and what was seen."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"
