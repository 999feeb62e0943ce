"""Callers in this process: identified by the Python object they present, without a secret.

A controller in the server process calls the chain with a `Peer` that only the assembly could create
(kernel/server/in_process/transport.py). Nothing that arrives on a socket can present that object;
it cannot be copied, logged or guessed, and no TokenReview accepts it. Otherwise the caller is an
ordinary service account: authorized, admitted and audited like any other.
"""

from orchid.kernel.engine.interfaces import Authenticated, Authenticator, Presented
from orchid.kernel.engine.request import OwnCertificate
from orchid.kernel.wire.user import AUTHENTICATED, UserInfo


class InProcessCallers:
    """The callers that got a peer from the assembly."""

    def __init__(self) -> None:
        # By id(). The peer is stored too, so that its id() is not reused.
        self._users: dict[int, tuple[object, Authenticated]] = {}

    def introduce(
        self, peer: object, user: UserInfo, certificate: OwnCertificate | None = None
    ) -> None:
        """Authenticate requests with this peer as this user, who holds a certificate."""
        caller = Authenticated(user, still_valid=True, certificate=certificate)
        self._users[id(peer)] = (peer, caller)

    def dismiss(self, peer: object) -> None:
        """Refuse further requests with this peer."""
        self._users.pop(id(peer), None)

    def introduce_account(self, peer: object, namespace: str, name: str) -> None:
        """The same for a service account."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        user = UserInfo(username=f"system:serviceaccount:{namespace}:{name}", groups=groups)
        self.introduce(peer, user)

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        entry = self._users.get(id(presented.peer))
        if entry is None or entry[0] is not presented.peer:
            return None
        return entry[1]


_: type[Authenticator] = InProcessCallers
