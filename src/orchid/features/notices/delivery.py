"""Delivery of a notice: signed with the token key, pushed over HTTPS (RFC 8935).

Any 2xx status is an acknowledgement. Everything else raises CallFailed, whose text names the status
and, if there is one, the error code of the receiver; never the URL, the token or the answer.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Final

import msgspec

from orchid.features.notices.notice import Notice, NoticeKey
from orchid.features.notices.sending import NoticeReceiver
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.failures import AnswerRefused

MEDIA: Final = "application/secevent+jwt"
DELIVERED, FAILED, LIMITED, GIVEN_UP = "delivered", "failed", "limited", "given-up"

_OK: Final = range(200, 300)
_is_code = re.compile(r"[A-Za-z0-9_.-]{1,40}").fullmatch


class _Problem(msgspec.Struct):
    err: str = ""


class Delivery:
    def __init__(
        self, receiver: NoticeReceiver, signer: Callable[[], TokenSigner], clock: Clock
    ) -> None:
        self._receiver = receiver
        self._signer = signer
        self._clock = clock

    async def send(self, key: NoticeKey, notice: Notice) -> None:
        """Sign and push it; raises CallFailed if the receiver does not take it."""
        receiver = self._receiver
        claims = notice.claims(
            key, issuer=receiver.issuer, audience=receiver.audience, now=self._clock.now()
        )
        signer = self._signer()
        if signer.slow:
            token = await asyncio.to_thread(signer.sign_event, claims)
        else:
            token = signer.sign_event(claims)
        answer = await receiver.post(token.encode(), MEDIA)
        if answer.status not in _OK:
            raise AnswerRefused(f"answered with status {answer.status}{_code(answer.body)}")


def _code(body: bytes) -> str:
    """The error code of a receiver (RFC 8935, section 2.3)."""
    try:
        code = foreign.decode(body, _Problem).err
    except AnswerRefused:
        return ""
    return f", {code}" if _is_code(code) else ""
