"""May they? Asks the authorizer, and says no in the words that clients know."""

from orchid.access.denial import forbidden
from orchid.engine.interfaces import Authorizer
from orchid.engine.request import Target
from orchid.wire.user import UserInfo


async def require_allowed(authorizer: Authorizer, user: UserInfo, target: Target) -> None:
    decision = await authorizer.authorize(user, target)
    if not decision.allowed:
        raise forbidden(user, target, decision.reason)
