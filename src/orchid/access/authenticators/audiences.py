"""Whom a credential is meant for, and the group that every authenticated caller has.

A token is good for the audiences that it shares with those asked for, in the order asked, repeats
kept. A credential that knows no audiences (a static token, say) counts as meant for the API's own.
"""

from orchid.engine.interfaces import Authenticated
from orchid.wire.struct import replace
from orchid.wire.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo

Audiences = tuple[str, ...]


def shared(meant: Audiences, wanted: Audiences) -> Audiences:
    """The wanted audiences that a credential is meant for."""
    return wanted if meant == wanted else tuple(filter(frozenset(meant).__contains__, wanted))


def with_authenticated_group(found: Authenticated) -> Authenticated:
    """Append the group `system:authenticated` to the user's own groups."""
    user = with_group(found.user)
    if user is found.user:
        return found
    return found._replace(user=user)


def with_group(user: UserInfo) -> UserInfo:
    groups = user.groups
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups or user.username == ANONYMOUS:
        return user
    return replace(user, groups=(*groups, AUTHENTICATED))
