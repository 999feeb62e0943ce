"""Clients into the request chain of this process, each with an identity."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from orchid.kernel.access.authenticators.in_process import InProcessCallers
from orchid.kernel.base.version import __version__
from orchid.kernel.client.client import Client
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.request import OwnCertificate
from orchid.kernel.http.messages import Handler, Peer
from orchid.kernel.server.in_process.transport import InProcessTransport
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import AUTHENTICATED, UserInfo

LEADER, EVENTS = "leader-election", "events"  # clients that belong to no single component
HOLDER_PREFIX: Final = "system:acme:certificate:"  # user who proved only the key of a certificate


def user_agent(naming: Naming) -> str:
    """The user agent of controllers; the part before the slash is their field manager."""
    return f"{naming.controller_lease}/{__version__}"


class InProcessClients:
    """Clients into our own chain, each with an identity of its own."""

    def __init__(
        self,
        handler: Handler,
        callers: InProcessCallers,
        catalog: Catalog,
        naming: Naming,
        accounts: Mapping[str, str],
    ) -> None:
        """`accounts`: the service account, in the system namespace, of each component."""
        self._handler = handler
        self._callers = callers
        self._catalog = catalog
        self._naming = naming
        self._accounts = accounts

    def __call__(self, name: str) -> Client:
        """The client of one component."""
        peer = Peer("")
        if name == EVENTS:
            manager = self._naming.controller_manager_user
            self._callers.introduce(peer, UserInfo(username=manager, groups=(AUTHENTICATED,)))
        else:
            home = self._naming.system_namespace
            self._callers.introduce_account(peer, home, self._accounts[name])
        return self._client(peer)

    def transport(self, name: str) -> InProcessTransport:
        """The transport of a component that does not use typed objects."""
        peer = Peer("")
        account = self._accounts[name]
        self._callers.introduce_account(peer, self._naming.system_namespace, account)
        return InProcessTransport(self._handler, peer, user_agent(self._naming))

    def of_user(self, user: UserInfo) -> Client:
        """A client of any other user."""
        peer = Peer("")
        self._callers.introduce(peer, user)
        return self._client(peer)

    @contextlib.contextmanager
    def acting(self, user: UserInfo, source: str) -> Iterator[Client]:
        """A client of a user who was authenticated elsewhere, at an address, for a while."""
        with self._introduced(user, source) as client:
            yield client

    @contextlib.contextmanager
    def acting_holder(
        self, user: UserInfo | None, source: str, *, sha256: str, serial: str
    ) -> Iterator[Client]:
        """The same for the holder of a certificate; None: they proved nothing but its key."""
        holder = user or UserInfo(username=f"{HOLDER_PREFIX}{serial}")
        with self._introduced(holder, source, OwnCertificate(sha256, serial)) as client:
            yield client

    @contextlib.contextmanager
    def _introduced(
        self, user: UserInfo, source: str, certificate: OwnCertificate | None = None
    ) -> Iterator[Client]:
        peer = Peer(source)
        self._callers.introduce(peer, user, certificate)
        try:
            yield self._client(peer)
        finally:
            self._callers.dismiss(peer)

    def _client(self, peer: Peer) -> Client:
        transport = InProcessTransport(self._handler, peer, user_agent(self._naming))
        return Client(transport, self._catalog)
