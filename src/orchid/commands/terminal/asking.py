"""A confirmation before an irreversible action."""

import sys

LONGEST_ANSWER = 64  # characters


def confirmed(question: str) -> bool | None:
    """Whether the person at the terminal confirms; None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline(LONGEST_ANSWER).strip().lower() in ("y", "yes")
