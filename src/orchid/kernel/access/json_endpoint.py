"""A URL that takes or returns JSON: a webhook, a document with keys.

`JsonEndpoint` makes one request per connection; only a 2xx status is a success. `patiently` retries
a call while that may help. The transport and its errors are in kernel/outbound/https_client.py and
kernel/outbound/failures.py.
"""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from orchid.kernel.outbound.failures import AnswerRefused, CallFailed
from orchid.kernel.outbound.https_client import JSON, TIMEOUT, HttpsClient
from orchid.kernel.outbound.remote import FollowedKubeconfig, Remote

T = TypeVar("T")

MAX_ANSWER = 1 << 20
LONGEST_RETRY_AFTER = 30.0

_OK = range(200, 300)
_REDIRECT = range(300, 400)


async def patiently(
    call: Callable[[], Awaitable[T]],
    *,
    attempts: int = 5,
    pause: float = 0.5,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> T:
    """Make a call; while that may help, retry it after pauses that grow by half."""
    for left in range(attempts - 1, -1, -1):
        try:
            return await call()
        except CallFailed as failure:
            if not failure.can_retry or not left:
                raise
            # Jitter, so that many clients do not retry at the same time.
            jitter = pause * (1 + 0.2 * random.random())  # noqa: S311 - no secret
            await sleep(max(jitter, min(failure.retry_after, LONGEST_RETRY_AFTER)))
        pause *= 1.5
    raise AssertionError("the last attempt returns or raises")


class JsonEndpoint:
    """Single requests to the URL of one remote server."""

    def __init__(
        self,
        remote: Remote | FollowedKubeconfig,
        *,
        timeout: float = TIMEOUT,
        max_answer: int = MAX_ANSWER,
        accept: str = JSON,
    ) -> None:
        self._followed = remote if isinstance(remote, FollowedKubeconfig) else None
        self._remote = remote.current() if isinstance(remote, FollowedKubeconfig) else remote
        self._connect = functools.partial(
            HttpsClient, timeout=timeout, max_answer=max_answer, accept=accept
        )
        self._client = self._connect(self._remote)

    async def get(self) -> bytes:
        """Fetch a document; raises AnswerRefused for anything but a success."""
        return await self._call("GET", b"")

    async def post(self, body: bytes) -> bytes:
        """Send JSON, return the response body; raises AnswerRefused for anything but a success."""
        return await self._call("POST", body)

    async def post_patiently(
        self,
        body: bytes,
        *,
        attempts: int = 5,
        pause: float = 0.5,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> bytes:
        """Send JSON with retries (`patiently`)."""
        call = functools.partial(self.post, body)
        return await patiently(call, attempts=attempts, pause=pause, sleep=sleep)

    async def _call(self, method: str, body: bytes) -> bytes:
        # A handler first runs without a task of its own, which a timeout needs.
        await asyncio.sleep(0)
        answer = await self._current_client().send(method, body=body)
        status = answer.status
        if status in _OK:
            return answer.body
        if status in _REDIRECT:
            raise AnswerRefused(
                f"answered with a redirect ({status}), which is not followed", status
            )
        raise AnswerRefused(f"answered with status {status}", status, answer.retry_after)

    def _current_client(self) -> HttpsClient:
        remote = self._remote if self._followed is None else self._followed.current()
        if remote is not self._remote:
            self._remote, self._client = remote, self._connect(remote)
        return self._client
