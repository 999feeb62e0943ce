"""Impersonation: act as somebody else, with their rights and none of one's own.

`Impersonation.apply` reads the Impersonate- headers, asks the authorizer for each attribute that is
wanted (verb `impersonate` on users, serviceaccounts, uids, groups, userextras, in that order) and
gives the user to go on with, or None if nobody is impersonated. The first right that is missing is
the answer. Nothing is remembered from one request to the next.

The headers must not be looked at by anybody after this.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from orchid.access.denial import forbidden
from orchid.engine.interfaces import Authorizer, Presented
from orchid.engine.request import Target
from orchid.wire.errors import BadRequest
from orchid.wire.naming import Naming
from orchid.wire.rules.names import label_errors, subdomain_errors
from orchid.wire.text import header_text
from orchid.wire.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo

USER: Final = "impersonate-user"
UID: Final = "impersonate-uid"
GROUP: Final = "impersonate-group"
EXTRA_PREFIX: Final = "impersonate-extra-"
ACCOUNT_PREFIX: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whom the headers ask for."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Impersonation:
    def __init__(self, names: Naming, authorizer: Authorizer) -> None:
        self._group = names.authentication
        self._authorizer = authorizer

    async def apply(self, user: UserInfo, presented: Presented) -> UserInfo | None:
        """The user to act as, None for oneself; raises BadRequest or Forbidden."""
        wanted = read_headers(presented)
        if wanted is None:
            return None
        for target in self._questions(wanted):
            decision = await self._authorizer.authorize(user, target)
            if not decision.allowed:
                raise forbidden(user, target, decision.reason)
        return resulting_user(wanted)

    def _questions(self, wanted: Wanted) -> Iterator[Target]:
        """Every right that is needed, in the order in which they are asked for."""
        account = account_of(wanted.username)
        if account is not None:
            namespace, name = account
            yield question("", "serviceaccounts", name, namespace=namespace)
        else:
            yield question("", "users", wanted.username)
        if wanted.uid:
            yield question(self._group, "uids", wanted.uid)
        for group in wanted.groups:
            yield question("", "groups", group)
        for key, values in wanted.extra.items():
            for value in values:
                yield question(self._group, "userextras", value, subresource=key)


def is_asked_for(headers: Mapping[str, str]) -> bool:
    """Whether any header speaks of it. Almost none does, so this is all that most requests cost."""
    return "\nimpersonate-" in "\n".join(("", *headers))  # a name holds no line break


def read_headers(presented: Presented) -> Wanted | None:
    """What the headers ask for; None if they ask for nobody."""
    headers = presented.headers
    names = [name for name in headers if name.startswith("impersonate-")]
    if not names:
        return None
    wanted = Wanted(
        username=header_text(headers.get(USER, "")),
        uid=header_text(headers.get(UID, "")),
        groups=tuple(map(header_text, presented.all(GROUP))),
        extra=read_extra(presented, names),
    )
    if wanted.username:
        return wanted
    if wanted.uid or wanted.groups or wanted.extra:
        raise BadRequest(
            "a uid, groups or extra can be impersonated only together with a user: "
            "the Impersonate-User header is missing or empty"
        )
    return None


def read_extra(presented: Presented, names: list[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for name in sorted(names):
        if name.startswith(EXTRA_PREFIX):
            key = unescaped(name[len(EXTRA_PREFIX) :].lower())
            extra[key] = extra.get(key, ()) + tuple(map(header_text, presented.all(name)))
    return extra


def unescaped(key: str) -> str:
    """Decode percent escapes; a key that has a broken one is taken as it stands."""
    parts = key.split("%")
    if not all(is_escape(part[:2]) for part in parts[1:]):
        return key
    try:
        return unquote_to_bytes(key).decode()
    except UnicodeDecodeError:
        return key


def is_escape(digits: str) -> bool:
    return len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits)  # noqa: PLR2004 - %2f


def account_of(username: str) -> tuple[str, str] | None:
    """Namespace and name of the service account a user name stands for, if it is one's."""
    if not username.startswith(ACCOUNT_PREFIX):
        return None
    namespace, colon, name = username[len(ACCOUNT_PREFIX) :].partition(":")
    if not colon or label_errors(namespace) or subdomain_errors(name):
        return None
    return namespace, name


def question(
    group: str, resource: str, name: str, *, namespace: str = "", subresource: str = ""
) -> Target:
    return Target(
        verb="impersonate",
        is_resource=True,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def resulting_user(wanted: Wanted) -> UserInfo:
    """The wanted user, with the groups that come with being one."""
    groups = wanted.groups
    account = account_of(wanted.username)
    if account is not None and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if wanted.username == ANONYMOUS:
        if UNAUTHENTICATED not in groups:
            groups = (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups and AUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return UserInfo(
        username=wanted.username, uid=wanted.uid, groups=groups, extra=dict(wanted.extra)
    )
