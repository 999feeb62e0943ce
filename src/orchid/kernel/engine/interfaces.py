"""Interfaces of the engine and the server. Implementations are elsewhere and passed in.

Authenticator        the user of a request           access/authenticators/
TokenAuthenticator   the user of a token             access/authenticators/
Authorizer           permission of a request         access/authorizers/
AdmissionPolicy      rules beyond one object         admission/
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from orchid.kernel.engine.request import OwnCertificate, Request, Target
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.user import UserInfo

if TYPE_CHECKING:
    from orchid.kernel.engine.kind import Kind


class PresentedPeer(Protocol):
    """The peer of the connection, and its certificate, if any."""

    address: str
    certificate: bytes | None
    chain: tuple[bytes, ...]
    verified_by_tls: bool


class CallerMemo(Protocol):
    """Cache of the caller, shared by requests with the same headers on one connection."""

    caller: "Authenticated | None"


class Presented(Protocol):
    """The credentials of a request. The listener's HttpRequest is one."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer: Any  # a PresentedPeer

    @property
    def memo(self) -> CallerMemo: ...

    def all(self, name: str) -> list[str]: ...


class Authenticated(NamedTuple):
    """An authenticated user, and the audiences of the credential."""

    user: UserInfo
    audiences: tuple[str, ...] | None = None  # None: the credential has no audiences
    warnings: tuple[str, ...] = ()  # for the caller, as Warning headers
    notes: tuple[tuple[str, str], ...] = ()  # annotations for the audit record
    # Whether this result may be cached per header set: False, True, or a check that runs in every
    # request. Results for client certificates are never cached.
    still_valid: Callable[[], Awaitable[bool]] | bool = False
    certificate: OwnCertificate | None = None
    key_id: str = ""  # of the token key of this server that signed the credential


class Rejected(Exception):
    """The presented credential is invalid. The message is only for TokenReview and the log.

    Each of several authenticators may have a reason; several are shown in brackets.
    """

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(reason) for reason in self.args))

    def __str__(self) -> str:
        reasons = self.reasons
        return reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]"


class Authenticator(Protocol):
    async def authenticate(self, presented: Presented) -> Authenticated | None:
        """Return the user, None if there is no such credential, or raise Rejected."""


class TokenAuthenticator(Protocol):
    async def authenticate_token(
        self, token: str, audiences: tuple[str, ...]
    ) -> Authenticated | None:
        """Return the user of a token, None if it is of another type, or raise Rejected."""


class Verdict(Enum):
    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


class Decision:
    """The decision of an authorizer. Immutable, since many requests share one."""

    __slots__ = ("allowed", "error", "reason", "verdict")

    def __init__(self, verdict: Verdict, reason: str = "", error: str = "") -> None:
        self.verdict = verdict
        self.reason = reason
        self.error = error
        self.allowed = verdict is Verdict.ALLOW

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision):
            return NotImplemented
        mine, theirs = (self.verdict, self.reason), (other.verdict, other.reason)
        return mine == theirs and self.error == other.error

    def __hash__(self) -> int:
        return hash((self.verdict, self.reason, self.error))

    def __repr__(self) -> str:
        return f"Decision({self.verdict}, {self.reason!r}, {self.error!r})"


class Authorizer(Protocol):
    async def authorize(self, user: UserInfo, target: Target) -> Decision: ...


class AdmissionPolicy:
    """A rule that needs another object or the user's permissions.

    Every hook may raise ApiErrors. They are called for objects of the kinds in `admits`, `reviews`,
    `accompanies` and `accompanies_new`; EVERY_KIND means all.
    """

    admits: tuple[type[Object], ...] = ()
    reviews: tuple[type[Object], ...] = ()
    accompanies: tuple[type[Object], ...] = ()
    accompanies_new: tuple[type[Object], ...] = ()  # as `accompanies`, but for creates

    def concerns(self, kind: "Kind[Any]") -> bool:
        """Whether the policy applies to a listed kind at all; called once for each kind."""
        return True

    async def admit(self, request: Request, kind: "Kind[Any]", new: Any, old: Any) -> Any:
        """Change or refuse an object before it is prepared and validated."""
        return new

    async def review(self, request: Request, kind: "Kind[Any]", new: Any, old: Any) -> None:
        """Refuse a valid change (`new` is None for a delete). May change nothing."""

    async def companions(
        self, request: Request, kind: "Kind[Any]", new: Any, old: Any
    ) -> tuple[Object, ...]:
        """Return new objects, complete with uid, to be stored in the same commit.

        `old` is None if the commit creates `new`.
        """
        return ()


EVERY_KIND = (Object,)


class Randomness(Protocol):
    """The source of names and uids."""

    def uid(self) -> str:
        """A fresh uid, in the text form of a version 4 UUID."""

    def suffix(self) -> str:
        """Five characters that end a generated name."""
