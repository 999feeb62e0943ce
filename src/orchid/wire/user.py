"""Who is calling."""

from typing import Annotated

from msgspec import field

from orchid.wire.struct import Wire, describe, proto


class UserInfo(Wire):
    """A caller as the server knows it."""

    published_as = "authentication.v1.UserInfo"

    username: Annotated[
        str, proto(1), describe("The name that tells this user from all others.")
    ] = ""
    uid: Annotated[
        str, proto(2), describe("Tells apart users who had the same name at different times.")
    ] = ""
    groups: Annotated[
        tuple[str, ...], proto(3), describe("The groups that the user belongs to.")
    ] = ()
    extra: Annotated[
        dict[str, tuple[str, ...]], proto(4), describe("What else the authenticator has to say.")
    ] = field(default_factory=dict)


MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
NODES = "system:nodes"
NODE_PREFIX = "system:node:"


def node_name(user: UserInfo) -> str | None:
    """The node a caller is; empty if it is one without saying which, None if it is none."""
    if user.username.startswith(NODE_PREFIX) and NODES in user.groups:
        return user.username[len(NODE_PREFIX) :]
    return None
