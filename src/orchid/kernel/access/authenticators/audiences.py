"""Audiences of a credential, and the group of every authenticated user.

A token is valid for the audiences that it shares with the requested ones, in their order, with
duplicates. A credential without audiences (a static token, say) is valid for those of the API.
"""

from orchid.kernel.engine.interfaces import Authenticated
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo

Audiences = tuple[str, ...]


def shared(meant: Audiences, wanted: Audiences) -> Audiences:
    """The requested audiences that the credential has."""
    return wanted if meant == wanted else tuple(filter(frozenset(meant).__contains__, wanted))


def with_authenticated_group(caller: Authenticated) -> Authenticated:
    """Append the group `system:authenticated` to the user's groups."""
    user = with_group(caller.user)
    if user is caller.user:
        return caller
    return caller._replace(user=user)


def with_group(user: UserInfo) -> UserInfo:
    groups = user.groups
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups or user.username == ANONYMOUS:
        return user
    return replace(user, groups=(*groups, AUTHENTICATED))
