"""Impersonation: act as another user, with only the permissions of that user.

`Impersonation.apply` reads the Impersonate- headers and tries the modes (modes.py) in order until
one succeeds. It returns the impersonated user, or None without impersonation. If no mode succeeds,
the first refusal is returned, but only of a mode whose permission for such requests the caller has;
other callers get the refusal of the legacy mode.

The mode that last succeeded for a caller is cached and tried first: most callers use only one.
Nothing else is cached between requests.

No code after this may read the headers.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from orchid.kernel.access.impersonation.modes import LegacyMode, NotOnThisRequest, all_modes
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.metrics import Counter, Durations, doubling
from orchid.kernel.engine.interfaces import Authorizer, Decision, Presented
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import BadRequest, Forbidden
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import header_text
from orchid.kernel.wire.user import UserInfo

USER: Final = "impersonate-user"
UID: Final = "impersonate-uid"
GROUP: Final = "impersonate-group"
EXTRA_PREFIX: Final = "impersonate-extra-"
MOST_CACHED: Final = 10_000


class Impersonated(NamedTuple):
    """The impersonated user of a request."""

    user: UserInfo
    constraint: str = ""  # the verb that allowed it, in a constrained mode


class Impersonation:
    def __init__(self, naming: Naming, authorizer: Authorizer, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self.metrics = ImpersonationMetrics()
        self._modes = all_modes(naming, CountedAuthorizer(authorizer, self.metrics, monotonic))
        self._last_modes: OrderedDict[str, LegacyMode] = OrderedDict()

    async def apply(
        self, caller: UserInfo, presented: Presented, target: Target
    ) -> Impersonated | None:
        """The impersonated user, or None; raises BadRequest or Forbidden."""
        requested = read_headers(presented)
        if requested is None:
            return None
        started = self._monotonic()
        try:
            mode, user = await self._first_that_allows(caller, requested, target)
        except Forbidden:
            self.metrics.attempt("", "denied", self._monotonic() - started)
            raise
        self.metrics.attempt(mode.name, "allowed", self._monotonic() - started)
        return Impersonated(user, mode.constraint)

    async def _first_that_allows(
        self, caller: UserInfo, requested: UserInfo, target: Target
    ) -> tuple[LegacyMode, UserInfo]:
        refusal: Forbidden | None = None
        for mode in self._in_order(caller):
            try:
                user = await mode.become(caller, requested, target)
            except NotOnThisRequest:
                continue
            except Forbidden as raised:
                refusal = refusal or raised
                continue
            if user is not None:
                self._store_mode(caller, mode)
                return mode, user
        assert refusal is not None  # the last mode applies to everybody
        raise refusal

    def _in_order(self, caller: UserInfo) -> tuple[LegacyMode, ...]:
        last = self._last_modes.get(caller.username)
        if last is None:
            return self._modes
        return last, *(mode for mode in self._modes if mode is not last)

    def _store_mode(self, caller: UserInfo, mode: LegacyMode) -> None:
        self._last_modes[caller.username] = mode
        self._last_modes.move_to_end(caller.username)
        if len(self._last_modes) > MOST_CACHED:
            self._last_modes.popitem(last=False)


class ImpersonationMetrics:
    """Attempts by mode, and the authorization checks they needed."""

    def __init__(self) -> None:
        bounds, labels = doubling(0.001, 15), ("mode", "decision")
        name = "apiserver_impersonation_"
        self._attempts = Counter(
            f"{name}attempts_total", "Attempts to impersonate, by mode and outcome.", *labels
        )
        self._attempt_seconds = Durations(
            f"{name}attempts_duration_seconds",
            "Duration of attempts to impersonate.",
            bounds,
            *labels,
        )
        self._questions = Counter(
            f"{name}authorization_attempts_total",
            "Authorization checks for impersonation.",
            *labels,
        )
        self._question_seconds = Durations(
            f"{name}authorization_attempts_duration_seconds",
            "Duration of these checks.",
            bounds,
            *labels,
        )
        self.all = (self._attempts, self._attempt_seconds, self._questions, self._question_seconds)

    def attempt(self, mode: str, decision: str, seconds: float) -> None:
        self._attempts.count(mode, decision)
        self._attempt_seconds.observe(seconds, mode, decision)

    def question(self, mode: str, decision: str, seconds: float) -> None:
        self._questions.count(mode, decision)
        self._question_seconds.observe(seconds, mode, decision)


class CountedAuthorizer:
    """The authorizer, with counters for the modes."""

    def __init__(
        self, authorizer: Authorizer, metrics: ImpersonationMetrics, monotonic: Monotonic
    ) -> None:
        self._authorizer, self._metrics, self._monotonic = authorizer, metrics, monotonic

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        started = self._monotonic()
        decision = await self._authorizer.authorize(user, target)
        result = "allowed" if decision.allowed else "denied"
        self._metrics.question(mode_of(target.verb), result, self._monotonic() - started)
        return decision


def mode_of(verb: str) -> str:
    """The mode of a check, from its verb: `impersonate:<mode>`, `impersonate-on:<mode>:...`."""
    return (verb.split(":", 2)[1:2] or ["legacy"])[0]


def is_asked_for(headers: Mapping[str, str]) -> bool:
    """Whether there is an Impersonate- header. For most requests this is the only cost."""
    return "\nimpersonate-" in "\n".join(("", *headers))  # a header name has no line break


def read_headers(presented: Presented) -> UserInfo | None:
    """The user in the headers; None if there is none."""
    headers = presented.headers
    names = [name for name in headers if name.startswith("impersonate-")]
    if not names:
        return None
    requested = UserInfo(
        username=header_text(headers.get(USER, "")),
        uid=header_text(headers.get(UID, "")),
        groups=tuple(map(header_text, presented.all(GROUP))),
        extra=read_extra(presented, names),
    )
    if requested.username:
        return requested
    if requested.uid or requested.groups or requested.extra:
        raise BadRequest(
            "a uid, groups or extra can be impersonated only together with a user: "
            "the Impersonate-User header is missing or empty"
        )
    return None


def read_extra(presented: Presented, names: list[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for name in sorted(names):
        if name.startswith(EXTRA_PREFIX):
            key = unescaped(name[len(EXTRA_PREFIX) :].lower())
            extra[key] = extra.get(key, ()) + tuple(map(header_text, presented.all(name)))
    return extra


def unescaped(key: str) -> str:
    """Decode percent escapes; a key with an invalid one is taken literally."""
    if _BROKEN_ESCAPE.search(key):
        return key
    try:
        return unquote_to_bytes(key).decode()
    except UnicodeDecodeError:
        return key


_BROKEN_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
