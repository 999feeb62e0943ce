"""The published keys of one outside issuer, fetched in the background.

`KeySource.run` finds the issuer's configuration, then its keys, and refreshes them from time to
time. `KeySource.newer` asks for a refresh now, for a token whose key is not known; it is granted at
most every so often, or anybody could have us hammer the issuer. Old keys stay while new ones
cannot be had. Nobody waits here but requests with a token of this very issuer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, timedelta

import msgspec

from orchid.access.json_endpoint import JsonEndpoint
from orchid.access.oidc.configuration import ALGORITHMS, IssuerSettings
from orchid.clock import Clock
from orchid.credentials.keys import VerificationKey, read_jwks
from orchid.credentials.refusals import Refusal
from orchid.outbound.failures import CallFailed
from orchid.outbound.remote import InvalidRemote, Remote, trusting

log = logging.getLogger(__name__)

# How long until the next try, after a failure and after success.
RETRY_SECONDS = 10.0
REFRESH_SECONDS = 600.0
LEAST_INTERVAL = timedelta(seconds=30)
LONGEST_WAIT = 10.0
# Key sets have a media type of their own (RFC 7517), and some issuers send no other.
ACCEPT = "application/json, application/jwk-set+json, */*"

Fetch = Callable[[str], Awaitable[bytes]]


class KeyUnfit(Exception):
    """The issuer published something we cannot use."""


def fetching(settings: IssuerSettings, *, timeout: float = 30.0) -> Fetch:
    """Fetch documents over HTTPS, trusting the authorities that the settings name."""
    tls = trusting(settings.authorities)

    async def fetch(url: str) -> bytes:
        return await JsonEndpoint(Remote(url, tls), timeout=timeout, accept=ACCEPT).get()

    return fetch


class KeySource:
    """Keep one issuer's keys; `changed` is told whenever there are others."""

    def __init__(
        self,
        settings: IssuerSettings,
        fetch: Fetch,
        clock: Clock,
        changed: Callable[[str, tuple[VerificationKey, ...]], None],
    ) -> None:
        self.ready = False
        self.problem = ""  # why the last try failed; for the log and health, never for callers
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._changed = changed
        self._document = b""
        self._last: datetime | None = None
        self._fetching = False
        self._wake = asyncio.Event()
        self._rounds = 0
        self._round_done = asyncio.Condition()

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
        """Wait for a refresh, if one is under way or may be had now; say whether there was one."""
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
        """Fetch once; on failure the old keys stay and `problem` says why."""
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
            told = {"issuer": self._settings.url, "problem": problem}
            log.warning("oidc.keys_unavailable", extra=told)
        self.problem = problem

    def _is_recent(self) -> bool:
        # Not before it either: a clock that steps back must not put off the next fetch.
        return self._last is not None and (
            self._last <= self._clock.now() < self._last + LEAST_INTERVAL
        )

    async def _take(self) -> None:
        configuration = _object(await self._fetch(self._settings.configuration_url))
        if configuration.get("issuer") != self._settings.url:
            # Or one issuer's host could hand us the keys of another.
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
            self._changed(self._settings.url, keys)
            log.info("oidc.keys_fetched", extra={"issuer": self._settings.url, "keys": len(keys)})


def _why_unusable(document: dict[str, object], accepted: Collection[str]) -> str:
    """Why no key of a set is usable: its algorithms are not accepted, or it has none we know."""
    published = sorted({key.algorithm for key in read_jwks(document, ALGORITHMS)})
    if not published:
        return "the published key set has no key that we can use"
    return (
        f"the published keys are for {', '.join(published)}, and only "
        f"{', '.join(accepted)} is accepted from this issuer (--oidc-signing-algs)"
    )


def _object(body: bytes) -> dict[str, object]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise KeyUnfit("the published document is not JSON") from None
    if not isinstance(value, dict):
        raise KeyUnfit("the published document is not an object")
    return value
