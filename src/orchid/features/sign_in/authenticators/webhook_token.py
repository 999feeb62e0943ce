"""Webhook tokens: another server authenticates a token by a TokenReview.

Start with `WebhookTokenAuthenticator`. Responses are cached for two configured times, one for
accepted and one for refused tokens, under keyed hashes of token and audiences; errors are never
cached. The call goes to exactly the configured URL, follows no redirect, and delays only the
request that needs it. Anybody can present a token, so the number of concurrent calls is limited;
others wait. A credential id in the response, cached or not, is checked for revocation at every use.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec

from orchid.features.revocation.revocations import Revocations
from orchid.kernel.access.authenticators.audiences import Audiences, shared
from orchid.kernel.base.clock import Clock
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import UserInfo

MOST_CACHED = 10_000
MOST_AT_ONCE = 100
LONGEST_REASON = 256


class WebhookTimes(msgspec.Struct, frozen=True):
    """Lifetimes of cached responses; zero disables the cache."""

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


class _CacheEntry(msgspec.Struct, frozen=True):
    begins: datetime
    ends: datetime
    answer: Authenticated | None


class WebhookTokenAuthenticator:
    """Authenticate tokens by a remote server. `post`: JsonEndpoint.post_patiently."""

    def __init__(
        self,
        post: Callable[[bytes], Awaitable[bytes]],
        clock: Clock,
        api_audiences: Audiences,
        naming: Naming,
        times: WebhookTimes = WebhookTimes(),  # noqa: B008 - frozen
        *,
        revocations: Revocations | None = None,
    ) -> None:
        self._post = post
        self._clock = clock
        self._audiences = api_audiences
        self._api_version = f"{naming.authentication}/v1"
        self._times = times
        self._revocations = revocations
        self._id_key = naming.credential_id
        self._key = secrets.token_bytes(32)
        self._cache: dict[bytes, _CacheEntry] = {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    async def authenticate_token(self, token: str, audiences: Audiences) -> Authenticated | None:
        key = self._hash(token, audiences)
        cached = self._cache.get(key)
        # If the clock steps back, the webhook is called again.
        if cached is not None and cached.begins <= self._clock.now() < cached.ends:
            identity = cached.answer
        else:
            identity = self._read(await self._ask(token, audiences), audiences)
            self._store(key, identity)
        if identity is not None and self._revocations is not None:
            await self._revocations.fresh()
            self._revocations.refuse_credential_ids(identity.user.extra.get(self._id_key, ()))
            self._revocations.refuse_user(identity.user.username, None)
        return identity

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

    def _read(self, body: bytes, requested: Audiences) -> Authenticated | None:
        try:
            status = foreign.decode(body, _Review).status or _Status()
        except AnswerRefused:
            raise Rejected(
                "webhook token review failed: the response is not a TokenReview"
            ) from None
        good = shared(status.audiences or self._audiences, requested)
        if not good:
            return None
        if status.authenticated:
            return Authenticated(_user(status.user or _User()), good)
        if status.error:
            raise Rejected(_printable(status.error))
        return None

    def _store(self, key: bytes, identity: Authenticated | None) -> None:
        keep = self._times.refused if identity is None else self._times.authenticated
        if not keep:
            return
        self._cache.pop(key, None)
        if len(self._cache) >= MOST_CACHED:
            del self._cache[next(iter(self._cache))]
        now = self._clock.now()
        self._cache[key] = _CacheEntry(now, now + keep, identity)

    def _hash(self, token: str, audiences: Audiences) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (token, *audiences):
            data = part.encode("utf-8", "surrogatepass")
            # Lengths first, or two different lists could have the same bytes.
            digest.update(len(data).to_bytes(4, "big") + data)
        return digest.digest()


def _user(sent: _User) -> UserInfo:
    extra = {key: values or () for key, values in (sent.extra or {}).items()}
    return UserInfo(sent.username, sent.uid, sent.groups or (), extra)


def _printable(text: str) -> str:
    return "".join(mark for mark in text[:LONGEST_REASON] if mark.isprintable())
