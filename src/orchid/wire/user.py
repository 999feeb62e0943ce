"""Who is calling."""

from typing import Annotated

from msgspec import field

from orchid.wire.struct import Wire, proto


class UserInfo(Wire):
    """A caller as the server knows it."""

    username: Annotated[str, proto(1)] = ""
    uid: Annotated[str, proto(2)] = ""
    groups: Annotated[tuple[str, ...], proto(3)] = ()
    extra: Annotated[dict[str, tuple[str, ...]], proto(4)] = field(default_factory=dict)


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
