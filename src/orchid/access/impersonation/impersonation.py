"""Impersonation: act as somebody else, with their rights and none of one's own.

`Impersonation.apply` reads the Impersonate- headers and tries the modes (modes.py)
one after the other until one lets the caller through. It gives the user to go on with, or None if
nobody is impersonated. If no mode lets them through, the first refusal is the answer, but only of a
mode whose right for such requests the caller holds: others are told of the plain right.

Which mode last served a caller is remembered, and tried first: most callers use one alone. Nothing
else is remembered from one request to the next.

The headers must not be looked at by anybody after this.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from orchid.access.impersonation.modes import LegacyMode, NotOnThisRequest, all_modes
from orchid.clock import Monotonic
from orchid.engine.interfaces import Authorizer, Decision, Presented
from orchid.engine.request import Target
from orchid.metrics import Counter, Durations, doubling
from orchid.wire.errors import BadRequest, Forbidden
from orchid.wire.naming import Naming
from orchid.wire.text import header_text
from orchid.wire.user import UserInfo

USER: Final = "impersonate-user"
UID: Final = "impersonate-uid"
GROUP: Final = "impersonate-group"
EXTRA_PREFIX: Final = "impersonate-extra-"
MOST_REMEMBERED: Final = 10_000


class Impersonated(NamedTuple):
    """Whom a request is to be made as."""

    user: UserInfo
    constraint: str = ""  # the verb that allowed it, in a constrained mode


class Impersonation:
    def __init__(self, names: Naming, authorizer: Authorizer, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self.metrics = ImpersonationMetrics()
        self._modes = all_modes(names, CountedAuthorizer(authorizer, self.metrics, monotonic))
        self._last_modes: OrderedDict[str, LegacyMode] = OrderedDict()

    async def apply(
        self, caller: UserInfo, presented: Presented, target: Target
    ) -> Impersonated | None:
        """Whom to act as, None for oneself; raises BadRequest or Forbidden."""
        wanted = read_headers(presented)
        if wanted is None:
            return None
        started = self._monotonic()
        try:
            mode, user = await self._first_that_allows(caller, wanted, target)
        except Forbidden:
            self.metrics.attempt("", "denied", self._monotonic() - started)
            raise
        self.metrics.attempt(mode.name, "allowed", self._monotonic() - started)
        return Impersonated(user, mode.constraint)

    async def _first_that_allows(
        self, caller: UserInfo, wanted: UserInfo, target: Target
    ) -> tuple[LegacyMode, UserInfo]:
        refusal: Forbidden | None = None
        for mode in self._in_order(caller):
            try:
                user = await mode.become(caller, wanted, target)
            except NotOnThisRequest:
                continue
            except Forbidden as raised:
                refusal = refusal or raised
                continue
            if user is not None:
                self._remember(caller, mode)
                return mode, user
        assert refusal is not None  # the last mode is for everybody
        raise refusal

    def _in_order(self, caller: UserInfo) -> tuple[LegacyMode, ...]:
        last = self._last_modes.get(caller.username)
        if last is None:
            return self._modes
        return last, *(mode for mode in self._modes if mode is not last)

    def _remember(self, caller: UserInfo, mode: LegacyMode) -> None:
        self._last_modes[caller.username] = mode
        self._last_modes.move_to_end(caller.username)
        if len(self._last_modes) > MOST_REMEMBERED:
            self._last_modes.popitem(last=False)


class ImpersonationMetrics:
    """How often impersonation was tried in which mode, and the questions that this took."""

    def __init__(self) -> None:
        bounds, labels = doubling(0.001, 15), ("mode", "decision")
        name = "apiserver_impersonation_"
        self._attempts = Counter(
            f"{name}attempts_total", "Attempts to impersonate, by mode and outcome.", *labels
        )
        self._attempt_seconds = Durations(
            f"{name}attempts_duration_seconds", "How long they took.", bounds, *labels
        )
        self._questions = Counter(
            f"{name}authorization_attempts_total",
            "Questions asked of the authorizer about impersonation.",
            *labels,
        )
        self._question_seconds = Durations(
            f"{name}authorization_attempts_duration_seconds", "How long they took.", bounds, *labels
        )
        self.all = (self._attempts, self._attempt_seconds, self._questions, self._question_seconds)

    def attempt(self, mode: str, decision: str, seconds: float) -> None:
        self._attempts.count(mode, decision)
        self._attempt_seconds.observe(seconds, mode, decision)

    def question(self, mode: str, decision: str, seconds: float) -> None:
        self._questions.count(mode, decision)
        self._question_seconds.observe(seconds, mode, decision)


class CountedAuthorizer:
    """The authorizer as the modes ask it."""

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
    """The mode in which a question is asked: `impersonate:<mode>`, `impersonate-on:<mode>:...`."""
    return (verb.split(":", 2)[1:2] or ["legacy"])[0]


def is_asked_for(headers: Mapping[str, str]) -> bool:
    """Whether any header speaks of it. Almost none does, so this is all that most requests cost."""
    return "\nimpersonate-" in "\n".join(("", *headers))  # a name holds no line break


def read_headers(presented: Presented) -> UserInfo | None:
    """What the headers ask for; None if they ask for nobody."""
    headers = presented.headers
    names = [name for name in headers if name.startswith("impersonate-")]
    if not names:
        return None
    wanted = UserInfo(
        username=header_text(headers.get(USER, "")),
        uid=header_text(headers.get(UID, "")),
        groups=tuple(map(header_text, presented.all(GROUP))),
        extra=read_extra(presented, names),
    )
    if wanted.username:
        return wanted
    if wanted.uid or wanted.groups or wanted.extra:
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
    """Decode percent escapes; a key that has a broken one is taken as it stands."""
    if _BROKEN_ESCAPE.search(key):
        return key
    try:
        return unquote_to_bytes(key).decode()
    except UnicodeDecodeError:
        return key


_BROKEN_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
