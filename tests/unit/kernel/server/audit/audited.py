"""The chain with an audit log in memory, and fakes around it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from orchid.kernel.access.impersonation.impersonation import Impersonated
from orchid.kernel.engine.interfaces import Authenticated, Decision, Presented, Rejected, Verdict
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.http.messages import HttpRequest, Peer, Response, Stream
from orchid.kernel.server.audit.policy import parse
from orchid.kernel.server.audit.trail import PolicyAudit
from orchid.kernel.server.chain import Chain
from orchid.kernel.server.fairness import Fairness
from orchid.kernel.server.metrics.requests import NoMetrics
from orchid.kernel.server.open_watches import OpenWatches
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

ADMIN = UserInfo(username="admin", uid="u", groups=("system:masters",))
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOKEN = "opaque-token-0123456789-0123456789"
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
ACCOUNTS = "/api/v1/namespaces/ns/serviceaccounts"


class Log:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.full = False
        self.errors = 0
        self.lines: list[bytes] = []
        self.deferred: list[int] = []  # sizes of what came by put_later

    def put(self, line: bytes) -> None:
        self.lines.append(line)

    def put_later(self, line: Callable[[], bytes], size: int) -> None:
        self.deferred.append(size)
        self.lines.append(line())

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


class Clock:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class World:
    """the chain with fakes around it."""

    def __init__(self, *rules: dict[str, Any], **policy: Any) -> None:
        written = {
            "apiVersion": "audit.orch.io/v1",
            "kind": "Policy",
            "rules": list(rules) or [{"level": "Metadata"}],
            **policy,
        }
        self.log = Log()
        self.audit = PolicyAudit(
            parse(json.dumps(written).encode()),
            self.log,  # all that the trail asks of a log
            ORCH,
            Clock(),
            lambda target: target.resource == "secrets" or target.subresource == "token",
        )
        self.caller: Authenticated | None = Authenticated(ADMIN)
        self.decision = Decision(Verdict.ALLOW, "because")
        self.acting_as: Impersonated | None = None
        self.answer: Callable[[RequestState], Response | Stream] = lambda _: Response(200)
        chain: Any = Chain
        watches: Any = OpenWatches
        self.chain = chain(
            naming=ORCH,
            clock=Clock(),
            authenticator=self,
            impersonation=self,
            authorizer=self,
            fairness=Fairness(ORCH, 0, 0),
            watches=watches(self, self, self),
            pages=self,
            dispatch=self.dispatch,
            audit=self.audit,
            metrics=NoMetrics(),
        )

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        if self.caller is None:
            raise Rejected("invalid bearer token")
        return self.caller

    async def apply(
        self, caller: UserInfo, presented: Presented, target: Target
    ) -> Impersonated | None:
        return self.acting_as

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        return self.decision

    async def dispatch(self, state: RequestState, request: Request) -> Response | Stream:
        request.annotate("note", "worth")
        return self.answer(state)

    def is_served(self, path: str) -> bool:
        return True

    async def send(
        self,
        method: str = "GET",
        target: str = ACCOUNTS,
        body: bytes = b"",
        *,
        certificate: bytes | None = None,
        **headers: str,
    ) -> Response | Stream:
        path, _, query = target.partition("?")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        peer = Peer("10.0.0.9:4000", certificate)
        http = HttpRequest(method, target, path, query, named, peer, body=body)
        answer: Response | Stream = await self.chain(http)
        return answer
