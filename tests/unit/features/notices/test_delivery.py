"""Delivery of a notice: which answers count, and what of an answer becomes visible."""

from typing import Any

import pytest

from orchid.features.notices.delivery import Delivery
from orchid.features.notices.notice import MOST_VALUES, Notice, NoticeKey, plain, plain_all
from orchid.features.notices.sending import NoticeReceiver
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import HOUR, NOW

KEY = NoticeKey("https://example/events/x", "a", "u")


class Signer:
    """Signs nothing; `claims` is what was to be signed."""

    def __init__(self, *, slow: bool = False) -> None:
        self.slow = slow
        self.claims: Any = None

    def sign_event(self, claims: Any) -> str:
        self.claims = claims
        return "token"


async def send(status: int, body: bytes = b"", signer: Signer | None = None) -> list[Any]:
    sent: list[Any] = []

    async def post(data: bytes, media: str) -> Answer:
        sent.append((data, media))
        return Answer(status, body)

    receiver = NoticeReceiver(post, "the issuer", "the receiver")
    signed: Any = signer or Signer()
    delivery = Delivery(receiver, lambda: signed, FakeClock(NOW + HOUR))
    await delivery.send(KEY, Notice(NOW, "It ends.", {"key": "k"}))
    return sent


@pytest.mark.parametrize("status", [200, 202, 299])
async def test_each_success_is_an_acknowledgement(status: int) -> None:
    assert await send(status) == [(b"token", "application/secevent+jwt")]


@pytest.mark.parametrize("status", [100, 199, 300, 302, 400, 401, 500])
async def test_everything_else_is_a_failure(status: int) -> None:
    """Also a redirect: the token is for one receiver."""
    with pytest.raises(AnswerRefused, match=f"^answered with status {status}$"):
        await send(status)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"err": "invalid_key"}', ", invalid_key"),
        (b'{"err": "' + b"x" * 40 + b'"}', ", " + "x" * 40),
        (b'{"err": "' + b"x" * 41 + b'"}', ""),
        (b'{"err": "a secret"}', ""),
        (b'{"err": "a\\n"}', ""),
        (b'{"err": ""}', ""),
        (b'{"err": 5}', ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
async def test_only_the_code_of_an_error_is_shown(body: bytes, shown: str) -> None:
    """The rest of an answer is of a stranger, and ends in a log."""
    with pytest.raises(AnswerRefused) as refused:
        await send(400, body)

    assert str(refused.value) == f"answered with status 400{shown}"


@pytest.mark.parametrize("slow", [False, True])
async def test_a_notice_is_for_its_receiver_and_no_credential(slow: bool) -> None:
    """Without subject and end, which a token of an account has."""
    signer = Signer(slow=slow)

    await send(202, signer=signer)

    now = int(NOW.timestamp())
    assert signer.claims == {
        "iss": "the issuer",
        "aud": "the receiver",
        "iat": now + 3600,
        "toe": now,
        "jti": KEY.jti,
        "events": {KEY.event: {"text": "It ends.", "key": "k"}},
    }


@pytest.mark.parametrize("field", ["event", "name", "uid", "mark"])
def test_each_part_of_a_key_makes_another_notice(field: str) -> None:
    """Of an object that was created again under its name, too."""
    assert KEY._replace(**{field: "other"}).jti != KEY.jti
    assert KEY._replace().jti == KEY.jti


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
        ("\n" + "x" * 200, "\ufffd" + "x" * 198 + "…"),
    ],
)
def test_a_value_is_short_and_printable(value: str, expected: str) -> None:
    assert plain(value) == expected


def test_there_are_few_values() -> None:
    assert plain_all(("a\n",) * (MOST_VALUES + 1)) == ["a\ufffd"] * MOST_VALUES
