"""Requests, rights and kinds for the tests of admission policies."""

import datetime
from typing import Any

from orchid.features.accounts.kinds import token_request
from orchid.features.certificates.kinds import certificate_signing_request
from orchid.features.trust_bundles.kinds import cluster_trust_bundle
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Options, Request, Target
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
EVE = UserInfo(username="eve", groups=("dev",))

SIGNING_REQUESTS: Any = certificate_signing_request.declare(ORCH)
BUNDLES: Any = cluster_trust_bundle.declare(ORCH)
TOKENS: Any = token_request.declare(ORCH, None).kind


class Rights:
    """Allows the given (verb, resource, name), and records the requests."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self._allowed = allowed
        self.asked: list[Target] = []

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        self.asked.append(target)
        if (target.verb, target.resource, target.name) in self._allowed:
            return Decision(Verdict.ALLOW)
        return Decision(Verdict.NO_OPINION)


def a_request(target: Target, user: UserInfo = EVE, **options: Any) -> Request:
    return Request(target=target, user=user, now=NOW, options=Options(**options))
