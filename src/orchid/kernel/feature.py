"""Feature: what a folder of features/ adds to the server, for the loops of assembly/.

Each feature ends in one value, `FEATURE` in its feature.py, and is listed in assembly/features.py.
What needs others of a running server (admission policies, authenticators, pages) is built by a
function of the `Context` (kernel/context.py).
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from orchid.kernel.base.metrics import Metric
from orchid.kernel.context import AuthorizerOffer, Context, ServerPart
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authenticator, TokenAuthenticator
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.http.messages import Handler
from orchid.kernel.runtime.declaration import ComponentIdentity, ControllerDeclaration
from orchid.kernel.server.pages.site import Page
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.values import Address
from orchid.kernel.wire.default_roles import DefaultRole
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming

# A file of kinds/ declares one kind, or several.
Declare = Callable[[Naming], "Kind[Any] | tuple[Kind[Any], ...]"]


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a feature while the server runs, in the order in which it is called."""

    begin: Callable[[], Awaitable[None]] | None = None  # before the server listens
    run: Callable[[], Coroutine[Any, Any, None]] | None = None  # until cancelled
    # The same where requests are served, cancelled before `leave`.
    report: Callable[[], Coroutine[Any, Any, None]] | None = None
    stopping: Callable[[], None] | None = None  # the server begins to stop
    leave: Callable[[], Awaitable[None]] | None = None  # after the last request that was served
    close: Callable[[], Awaitable[None]] | None = None  # in the end, in every process


class PlainHttp(NamedTuple):
    """An address at which a feature serves HTTP without TLS."""

    setting: str
    address: Address
    handler: Handler
    event: str  # in the log, when it listens


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of its folder
    kinds: tuple[Declare, ...] = ()  # those that are stored
    served_kinds: Callable[[Context], Iterable[Kind[Any]]] | None = None  # those that are not
    endpoints: Callable[[Context], Mapping[type[Object], Endpoint]] | None = None  # of stored kinds
    permission_kinds: tuple[type[Object], ...] = ()  # their changes may remove permissions
    revoking_kinds: tuple[type[Object], ...] = ()  # creating one revokes a credential
    controllers: tuple[ControllerDeclaration, ...] = ()
    roles: Callable[[Naming], tuple[DefaultRole, ...]] = lambda names: ()  # of a new server
    # What its controllers need beside the API, each by its type; without a server where the
    # controllers run alone.
    controller_parts: Callable[[Settings, Context | None], Iterable[object]] | None = None
    identities: tuple[ComponentIdentity, ...] = ()  # of what else uses the API
    provides: tuple[ServerPart[Any], ...] = ()  # parts for this feature and others
    # Admission; assembly/order.py has the order of these and of the authenticators.
    policies: Callable[[Context], Iterable[AdmissionPolicy]] | None = None
    token_authenticators: Callable[[Context], Iterable[TokenAuthenticator]] | None = None
    authenticators: Callable[[Context], Iterable[Authenticator]] | None = None
    authorizers: Callable[[Context], Iterable[AuthorizerOffer]] | None = None
    # A page for each path, or for all paths below a prefix that ends in a slash.
    pages: Callable[[Context], Mapping[str, Page]] | None = None
    counted_pages: tuple[str, ...] = ()  # those with a metric series of their own
    pages_by_address: tuple[str, ...] = ()  # their load is shared by address, not by user
    anonymous_paths: Callable[[Context], tuple[str, ...]] | None = None
    metrics: Callable[[Context], Iterable[Metric]] | None = None
    # Once before the first request, in one process; assembly/order.py has the order.
    prepare: Callable[[Context], Awaitable[None]] | None = None
    # The flag is True in the one process that runs controllers and writes files.
    background: Callable[[Context, bool], Iterable[Background]] | None = None
    plain_http: Callable[[Context], PlainHttp | None] | None = None  # None: not configured
    data_files: tuple[str, ...] = ()  # in the data directory, read at a start
    checks: str = ""  # the module with `CHECKS` of orchid doctor, which a server does not load
    documentation: str  # a page below docs/

    def stored_kinds(self, naming: Naming) -> Iterator[Kind[Any]]:
        for declare in self.kinds:
            declared = declare(naming)
            yield from declared if isinstance(declared, tuple) else (declared,)
