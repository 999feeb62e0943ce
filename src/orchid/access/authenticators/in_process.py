"""Callers in this process: known by the Python object they present, so that there is no secret.

A controller beside the server calls the chain with a `Peer` that only the assembly could give it
(server/sockets/in_process.py). Nothing that comes over a socket can present that object, nothing
about it can be copied, logged or guessed, and a TokenReview cannot be asked about it. From here on
the caller is an ordinary service account: authorized, admitted and recorded like any other.
"""

from orchid.engine.interfaces import Authenticated, Authenticator, Presented
from orchid.wire.user import AUTHENTICATED, UserInfo


class InProcessCallers:
    """Know the callers to whom the assembly has handed a peer."""

    def __init__(self) -> None:
        # By id(). The peer itself is kept too, so that its id() is not used for another object.
        self._known: dict[int, tuple[object, Authenticated]] = {}

    def introduce(self, peer: object, user: UserInfo) -> None:
        """From now on, a request with this very peer is this user's."""
        self._known[id(peer)] = (peer, Authenticated(user, still_valid=True))

    def introduce_account(self, peer: object, namespace: str, name: str) -> None:
        """The same for a service account."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        user = UserInfo(username=f"system:serviceaccount:{namespace}:{name}", groups=groups)
        self.introduce(peer, user)

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        known = self._known.get(id(presented.peer))
        if known is None or known[0] is not presented.peer:
            return None
        return known[1]


_: type[Authenticator] = InProcessCallers
