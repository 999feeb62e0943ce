"""Authorization: calls the authorizer, and refuses with the message of Kubernetes."""

from orchid.kernel.access.denial import forbidden
from orchid.kernel.engine.interfaces import Authorizer, Decision
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.user import UserInfo


class AuthorizerFailed(Exception):
    """No authorizer allowed it, and one that might have failed."""


async def require_allowed(authorizer: Authorizer, user: UserInfo, target: Target) -> None:
    refuse_unless_allowed(await authorizer.authorize(user, target), user, target)


def refuse_unless_allowed(decision: Decision, user: UserInfo, target: Target) -> None:
    """Raise unless the decision is to allow."""
    if decision.allowed:
        return
    if decision.error:
        raise AuthorizerFailed(decision.error)
    raise forbidden(user, target, decision.reason)
