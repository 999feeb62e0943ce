"""One running server as its features see it: `Context`, and the parts they offer each other.

A feature offers a part under its type, with the function that builds it (`ServerPart`, in
`provides` of its FEATURE), and asks for a part by its type: `context.port(Revocations)`. A part is
built when it is first asked for, and only once, so that the order of features need not be that of
construction. Where a feature needs a later one, which it must not import, it declares a small type
with the functions that it needs, and the later feature provides that.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from orchid.kernel.access.authenticators.in_process import InProcessCallers
from orchid.kernel.access.authenticators.union import UnionTokenAuthenticator
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.interfaces import Authorizer, Randomness
from orchid.kernel.engine.internal_writes import InternalObjects
from orchid.kernel.engine.kind import Kind
from orchid.kernel.http.messages import HttpRequest, Response, Stream
from orchid.kernel.runtime.declaration import ComponentIdentity
from orchid.kernel.server.chain import Chain
from orchid.kernel.server.in_process.clients import InProcessClients
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.store.interface import Store
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import MASTERS, UserInfo

T = TypeVar("T")

SERVER: Final = UserInfo(username="system:apiserver", groups=(MASTERS,))  # of its own writes


class MissingPart(LookupError):
    """No feature provides a part, or two parts need each other to be built."""


class ServerPart(NamedTuple, Generic[T]):
    """A part that a feature offers under its type; built from a context."""

    type: type[T]
    build: "Callable[[Context], T | None]"  # None: the settings do not ask for it


class AuthorizerPort(NamedTuple):
    """The authorizer of requests, as one of the features provides it."""

    authorizer: Authorizer


class AuthorizerOffer(NamedTuple):
    """An authorizer of a feature: one for a mode of --authorization-mode, or for all requests."""

    mode: str  # "" if it is asked after the roles, in every mode that has them
    build: Callable[[], Any]  # an Authorizer that can also list its rules


class AuthorizerOffers(NamedTuple):
    """The authorizers of all features."""

    all: tuple[AuthorizerOffer, ...]


class Components(NamedTuple):
    """All components that use the API with an account, of all features."""

    all: tuple[ComponentIdentity, ...]


class Context:
    """What every feature may use, and what features offer each other."""

    def __init__(
        self,
        settings: Settings,
        files: DataDirectory,
        store: Store,
        feed: Feed,
        *,
        clock: Clock,
        randomness: Randomness,
        offload: Offload,
        kinds: Sequence[Kind[Any]],
    ) -> None:
        """`kinds`: those that are stored."""
        self.settings, self.files = settings, files
        self.naming: Naming = settings.naming
        self.store, self.feed = store, feed
        self.clock, self.random, self.offload = clock, randomness, offload
        self.kinds = kinds
        self.callers = InProcessCallers()
        self.closing: list[Callable[[], None]] = []  # to be called in the end
        self._builders: dict[type, Callable[[Context], Any]] = {}
        self._built: dict[type, Any] = {}
        self._building: list[type] = []

    # -- parts -------------------------------------------------------------------------------

    def provide(self, type_: type[T], build: "Callable[[Context], T | None]") -> None:
        """Offer a part; a later offer of the same type replaces an earlier one."""
        self._builders[type_] = build

    def port(self, type_: type[T]) -> T:
        """The part of a type; raises MissingPart if there is none."""
        part = self.optional(type_)
        if part is None:
            raise MissingPart(f"no feature of this server provides {type_.__name__}")
        return part

    def optional(self, type_: type[T]) -> T | None:
        """The part of a type; None if no feature provides it, or the settings do not ask for it."""
        if type_ not in self._built:
            self._built[type_] = self._build(type_)
        return cast("T | None", self._built[type_])

    def _build(self, type_: type) -> Any:
        build = self._builders.get(type_)
        if build is None:
            return None
        if type_ in self._building:
            circle = " needs ".join(each.__name__ for each in (*self._building, type_))
            raise MissingPart(f"parts need each other: {circle}")
        self._building.append(type_)
        try:
            return build(self)
        finally:
            self._building.pop()

    # -- parts that every server has -----------------------------------------------------------

    @property
    def authorizer(self) -> Authorizer:
        return self.port(AuthorizerPort).authorizer

    @property
    def tokens(self) -> UnionTokenAuthenticator:
        """The authenticator of bearer tokens."""
        return self.port(UnionTokenAuthenticator)

    @property
    def catalog(self) -> Catalog:
        """Every kind that is served."""
        return self.port(Catalog)

    @property
    def local(self) -> InternalObjects:
        """The server's own reads and writes, without a request."""
        return self.port(InternalObjects)

    @property
    def clients(self) -> InProcessClients:
        """Clients into the request chain, each with an identity."""
        return self.port(InProcessClients)

    def handle(self, http: HttpRequest) -> Coroutine[Any, Any, Response | Stream]:
        """Handle a request of this process; the chain is needed no sooner."""
        return self.port(Chain)(http)
