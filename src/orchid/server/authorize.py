"""May they? Asks the authorizer, and says no in the words that clients know."""

from orchid.access.denial import forbidden
from orchid.engine.interfaces import Authorizer, Decision
from orchid.engine.request import Target
from orchid.wire.user import UserInfo


class AuthorizerFailed(Exception):
    """Nobody said yes, and somebody who might have could not be asked."""


async def require_allowed(authorizer: Authorizer, user: UserInfo, target: Target) -> None:
    insist(await authorizer.authorize(user, target), user, target)


def insist(decision: Decision, user: UserInfo, target: Target) -> None:
    """Go on only if the decision was a yes."""
    if decision.allowed:
        return
    if decision.error:
        raise AuthorizerFailed(decision.error)
    raise forbidden(user, target, decision.reason)
