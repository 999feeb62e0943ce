"""JSON of servers that are not ours: issuers, webhooks, receivers of notices, clusters.

`decode` is the way to read it: the values are counted before they are decoded, and whatever is
wrong with the document is one refusal. Bytes and time are limited by https_client.py, which follows
no redirect.
"""

from typing import Final, TypeVar

import msgspec

from orchid.kernel.outbound.failures import AnswerOverLimit, AnswerRefused

T = TypeVar("T")

MOST_VALUES: Final = 25_000  # of a document; decoding them takes milliseconds


def decode(body: bytes, type_: type[T], *, most: int = MOST_VALUES) -> T:
    """The document; raises AnswerRefused if it is too large, or not of the type."""
    require_few_marks(body, most)
    try:
        decoded: T = msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AnswerRefused("the answer is not the JSON that was expected") from None
    return decoded


def require_few_marks(body: bytes | msgspec.Raw, most: int) -> None:
    """Refuse JSON that may have too many values. Commas and brackets in strings count, too."""
    data = bytes(body)
    if data.count(b",") + data.count(b"{") + data.count(b"[") > most:
        raise AnswerOverLimit(f"the answer has more than {most} values")
