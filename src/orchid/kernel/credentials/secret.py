"""A value that does not print: the type of tokens and private keys.

Start with `SecretValue(text)`; only `reveal()` returns the text, so a search for it finds every use
of a secret. Never put the revealed text into a log line, an error or a label.
"""

import hmac


class SecretValue:
    """Text that must not appear in logs, errors or tracebacks."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretValue):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    # A dictionary would compare by hash first and so leak through timing.
    __hash__ = None  # type: ignore[assignment]  # the documented way to say "not hashable"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")
