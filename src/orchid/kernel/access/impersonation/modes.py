"""The modes of impersonation and the permissions they need.

`all_modes` returns them in the order in which they are tried:

    associated-node  a service account acts as the node that its own Pod runs on
    arbitrary-node   any node
    serviceaccount   any service account
    user-info        any other user, with uid, groups and extra
    legacy           any user, for any request: the verb `impersonate`

All but the last are constrained. They first check whether the caller may make this request in this
mode (verb `impersonate-on:<mode>:<verb>` on the target of the request), then whether they may use
the identity (verb `impersonate:<mode>` on its name, uid, groups and extra, in that order).

A mode returns the impersonated user, or None if it does not apply to such a user. It raises
NotOnThisRequest if the first check fails, and Forbidden later. Nothing is cached here: a removed
permission is gone with the next request.
"""

from collections.abc import Callable, Iterable
from typing import Final

from orchid.kernel.access.denial import forbidden, joined
from orchid.kernel.access.impersonation.extra_keys import key_errors
from orchid.kernel.engine.interfaces import Authorizer
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.fields import Path
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import label_errors, subdomain_errors
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODE_PREFIX,
    NODES,
    UNAUTHENTICATED,
    UserInfo,
)

ACCOUNT_PREFIX: Final = "system:serviceaccount:"
MANY: Final = 4  # above this number of values, permission for all of them is checked first
EVERY: Final = "*"

Applies = Callable[[UserInfo, UserInfo], bool]  # (the caller, the impersonated user)


class NotOnThisRequest(Exception):
    """The caller has no constrained permission for such a request."""


class LegacyMode:
    """A caller who may impersonate a name may do so for any request."""

    name = "legacy"
    verb = "impersonate"
    constraint = ""  # for the audit record

    def __init__(self, naming: Naming, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._authentication = naming.authentication
        self._name_group = ""  # the API group of names and groups; uids and extras have their own

    async def become(self, caller: UserInfo, wanted: UserInfo, target: Target) -> UserInfo | None:
        """The impersonated user; `target` is that of the request itself."""
        return await self._take(caller, wanted)

    async def _take(self, caller: UserInfo, requested: UserInfo) -> UserInfo:
        await self._require(caller, self._name_question(requested.username))
        if requested.uid:
            question = self._question("uids", requested.uid, group=self._authentication)
            await self._require(caller, question)
        if requested.groups:
            await self._take_groups(caller, requested.groups)
        if requested.extra:
            await self._take_extra(caller, requested.extra)
        return with_default_groups(
            replace(requested, groups=requested.groups or self._own_groups(requested))
        )

    async def _take_groups(self, caller: UserInfo, groups: tuple[str, ...]) -> None:
        for group in groups:
            await self._require(caller, self._question("groups", group))

    async def _take_extra(self, caller: UserInfo, extra: dict[str, tuple[str, ...]]) -> None:
        for key, values in extra.items():
            for value in values:
                await self._require(caller, self._extra_question(key, value))

    def _own_groups(self, requested: UserInfo) -> tuple[str, ...]:
        """The groups of a name if the headers have none."""
        account = account_of(requested.username)
        if account is None:
            return ()
        return "system:serviceaccounts", f"system:serviceaccounts:{account[0]}"

    def _name_question(self, username: str) -> Target:
        account = account_of(username)
        if account is None:
            return self._question("users", username)
        namespace, name = account
        return replace(self._question("serviceaccounts", name), namespace=namespace)

    def _extra_question(self, key: str, value: str) -> Target:
        question = self._question("userextras", value, group=self._authentication)
        return replace(question, subresource=key)

    def _question(self, resource: str, name: str, *, group: str | None = None) -> Target:
        return Target(
            verb=self.verb,
            is_resource=True,
            group=self._name_group if group is None else group,
            version="v1",
            resource=resource,
            name=name,
        )

    async def _require(self, caller: UserInfo, target: Target) -> None:
        decision = await self._authorizer.authorize(caller, target)
        if not decision.allowed:
            reasons = [text for text in (decision.error, decision.reason) if text]
            raise forbidden(caller, target, ": ".join(reasons))


class ConstrainedMode(LegacyMode):
    """Both the request and the identity need a permission for this mode."""

    def __init__(self, naming: Naming, authorizer: Authorizer, name: str, applies: Applies) -> None:
        super().__init__(naming, authorizer)
        self._name_group = naming.authentication
        self._applies = applies
        self.name = name
        self.verb = self.constraint = f"impersonate:{name}"

    async def become(
        self, caller: UserInfo, requested: UserInfo, target: Target
    ) -> UserInfo | None:
        if not self._applies(caller, requested):
            return None
        request = replace(target, verb=f"impersonate-on:{self.name}:{target.verb}")
        try:
            await self._require(caller, request)
        except Forbidden:
            raise NotOnThisRequest from None
        return await self._take(caller, requested)

    async def _take_groups(self, caller: UserInfo, groups: tuple[str, ...]) -> None:
        if "" in groups:
            text = "impersonating the empty string group is not allowed"
            raise forbidden(caller, self._question("groups", ""), text)
        if MASTERS in groups:
            text = f"impersonating the {MASTERS} group is not allowed"
            raise forbidden(caller, self._question("groups", MASTERS), text)
        if len(groups) >= MANY and await self._may(caller, self._question("groups", EVERY)):
            return
        await super()._take_groups(caller, groups)

    async def _take_extra(self, caller: UserInfo, extra: dict[str, tuple[str, ...]]) -> None:
        problem = extra_problem(extra)
        if problem:
            question = self._question("userextras", "", group=self._authentication)
            raise forbidden(caller, question, problem)
        are_many = sum(map(len, extra.values())) >= MANY
        if are_many and await self._may(caller, self._extra_question(EVERY, EVERY)):
            return
        await super()._take_extra(caller, extra)

    async def _may(self, caller: UserInfo, question: Target) -> bool:
        return (await self._authorizer.authorize(caller, question)).allowed

    def _own_groups(self, wanted: UserInfo) -> tuple[str, ...]:
        return (NODES,) if node_of(wanted.username) else super()._own_groups(wanted)

    def _name_question(self, username: str) -> Target:
        node = node_of(username)
        return self._question("nodes", node) if node else super()._name_question(username)


class AssociatedNodeMode(ConstrainedMode):
    """An account acts as its own node: one permission is valid wherever its Pods run.

    So the permission is for the node `*`, and the authorizer gets the keys of the caller's extra
    but not the values, which include the node's name.
    """

    def __init__(self, naming: Naming, authorizer: Authorizer) -> None:
        node_key, self._keys = naming.node_name_extra, naming.associated_node_keys_extra

        def applies(caller: UserInfo, wanted: UserInfo) -> bool:
            node = only_node(caller, wanted) and node_of(wanted.username)
            is_account = account_of(caller.username) is not None
            return bool(node) and is_account and caller.extra.get(node_key) == (node,)

        super().__init__(naming, authorizer, "associated-node", applies)

    async def _require(self, caller: UserInfo, target: Target) -> None:
        without_values = {self._keys: tuple(sorted(caller.extra))}
        await super()._require(replace(caller, extra=without_values), target)

    def _name_question(self, username: str) -> Target:
        return self._question("nodes", EVERY)


def all_modes(naming: Naming, authorizer: Authorizer) -> tuple[LegacyMode, ...]:
    """Every mode, in the order in which they are tried."""
    constrained = {
        "arbitrary-node": only_node,
        "serviceaccount": only_account,
        "user-info": somebody_else,
    }
    return (
        AssociatedNodeMode(naming, authorizer),
        *(ConstrainedMode(naming, authorizer, *mode) for mode in constrained.items()),
        LegacyMode(naming, authorizer),
    )


# --- users of a mode ------------------------------------------------------------------------------


def only_node(caller: UserInfo, wanted: UserInfo) -> bool:
    return is_name_alone(wanted) and node_of(wanted.username) is not None


def only_account(caller: UserInfo, wanted: UserInfo) -> bool:
    return is_name_alone(wanted) and account_of(wanted.username) is not None


def somebody_else(caller: UserInfo, wanted: UserInfo) -> bool:
    return node_of(wanted.username) is None and account_of(wanted.username) is None


def is_name_alone(wanted: UserInfo) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def account_of(username: str) -> tuple[str, str] | None:
    """Namespace and name of the service account with this user name, or None."""
    if not username.startswith(ACCOUNT_PREFIX):
        return None
    namespace, colon, name = username[len(ACCOUNT_PREFIX) :].partition(":")
    if not colon or label_errors(namespace) or subdomain_errors(name):
        return None
    return namespace, name


def node_of(username: str) -> str | None:
    """The name of the node with this user name, or None."""
    name = username.removeprefix(NODE_PREFIX)
    return None if name == username or subdomain_errors(name) else name


# --- the resulting user ---------------------------------------------------------------------------


def with_default_groups(user: UserInfo) -> UserInfo:
    """The user with the group for authenticated or for unauthenticated users."""
    usual = UNAUTHENTICATED if user.username == ANONYMOUS else AUTHENTICATED
    if usual in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, usual))


def extra_problem(extra: dict[str, tuple[str, ...]]) -> str:
    """Why extras are invalid in a constrained mode, or ""."""
    return next((problem for item in extra.items() for problem in _extra_problems(*item)), "")


def _extra_problems(key: str, values: tuple[str, ...]) -> Iterable[str]:
    if not key:
        yield "impersonating the empty string key in extra is not allowed"
    errors = joined(map(str, key_errors(Path() / "extra" / "key", key)))
    if errors:
        yield f"impersonating an invalid key in extra is not allowed: {errors}"
    if key != key.lower():
        yield f"impersonating a non-lowercase key in extra is not allowed: {quote(key)}"
    if "" in values:
        yield "impersonating the empty string value in extra is not allowed"
