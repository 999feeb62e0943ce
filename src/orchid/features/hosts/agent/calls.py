"""Calls of the agent to its server, with named failures.

    ApiFailure                 no usable response
    ├── ApiUnreachable         no response at all
    └── ApiRefused             a response with an error
        └── IdentityRefused    401: the server does not accept the agent's credential

`ServerCalls` is used for one round of checks and closed after it. It counts responses by status and
measures the difference between the clocks by the `Date` header.
"""

import contextlib
import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPException, HTTPMessage
from typing import Final
from urllib.parse import urlencode

from orchid.kernel.outbound.api_connection import (
    SUCCESS,
    TIMEOUT,
    ApiConnection,
    ApiReply,
    Json,
    decoded,
    failure_reason,
    find_naming,
    path,
)
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.kernel.outbound.time_limit import TimeLimit
from orchid.kernel.outbound.tls import UnusableTls
from orchid.kernel.wire.naming import Naming

LARGEST: Final = 16 << 20
LONGEST_CALL: Final = 30.0  # seconds, to the last byte; the watchdog of the unit waits for 90
LONGEST_PAUSE: Final = 3600.0  # seconds; a longer Retry-After is shortened to it
LONGEST_MESSAGE: Final = 500
CLOCK_ERROR: Final = (
    5.0  # seconds by which the time of `Clocks` may go back: `Date` has no fractions
)
NOT_MODIFIED = 304
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409

Now = Callable[[], datetime.datetime]
Alive = Callable[[], None]


class ApiFailure(Exception):
    """No usable response; `retry_after` in seconds, if the server requested a pause."""

    retry_after = 0.0


class ApiUnreachable(ApiFailure):
    """The server did not respond."""


class ApiRefused(ApiFailure):
    """The server responded with an error."""

    def __init__(self, status: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class IdentityRefused(ApiRefused):
    """The server does not accept the credential."""


class Clocks:
    """The time by the server's clock, as far as it is known."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self.skew = 0.0  # seconds that the server's clock is ahead of ours

    def local(self) -> datetime.datetime:
        return self._now()

    def now(self) -> datetime.datetime:
        """The time by which certificates and tokens are judged."""
        return self._now() + datetime.timedelta(seconds=self.skew)

    def measure(self, headers: HTTPMessage) -> None:
        """Compare the clocks; the header has whole seconds, so a smaller difference is none."""
        try:
            theirs = parsedate_to_datetime(headers.get("Date", ""))
        except (TypeError, ValueError):
            return
        if theirs.tzinfo is None:
            return
        difference = (theirs - self._now()).total_seconds()
        self.skew = difference if abs(difference) > 2 else 0.0  # noqa: PLR2004 -- seconds, see above


class ServerCalls:
    """Requests of one round, over one connection."""

    def __init__(
        self,
        access: ServerAccess,
        clocks: Clocks,
        counts: Counter[str],
        naming: Naming | None = None,
        alive: Alive = lambda: None,
    ) -> None:
        """`names`: those of the server, if an earlier round has detected them. `alive` is called
        before each request.
        """
        self.access = access
        self.alive = alive
        self._detected = naming
        self.clocks = clocks
        self.counts = counts
        try:
            limit = TimeLimit(TIMEOUT, LONGEST_CALL)
            self._api = ApiConnection(access, largest=LARGEST, limit=limit)
        except (UnusableKubeconfig, UnusableTls) as problem:
            raise ApiFailure(str(problem)) from None

    def close(self) -> None:
        self._api.close()

    def get(self, url: str, query: Mapping[str, str] | None = None) -> Json:
        return self._json("GET", f"{url}?{urlencode(query)}" if query else url)

    def find(self, url: str) -> Json | None:
        """The object at a path, or None."""
        try:
            return self.get(url)
        except ApiRefused as refused:
            if refused.status != NOT_FOUND:
                raise
            return None

    def post(self, url: str, body: Json) -> Json:
        return self._json("POST", url, body)

    def create(self, url: str, body: Json) -> Json | None:
        """Create an object and return it; None if it exists already."""
        try:
            return self.post(url, body)
        except ApiRefused as refused:
            if refused.status != CONFLICT:
                raise
            return None

    def page(self, url: str, tag: str = "") -> ApiReply:
        """A page that is no object, unless it still has this entity tag (304)."""
        reply = self._exchange("GET", url, None, {"If-None-Match": tag} if tag else None)
        is_current = bool(tag) and reply.status == NOT_MODIFIED
        if reply.status not in SUCCESS and not is_current:
            raise _refusal(reply)
        return reply

    @cached_property
    def naming(self) -> Naming:
        """The set of names that the server uses, detected by its API groups."""
        if self._detected is not None:
            return self._detected
        groups = [str(group.get("name")) for group in self.get("/apis").get("groups") or ()]
        naming = find_naming(groups)
        if naming is None:
            raise ApiFailure(f"{self.access.server} serves no API groups that this program knows")
        return naming

    def group(self, word: str, version: str, *parts: str) -> str:
        """A path in one of the product's API groups."""
        return path("apis", self.naming.group(word), version, *parts)

    def _json(self, method: str, url: str, body: Json | None = None) -> Json:
        reply = self._exchange(method, url, body)
        if reply.status not in SUCCESS:
            raise _refusal(reply)
        value = decoded(reply.data)
        if not isinstance(value, dict):
            raise ApiFailure(f"{self.access.server} did not answer with JSON")
        return value

    def _exchange(
        self, method: str, url: str, body: Json | None, headers: Mapping[str, str] | None = None
    ) -> ApiReply:
        self.alive()
        try:
            reply = self._api.send(method, url, body, headers)
        except (OSError, HTTPException) as error:
            self.counts["none"] += 1
            reason = failure_reason(error)
            raise ApiUnreachable(f"cannot reach {self.access.server}: {reason}") from None
        self.counts[str(reply.status)] += 1
        self.clocks.measure(reply.headers)
        return reply


@contextlib.contextmanager
def calling(
    access: ServerAccess,
    clocks: Clocks,
    counts: Counter[str],
    naming: Naming | None = None,
    alive: Alive = lambda: None,
) -> Iterator[ServerCalls]:
    """Calls with one credential, until the block ends."""
    calls = ServerCalls(access, clocks, counts, naming, alive)
    try:
        yield calls
    finally:
        calls.close()


def _refusal(reply: ApiReply) -> ApiRefused:
    value = decoded(reply.data)
    said = value.get("message") if isinstance(value, dict) else None
    text = str(said or f"the server answered with status {reply.status}")[:LONGEST_MESSAGE]
    kind = IdentityRefused if reply.status == UNAUTHORIZED else ApiRefused
    return kind(reply.status, text, _pause(reply.headers))


def _pause(headers: HTTPMessage) -> float:
    text = headers.get("Retry-After", "")
    return min(float(text), LONGEST_PAUSE) if text.isdecimal() and text.isascii() else 0.0
