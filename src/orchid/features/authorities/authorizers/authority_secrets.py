"""AuthoritySecrets: controllers may get the Secrets that certificate authorities name, and no
others.

The key of an authority may be in any Secret (`secretRef`), so no role can name it. Controllers that
need the keys may get a Secret as long as an authority, or one of its SigningKeys, names it.
Otherwise this authorizer has no opinion: it runs after RBAC, wherever that is configured.
"""

from collections.abc import Callable, Iterable

from orchid.features.rights.kinds.self_subject_rules_review import (
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Authorizer, Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.user import UserInfo

ALLOWED = Decision(Verdict.ALLOW, "a certificate authority names this Secret")
NOT_ASKED = Decision(Verdict.NO_OPINION)


class AuthoritySecrets:
    def __init__(
        self, feed: Feed, is_named: Callable[[SecretReference], bool], readers: Iterable[str]
    ) -> None:
        """`is_named`: whether the key of an authority is in a Secret. `readers`: user names of the
        controllers that need these keys.
        """
        self._feed = feed
        self._is_named = is_named
        self._readers = frozenset(readers)

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        if user.username not in self._readers or not _is_get_of_secret(target):
            return NOT_ASKED
        await self._feed.fresh_for_request()
        secret = SecretReference(name=target.name, namespace=target.namespace)
        return ALLOWED if self._is_named(secret) else NOT_ASKED

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        """Nothing: the Secrets are no rule."""
        return SubjectRulesReviewStatus()


def _is_get_of_secret(target: Target) -> bool:
    what = (target.verb, target.group, target.resource, target.subresource)
    return target.is_resource and what == ("get", "", "secrets", "")


_: type[Authorizer] = AuthoritySecrets
__: type[RuleLister] = AuthoritySecrets
