"""The authenticated user."""

from typing import Annotated

from msgspec import field

from orchid.kernel.wire.struct import Wire, describe, proto


class UserInfo(Wire):
    """The user of a request."""

    published_as = "authentication.v1.UserInfo"

    username: Annotated[str, proto(1), describe("The unique name of the user.")] = ""
    uid: Annotated[str, proto(2), describe("The unique id, which differs if a name is reused.")] = (
        ""
    )
    groups: Annotated[
        tuple[str, ...], proto(3), describe("The groups that the user belongs to.")
    ] = ()
    extra: Annotated[
        dict[str, tuple[str, ...]], proto(4), describe("Extra attributes from the authenticator.")
    ] = field(default_factory=dict)


MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
NODES = "system:nodes"
NODE_PREFIX = "system:node:"
HOSTS = "system:bootstrappers:hosts"  # of tokens with which hosts join
ACCOUNTS = "system:serviceaccounts"
ACCOUNT_PREFIX = "system:serviceaccount:"


def groups_of_accounts(namespace: str) -> tuple[str, str]:
    """The groups of every account in a namespace."""
    return ACCOUNTS, f"{ACCOUNTS}:{namespace}"


def account_of(username: str) -> tuple[str, str] | None:
    """Namespace and name of the account that a user is; None for other users."""
    if not username.startswith(ACCOUNT_PREFIX):
        return None
    namespace, colon, name = username[len(ACCOUNT_PREFIX) :].partition(":")
    return (namespace, name) if colon and namespace and name else None


def node_name(user: UserInfo) -> str | None:
    """The name of a node's user; empty for a node without a name, None for other users."""
    if user.username.startswith(NODE_PREFIX) and NODES in user.groups:
        return user.username[len(NODE_PREFIX) :]
    return None
