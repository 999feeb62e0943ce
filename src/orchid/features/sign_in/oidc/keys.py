"""The published keys of an external issuer, fetched in the background.

`KeySource.run` fetches the issuer's configuration, then its keys, and refreshes them regularly.
`KeySource.newer` refreshes them for a token with an unknown key; its rate is limited, or anybody
could make us flood the issuer. Old keys stay while new ones cannot be fetched. Only requests with a
token of this issuer wait here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, timedelta
from typing import Protocol

from orchid.features.sign_in.oidc.configuration import ALGORITHMS
from orchid.kernel.access.json_endpoint import JsonEndpoint
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.keys import VerificationKey, read_jwks
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed
from orchid.kernel.outbound.remote import InvalidRemote, Remote, trusting

log = logging.getLogger(__name__)

# Seconds until the next attempt, after a failure and after a success.
RETRY_SECONDS = 10.0
REFRESH_SECONDS = 600.0
LEAST_INTERVAL = timedelta(seconds=30)
LONGEST_WAIT = 10.0
# Key sets have a media type of their own (RFC 7517), and some issuers send no other.
ACCEPT = "application/json, application/jwk-set+json, */*"

Fetch = Callable[[str], Awaitable[bytes]]


Changed = Callable[[str, tuple[VerificationKey, ...]], None]


class KeyLocation(Protocol):
    """An issuer: where it publishes its keys, and which of them are used."""

    @property
    def url(self) -> str: ...
    @property
    def configuration_url(self) -> str: ...
    @property
    def authorities(self) -> str: ...
    @property
    def algorithms(self) -> tuple[str, ...]: ...


class KeyUnfit(Exception):
    """The issuer published an unusable document."""


def fetching(settings: KeyLocation, *, timeout: float = 30.0) -> Fetch:
    """Fetch documents over HTTPS, with the CAs in the settings."""
    tls = trusting(settings.authorities) if settings.authorities else None

    async def fetch(url: str) -> bytes:
        nonlocal tls
        if tls is None:
            tls = await asyncio.to_thread(trusting)  # parses all CAs of the system
        return await JsonEndpoint(Remote(url, tls), timeout=timeout, accept=ACCEPT).get()

    return fetch


class KeySource:
    """The keys of one issuer; `changed` is called with new keys."""

    def __init__(
        self, settings: KeyLocation, fetch: Fetch, clock: Clock, changed: Changed | None = None
    ) -> None:
        self.ready = False
        self.keys: tuple[VerificationKey, ...] = ()
        self.problem = ""  # of the last attempt; for the log and health, never for clients
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._followers: list[Changed] = [changed] if changed else []
        self._document = b""
        self._last: datetime | None = None
        self._fetching = False
        self._wake = asyncio.Event()
        self._rounds = 0
        self._round_done = asyncio.Condition()

    def is_for(self, other: KeyLocation) -> bool:
        """Whether the keys of another configuration of the issuer are among ours."""
        mine = self._settings
        return (mine.url, mine.configuration_url, mine.authorities) == (
            other.url,
            other.configuration_url,
            other.authorities,
        ) and set(other.algorithms) <= set(mine.algorithms)

    def follow(self, changed: Changed) -> None:
        """Call `changed` with the current keys, if there are any, and with new ones."""
        self._followers.append(changed)
        if self.ready:
            changed(self._settings.url, self.keys)

    def unfollow(self, changed: Changed) -> None:
        self._followers.remove(changed)

    @property
    def is_current(self) -> bool:
        """Whether the last attempt to fetch the keys succeeded, and none is running."""
        return self.ready and not self.problem and not self._fetching

    async def run(self) -> None:
        """Fetch and refresh until cancelled."""
        while True:
            await self.refresh()
            pause = REFRESH_SECONDS if not self.problem else RETRY_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def newer(self) -> bool:
        """Wait for a refresh, if one is running or allowed now; return whether there was one."""
        if not self._fetching and self._is_recent():
            return False
        await asyncio.sleep(0)  # a timeout needs a task, which a handler has only from here on
        seen = self._rounds
        if not self._fetching:
            self._wake.set()
        try:
            async with asyncio.timeout(LONGEST_WAIT), self._round_done:
                await self._round_done.wait_for(lambda: self._rounds > seen)
        except TimeoutError:
            return False
        return True

    async def refresh(self) -> None:
        """Fetch once; on failure the old keys stay and `problem` has the reason."""
        self._wake.clear()
        self._last = self._clock.now()
        self._fetching = True
        try:
            await self._take()
            self._settle("")
        except (CallFailed, InvalidRemote, Refusal, KeyUnfit) as failure:
            self._settle(str(failure))
        finally:
            self._fetching = False
        async with self._round_done:
            self._rounds += 1
            self._round_done.notify_all()

    def _settle(self, problem: str) -> None:
        if problem and problem != self.problem:
            fields = {"issuer": self._settings.url, "problem": problem}
            log.warning("oidc.keys_unavailable", extra=fields)
        self.problem = problem

    def _is_recent(self) -> bool:
        # Not before it either: a clock that steps back must not delay the next fetch.
        return self._last is not None and (
            self._last <= self._clock.now() < self._last + LEAST_INTERVAL
        )

    async def _take(self) -> None:
        configuration = _object(await self._fetch(self._settings.configuration_url))
        if configuration.get("issuer") != self._settings.url:
            # Or one issuer's host could publish keys for another.
            raise KeyUnfit("the published configuration names another issuer")
        where = configuration.get("jwks_uri")
        if not isinstance(where, str):
            raise KeyUnfit("the published configuration has no jwks_uri")
        document = await self._fetch(where)
        keys = read_jwks(_object(document), self._settings.algorithms)
        if not keys:
            raise KeyUnfit(_why_unusable(_object(document), self._settings.algorithms))
        if document != self._document or not self.ready:
            self._document = document
            self.ready = True
            self.keys = keys
            for changed in self._followers:
                changed(self._settings.url, keys)
            log.info("oidc.keys_fetched", extra={"issuer": self._settings.url, "keys": len(keys)})


def _why_unusable(document: dict[str, object], accepted: Collection[str]) -> str:
    """Why no key of a set is usable: algorithms that are not accepted, or unsupported types."""
    published = sorted({key.algorithm for key in read_jwks(document, ALGORITHMS)})
    if not published:
        return "the published key set has no key that we can use"
    return (
        f"the published keys are for {', '.join(published)}, and only {', '.join(accepted)} is "
        "accepted from this issuer (--oidc-signing-algs, or algorithms of --token-exchange-config)"
    )


def _object(body: bytes) -> dict[str, object]:
    try:
        return foreign.decode(body, dict[str, object])
    except AnswerRefused as refusal:
        raise KeyUnfit(f"the published document cannot be used: {refusal}") from None
