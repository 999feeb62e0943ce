"""Webhook tokens: ask another server whose token this is, by a TokenReview of its own.

Start with `WebhookTokenAuthenticator`. Answers are remembered for two stated times, one for yes and
one for no, under keyed hashes of token and audiences; errors are never remembered. The call goes to
exactly the configured address, follows no redirect, and waits in the request that needs it alone.
Anybody can present a token, so that only so many calls are under way at once; the others wait.
A credential id in the answer, remembered or not, is looked up among the revocations in every use.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec

from orchid.access.authenticators.audiences import Audiences, shared
from orchid.access.revocations import Revocations
from orchid.clock import Clock
from orchid.engine.interfaces import Authenticated, Rejected
from orchid.outbound.failures import CallFailed
from orchid.wire.naming import Naming
from orchid.wire.user import UserInfo

MAX_REMEMBERED = 10_000
MOST_AT_ONCE = 100
LONGEST_REASON = 256


class WebhookTimes(msgspec.Struct, frozen=True):
    """How long a clean answer is remembered; zero means not at all."""

    authenticated: timedelta = timedelta(minutes=2)
    refused: timedelta = timedelta(minutes=2)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...] | None] | None = None


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User | None = None
    audiences: tuple[str, ...] | None = None
    error: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _Status | None = None


class _Remembered(msgspec.Struct, frozen=True):
    begins: datetime
    ends: datetime
    answer: Authenticated | None


_decode = msgspec.json.Decoder(_Review).decode


class WebhookTokenAuthenticator:
    """Have a remote server judge tokens. `post` is JsonEndpoint.post_patiently, or a test's."""

    def __init__(
        self,
        post: Callable[[bytes], Awaitable[bytes]],
        clock: Clock,
        api_audiences: Audiences,
        names: Naming,
        times: WebhookTimes = WebhookTimes(),  # noqa: B008 - frozen
        *,
        revocations: Revocations | None = None,
    ) -> None:
        self._post = post
        self._clock = clock
        self._audiences = api_audiences
        self._api_version = f"{names.authentication}/v1"
        self._times = times
        self._revocations = revocations
        self._id_key = names.credential_id
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, _Remembered] = {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    async def authenticate_token(self, token: str, audiences: Audiences) -> Authenticated | None:
        key = self._hash(token, audiences)
        known = self._known.get(key)
        # A clock that steps back does not lengthen anything: the webhook is asked again.
        if known is not None and known.begins <= self._clock.now() < known.ends:
            found = known.answer
        else:
            found = self._read(await self._ask(token, audiences), audiences)
            self._remember(key, found)
        if found is not None and self._revocations is not None:
            await self._revocations.fresh()
            self._revocations.refuse_credential_ids(found.user.extra.get(self._id_key, ()))
            self._revocations.refuse_user(found.user.username, None)
        return found

    async def _ask(self, token: str, audiences: Audiences) -> bytes:
        review = {
            "kind": "TokenReview",
            "apiVersion": self._api_version,
            "metadata": {},
            "spec": {"token": token, "audiences": audiences},
            "status": {"user": {}},
        }
        try:
            body = msgspec.json.encode(review)
        except UnicodeEncodeError:
            raise Rejected("the token is not text") from None
        try:
            async with self._room:
                return await self._post(body)
        except CallFailed as failure:
            raise Rejected(f"webhook token review failed: {failure}") from None

    def _read(self, body: bytes, wanted: Audiences) -> Authenticated | None:
        try:
            status = _decode(body).status or _Status()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # The error's text would quote the answer, which holds the token.
            raise Rejected("webhook token review failed: the answer is no TokenReview") from None
        good = shared(status.audiences or self._audiences, wanted)
        if not good:
            return None
        if status.authenticated:
            return Authenticated(_user(status.user or _User()), good)
        if status.error:
            raise Rejected(_printable(status.error))
        return None

    def _remember(self, key: bytes, found: Authenticated | None) -> None:
        keep = self._times.refused if found is None else self._times.authenticated
        if not keep:
            return
        self._known.pop(key, None)
        if len(self._known) >= MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        now = self._clock.now()
        self._known[key] = _Remembered(now, now + keep, found)

    def _hash(self, token: str, audiences: Audiences) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (token, *audiences):
            data = part.encode("utf-8", "surrogatepass")
            # Lengths first, or two different lists could read the same.
            digest.update(len(data).to_bytes(4, "big") + data)
        return digest.digest()


def _user(sent: _User) -> UserInfo:
    extra = {key: values or () for key, values in (sent.extra or {}).items()}
    return UserInfo(sent.username, sent.uid, sent.groups or (), extra)


def _printable(text: str) -> str:
    return "".join(mark for mark in text[:LONGEST_REASON] if mark.isprintable())
