"""Open watches: limits per user, and repeated checks of credentials and permissions.

A watch lasts for many minutes, and its credential or permission may end before it does. So its
request is authenticated and authorized again: soon after a change of an object that credentials or
permissions depend on, soon after a call of `check_soon`, and every few seconds, since credentials
expire. A watch is ended by a clear refusal; a failing store or webhook ends nothing.

Start with `OpenWatches.follow`. It never reads events: watch_stream.py sends those.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from orchid.kernel.access.impersonation.impersonation import Impersonation, is_asked_for
from orchid.kernel.base.metrics import Counter, Gauge
from orchid.kernel.engine.cache.kind_cache import KindCache, ObjectChange
from orchid.kernel.engine.interfaces import Authenticator, Authorizer, Rejected
from orchid.kernel.engine.request import Target
from orchid.kernel.http.messages import HttpRequest, Stream
from orchid.kernel.server.fairness import Overloaded
from orchid.kernel.wire.errors import BadRequest, Forbidden
from orchid.kernel.wire.user import MASTERS, UserInfo

log = logging.getLogger(__name__)

MOST_PER_USER: Final = 1_000
LOOK_EVERY: Final = 10.0  # seconds, for the expiry of tokens and certificates
SHARE: Final = 0.1  # of the time, for rounds, so that many changes cost no more
LONGEST_PAUSE: Final = 0.5  # seconds; rounds of over 50 ms take a larger share
AT_ONCE: Final = 20  # watches that are checked together, before other tasks may run


def pause_after(took: float) -> float:
    """The pause after a round; with few watches, the next one may follow immediately."""
    return min(took / SHARE, LONGEST_PAUSE)


class _Followed(NamedTuple):
    """The request that opened a watch, its target, and its user."""

    http: HttpRequest
    target: Target
    username: str  # the impersonated user, if there is one


class OpenWatches:
    """All open watches."""

    def __init__(
        self,
        authenticator: Authenticator,
        impersonation: Impersonation,
        authorizer: Authorizer,
        rests_on: Iterable[KindCache[Any]] = (),
        *,
        ends_with: Iterable[KindCache[Any]] = (),
        most_per_user: int = MOST_PER_USER,
    ) -> None:
        """`rests_on`: the kinds that grant credentials and permissions; `ends_with`: those that
        revoke them.
        """
        self._authenticator = authenticator
        self._impersonation = impersonation
        self._authorizer = authorizer
        self._most_per_user = most_per_user
        self._open: dict[Stream, _Followed] = {}
        self._per_user: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._revoked = asyncio.Event()  # set together with the former
        self.users = Gauge("orchid_watch_users", "Users who have a watch open.")
        self.refused = Counter("orchid_watch_refused_total", "Watches beyond a user's share.")
        self.ended = Counter("orchid_watch_ended_total", "Watches ended with their right.")
        for cache in rests_on:
            cache.listen(self, self._on_changes, self.check_soon)
        for cache in ends_with:
            cache.listen(self, lambda _changes: self._on_revocation(), self._on_revocation)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def metrics(self) -> tuple[Counter, ...]:
        return self.users, self.refused, self.ended

    def follow(self, stream: Stream, http: HttpRequest, target: Target, user: UserInfo) -> None:
        """Supervise a watch until it is over; raises Overloaded if the user has too many."""
        username = user.username
        count = self._per_user.get(username, 0)
        if count >= self._most_per_user and MASTERS not in user.groups:
            self.refused.count()
            raise Overloaded
        self._per_user[username] = count + 1
        self.users.set(len(self._per_user))
        self._open[stream] = _Followed(http, target, username)
        stream.on_close(lambda: self._closed(stream))

    def check_soon(self) -> None:
        """Check every watch again soon: a credential or a permission may have ended."""
        self._changed.set()

    async def run(self) -> None:
        """Check watches whenever necessary, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._changed.wait()
            self._changed.clear()
            self._revoked.clear()
            begun = loop.time()
            await self.check_all()
            await self._pause(loop.time() - begun)

    async def check_all(self) -> None:
        """End every watch whose request would be refused now."""
        # Several together: each needs fresh data, and one response of the store serves all
        # concurrent requests for it.
        watches = tuple(self._open.items())
        for first in range(0, len(watches), AT_ONCE):
            some = watches[first : first + AT_ONCE]
            await asyncio.gather(*(self._judge(*watch) for watch in some))
            await asyncio.sleep(0)

    async def _judge(self, stream: Stream, followed: _Followed) -> None:
        if stream in self._open and not await self._may_go_on(followed):
            self.ended.count()
            stream.finish()

    async def _pause(self, took: float) -> None:
        """Wait after a round; a revocation shortens that to the length of the round."""
        await asyncio.sleep(min(took, LONGEST_PAUSE))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(pause_after(took) - took, 0.0)):
                await self._revoked.wait()

    async def _may_go_on(self, followed: _Followed) -> bool:
        http, target, username = followed
        try:
            caller = await self._authenticator.authenticate(http)
            if caller is None:
                return False
            user = caller.user
            if is_asked_for(http.headers):
                acting = await self._impersonation.apply(user, http, target)
                user = acting.user if acting is not None else user
            decision = await self._authorizer.authorize(user, target)
        except (Rejected, BadRequest, Forbidden):
            return False
        except Exception as problem:  # a failure on our side must not end a watch
            log.warning("watch.not_judged", extra={"why": type(problem).__name__})
            return True
        return user.username == username and (decision.allowed or bool(decision.error))

    def _on_revocation(self) -> None:
        self._revoked.set()
        self._changed.set()

    def _on_changes(self, changes: list[ObjectChange[Any]]) -> None:
        # New objects grant permissions; only changed or deleted ones can remove them.
        if self._open and any(change.old is not None for change in changes):
            self._changed.set()

    def _closed(self, stream: Stream) -> None:
        username = self._open.pop(stream).username
        left = self._per_user[username] - 1
        if left:
            self._per_user[username] = left
        else:
            del self._per_user[username]
            self.users.set(len(self._per_user))
