"""JSON of servers that are not ours."""

from typing import Any

import msgspec
import pytest

from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.failures import AnswerOverLimit, AnswerRefused


class Named(msgspec.Struct):
    name: str


def test_a_document_of_the_type_is_decoded() -> None:
    """Other members are ignored."""
    assert foreign.decode(b'{"name": "a", "more": 1}', Named) == Named("a")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"name": 1}', b'{"name": "\xff"}', b'{"x":' + b"[" * 9999]
)
def test_everything_else_is_one_refusal(body: bytes) -> None:
    """Which never quotes the document."""
    with pytest.raises(AnswerRefused, match=r"^the answer is not the JSON that was expected$"):
        foreign.decode(body, Named)


@pytest.mark.parametrize("value", [b"{}", b"[]", b"1"])
def test_values_are_counted(value: bytes) -> None:
    """Objects, lists and members."""
    few, many = (b"[" + b",".join([value] * count) + b"]" for count in (4, 12))

    assert len(foreign.decode(few, list[Any], most=10)) == 4
    with pytest.raises(AnswerOverLimit, match="more than 10 values"):
        foreign.decode(many, list[Any], most=10)
