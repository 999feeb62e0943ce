"""Tokens of other issuers that are exchanged: verified with the published keys of the issuer.

Start with `SubjectTokens.verify`. The issuer must be in the TokenExchangeConfiguration; this is
checked before any signature. Times, audience and proof of possession are checked at every use; only
verified signatures are cached (kernel/credentials/tokens.py). `run` follows the file and fetches
the keys, and needs an owner. The keys of an issuer that also authenticates users of the API
(access/oidc/) are fetched once, if both files name the same URLs and CAs; each uses those of its
own algorithms.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from orchid.features.exchange.configuration import ExchangeIssuer, read_configuration
from orchid.features.sign_in.oidc.authenticator import unverified_algorithm, unverified_issuer
from orchid.features.sign_in.oidc.configuration import InvalidConfiguration
from orchid.features.sign_in.oidc.keys import (
    LEAST_INTERVAL,
    Fetch,
    KeyLocation,
    KeySource,
    fetching,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.scheduling.seat import SEAT
from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.keys import VerificationKey
from orchid.kernel.credentials.refusals import (
    BadSignature,
    NotAToken,
    Refusal,
    TokenRefused,
    UnknownKey,
    WrongIssuer,
)
from orchid.kernel.credentials.token_claims import Payload
from orchid.kernel.credentials.tokens import KeySet, Verified, Verifier

log = logging.getLogger(__name__)

CHECK_EVERY: Final = 4.0  # seconds, of the file: a change is used within five
LEEWAY: Final = 60  # seconds, for clocks that differ
LONGEST_LIFETIME: Final = 24 * 3600  # seconds that are left of a subject token
MOST_CLAIMS: Final = 256
LONGEST_SUBJECT: Final = 1024
LONGEST_ID: Final = 256
DELEGATION: Final = ("act", "may_act")  # RFC 8693, 4.1 and 4.4
RETRY_AFTER: Final = 10  # seconds

Configuration = tuple[ExchangeIssuer, ...]


class InvalidSubject(Exception):
    """The token cannot be exchanged. The message is for its holder, and names its own values."""


class KeysUnavailable(Exception):
    """The key of the token is unknown, and the keys of the issuer cannot be fetched now."""


class SubjectToken(msgspec.Struct, frozen=True):
    """A verified token of another issuer."""

    issuer: str
    subject: str
    claims: Payload
    expires: int
    issued_at: int
    jti: str = ""

    def __repr__(self) -> str:
        return f"SubjectToken({self.issuer}, {self.subject}, JTI={self.jti})"


class _Followed:
    """An issuer, the source of its keys, and the task that fetches them, unless it is shared."""

    def __init__(self, issuer: ExchangeIssuer, source: KeySource, *, is_shared: bool) -> None:
        self.issuer, self.source, self.is_shared = issuer, source, is_shared
        self.task: asyncio.Task[None] | None = None


class SubjectTokens:
    """The configured issuers and their keys."""

    def __init__(
        self,
        file: Path,
        read: Callable[[bytes], Configuration],
        clock: Clock,
        *,
        shared: Mapping[str, KeySource],
        fetch: Callable[[KeyLocation], Fetch] = fetching,
    ) -> None:
        """`read` parses the file. `shared`: key sources that others fetch. Raises Refusal and
        InvalidConfiguration if the file is unusable.
        """
        self._file = file
        self._read = read
        self._clock = clock
        self._shared = shared
        self._fetch = fetch
        self._followed: dict[str, _Followed] = {}
        self._keys: dict[str, KeySet] = {}
        self._verifier: Verifier[Payload] = Verifier({}, dict)
        self._tasks: asyncio.TaskGroup | None = None
        self._problem = ""
        self._data = read_bounded(file)
        self._use(read(self._data))

    @property
    def issuers(self) -> Collection[str]:
        return self._followed.keys()

    # -- following the file and the keys -----------------------------------------------------

    async def run(self) -> None:
        """Fetch keys, and read the file again when it changes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._start_tasks()
            while True:
                await asyncio.sleep(CHECK_EVERY)
                await self.reload()

    async def reload(self) -> None:
        """Read the file; an invalid one is logged and changes nothing."""
        try:
            data = await asyncio.to_thread(read_bounded, self._file)
            if data != self._data:
                configuration = await asyncio.to_thread(self._read, data)
                self._data = data
                self._use(configuration)
                self._start_tasks()
                log.info("exchange.reloaded", extra={"issuers": len(configuration)})
            self._problem = ""
        except (InvalidConfiguration, Refusal) as problem:
            if str(problem) != self._problem:
                self._problem = str(problem)
                log.error("exchange.not_reloaded: %s", problem)

    def _use(self, configuration: Configuration) -> None:
        """Add, replace and remove issuers; those that are unchanged keep their keys."""
        new = {entry.url: entry for entry in configuration}
        for url, old in list(self._followed.items()):
            if url not in new or not old.source.is_for(new[url]):
                self._remove(url)
        for url, issuer in new.items():
            if url in self._followed:
                self._followed[url].issuer = issuer
                self._keys[url] = self._usable(url, self._followed[url].source.keys)
            else:
                self._add(issuer)
        self._verifier.replace_issuers(self._keys)

    def _add(self, issuer: ExchangeIssuer) -> None:
        source = self._shared.get(issuer.url)
        is_shared = source is not None and source.is_for(issuer)
        if source is None or not is_shared:
            source = KeySource(issuer, self._fetch(issuer), self._clock)
        self._followed[issuer.url] = _Followed(issuer, source, is_shared=is_shared)
        self._keys[issuer.url] = KeySet(())
        source.follow(self._take_keys)

    def _remove(self, url: str) -> None:
        gone = self._followed.pop(url)
        gone.source.unfollow(self._take_keys)
        if gone.task is not None:
            gone.task.cancel()
        del self._keys[url]

    def _start_tasks(self) -> None:
        if self._tasks is None:
            return
        for followed in self._followed.values():
            if followed.task is None and not followed.is_shared:
                followed.task = self._tasks.create_task(followed.source.run())

    def _take_keys(self, url: str, keys: tuple[VerificationKey, ...]) -> None:
        self._keys[url] = self._usable(url, keys)
        self._verifier.replace_issuers(self._keys)

    def _usable(self, url: str, keys: tuple[VerificationKey, ...]) -> KeySet:
        """The keys with algorithms that are accepted for an exchange."""
        accepted = self._followed[url].issuer.algorithms
        return KeySet(key for key in keys if key.algorithm in accepted)

    # -- verification ------------------------------------------------------------------------

    async def verify(self, token: str) -> SubjectToken:
        """The verified token; raises InvalidSubject or KeysUnavailable."""
        try:
            verified, now = await self._open(token)
        except NotAToken as refusal:
            raise InvalidSubject(f"the subject token is not a JSON web token: {refusal}") from None
        except WrongIssuer as refusal:
            text = f"tokens of this issuer are not exchanged: {refusal}"
            raise InvalidSubject(text) from None
        except (BadSignature, UnknownKey) as refusal:
            text = f"the subject token cannot be verified: {self._why_unverified(token, refusal)}"
            raise InvalidSubject(text) from None
        except TokenRefused as refusal:
            raise InvalidSubject(f"the subject token cannot be verified: {refusal}") from None
        return self._checked(verified, now)

    def _why_unverified(self, token: str, refusal: TokenRefused) -> str:
        """Why no key of its issuer verifies a token, in words for a job."""
        algorithm = unverified_algorithm(token)
        accepted = self._followed[unverified_issuer(token)].issuer.algorithms
        if algorithm not in accepted:
            return (
                f"its signature algorithm {algorithm!r} is not accepted from this issuer, "
                f"only {', '.join(accepted)}"
            )
        if isinstance(refusal, UnknownKey):
            return (
                "its issuer publishes no key with its key id (kid); keys are fetched again "
                f"after {LEAST_INTERVAL.seconds} seconds at the earliest"
            )
        return "it was altered, or is not signed with the key that it names"

    def issuer_of(self, token: str) -> str:
        """The configured issuer in an unverified token, or ""."""
        try:
            issuer = unverified_issuer(token)
        except NotAToken:
            return ""
        return issuer if issuer in self._followed else ""

    async def _open(self, token: str) -> tuple[Verified[Payload], float]:
        """A token with a valid signature, and the time of its verification."""
        now = self._clock.now().timestamp()
        try:
            return self._verifier.open(token, now), now
        except UnknownKey:
            followed = self._followed[unverified_issuer(token)]
            if unverified_algorithm(token) not in followed.issuer.algorithms:
                raise
            await _without_seat(followed.source)
        now = self._clock.now().timestamp()
        try:
            return self._verifier.open(token, now), now
        except UnknownKey:
            if followed.source.is_current:
                raise
            raise KeysUnavailable from None

    def _checked(self, verified: Verified[Payload], now: float) -> SubjectToken:
        """Check everything but the signature."""
        claims = verified.claims
        if len(claims) > MOST_CLAIMS:
            _refuse(f"it has more than {MOST_CLAIMS} claims")
        if "cnf" in claims:
            _refuse("it is bound to a key (cnf), so it is not a bearer token")
        for name in DELEGATION:
            if name in claims:  # the exchanged token would not name the other party
                _refuse(f"it has the claim {name}: tokens that act for others are not exchanged")
        _check_audience(claims, self._followed[verified.issuer].issuer.audiences)
        expires, issued_at = _times(verified, now)
        subject = _text(claims, "sub", LONGEST_SUBJECT)
        if not subject:
            _refuse("it has no subject")
        jti = _text(claims, "jti", LONGEST_ID)
        return SubjectToken(verified.issuer, subject, claims, expires, issued_at, jti)


def configuration_reader(
    api_version: str, own_issuers: Collection[str]
) -> Callable[[bytes], Configuration]:
    return lambda data: read_configuration(data, api_version, own_issuers)


async def _without_seat(source: KeySource) -> None:
    """Wait for newer keys; the seat of the request is free for others meanwhile."""
    seat = SEAT.get()
    if seat is None:
        await source.newer()
        return
    seat.park()
    try:
        await source.newer()
    finally:
        seat.unpark()


def _check_audience(claims: Payload, expected: Collection[str]) -> None:
    named = claims.get("aud")
    if isinstance(named, str) and named in expected:
        return
    audiences = named if isinstance(named, list) else [named]
    if not any(isinstance(audience, str) and audience in expected for audience in audiences):
        shown = ", ".join(repr(audience) for audience in audiences[:4] if isinstance(audience, str))
        if not shown:
            _refuse("it has no audience")
        _refuse(f"its audience is {shown}, which is not one of this server")


def _times(verified: Verified[Payload], now: float) -> tuple[int, int]:
    """Expiry and time of issue of a token that is valid now."""
    expires, issued = verified.expires, verified.issued_at
    if expires is None:
        _refuse("it has no expiry")
    if now > expires:
        _refuse("it has expired")
    if expires - now > LONGEST_LIFETIME:
        _refuse("it expires in more than 24 hours")
    if issued is None:
        _refuse("it has no time of issue")
    if max(verified.not_before or 0, issued) > now + LEEWAY:
        _refuse("it is not valid yet")
    return expires, issued


def _text(claims: Payload, name: str, longest: int) -> str:
    value: Any = claims.get(name, "")
    if not isinstance(value, str) or len(value) > longest:
        _refuse(f"its claim {name} is not a string of at most {longest} characters")
    return str(value)


def _refuse(reason: str) -> NoReturn:
    raise InvalidSubject(f"the subject token is refused: {reason}")
