"""A value that does not print: tokens and private keys travel in this type.

Start with `SecretValue(text)`; `reveal()` is the only way out, so a search for it finds every place
where a secret leaves. Never put the revealed text into a log line, an error or a label.
"""

import hmac


class SecretValue:
    """Hold text that must not appear in logs, errors or tracebacks."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Give the text itself to the one place that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretValue):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    # A dictionary would compare by hash first and so leak through time.
    __hash__ = None  # type: ignore[assignment]  # the documented way to say "not hashable"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")
