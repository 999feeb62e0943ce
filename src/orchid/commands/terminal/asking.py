"""One question before something is done that cannot be taken back."""

import sys

LONGEST_ANSWER = 64  # characters


def confirmed(question: str) -> bool | None:
    """Whether the person at the terminal says yes; None where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline(LONGEST_ANSWER).strip().lower() in ("y", "yes")
