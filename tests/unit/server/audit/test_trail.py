"""Audit events: what is recorded at which stage and level, and what never is."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from orchid.access.impersonation import Impersonated
from orchid.engine.interfaces import Authenticated, Decision, Presented, Rejected, Verdict
from orchid.engine.request import Request, Target
from orchid.server.audit.policy import parse
from orchid.server.audit.trail import NoAudit, PolicyAudit, shown_uri, source_ips
from orchid.server.chain import Chain
from orchid.server.exchange import Exchange
from orchid.server.limits import InFlight
from orchid.server.metrics.requests import NoMetrics
from orchid.server.negotiate import PLAIN
from orchid.server.respond import document
from orchid.server.sockets.messages import Chunk, HttpRequest, Peer, Response, Stream
from orchid.wire.errors import ErrorSubject, NotFound
from orchid.wire.meta import Object, ObjectMeta
from orchid.wire.naming import ORCH
from orchid.wire.user import UserInfo

ADMIN = UserInfo(username="admin", uid="u", groups=("system:masters",))
CAROL = UserInfo(username="carol", groups=("g1",))
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

    def put(self, line: bytes) -> None:
        self.lines.append(line)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


class Clock:
    def now(self) -> datetime:
        return NOW


class World:
    """The chain with everybody around it made of paper."""

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
        self.answer: Callable[[Exchange], Response | Stream] = lambda _: Response(200)
        chain: Any = Chain
        self.chain = chain(
            clock=Clock(),
            authenticator=self,
            impersonation=self,
            authorizer=self,
            in_flight=InFlight(0, 0),
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

    async def dispatch(self, exchange: Exchange, request: Request) -> Response | Stream:
        request.annotate("note", "worth")
        return self.answer(exchange)

    def is_served(self, path: str) -> bool:
        return True

    async def send(
        self, method: str = "GET", target: str = ACCOUNTS, body: bytes = b"", **headers: str
    ) -> Response | Stream:
        path, _, query = target.partition("?")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        http = HttpRequest(method, target, path, query, named, Peer("10.0.0.9:4000"), body=body)
        answer: Response | Stream = await self.chain(http)
        return answer


async def test_two_stages_in_the_form_of_the_reference() -> None:
    """A request is recorded when the caller is known and when it is answered."""
    world = World()

    await world.send(user_agent="client/1", audit_id="id-1")

    base = {
        "kind": "Event",
        "apiVersion": "audit.orch.io/v1",
        "level": "Metadata",
        "auditID": "id-1",
        "requestURI": ACCOUNTS,
        "verb": "list",
        "user": {"username": "admin", "uid": "u", "groups": ["system:masters"]},
        "sourceIPs": ["10.0.0.9"],
        "userAgent": "client/1",
        "objectRef": {"resource": "serviceaccounts", "namespace": "ns", "apiVersion": "v1"},
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000001Z",
        "stageTimestamp": "2026-01-02T03:04:05.000001Z",
    }
    assert world.log.events == [
        {**base, "stage": "RequestReceived"},
        {
            **base,
            "stage": "ResponseComplete",
            "responseStatus": {"metadata": {}, "code": 200},
            "annotations": {
                "authorization.orch.io/decision": "allow",
                "authorization.orch.io/reason": "because",
                "note": "worth",
            },
        },
    ]
    assert all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in world.log.lines)


async def test_failed_authentication_is_one_event_without_a_user() -> None:
    """A 401 is recorded once, as a response that started, with an empty user."""
    world = World()
    world.caller = None

    await world.send(authorization=f"Bearer {TOKEN}")

    (event,) = world.log.events
    assert event["stage"] == "ResponseStarted"
    assert event["user"] == {}
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }
    assert "annotations" not in event


async def test_impersonation_shows_both_users() -> None:
    """The real caller stands in user, the one acted for beside it once it is known."""
    world = World({"level": "Metadata", "users": ["admin"]})
    world.acting_as = Impersonated(CAROL)

    await world.send(impersonate_user="carol")

    received, complete = world.log.events
    assert "impersonatedUser" not in received
    assert complete["user"]["username"] == "admin"
    assert complete["impersonatedUser"] == {"username": "carol", "groups": ["g1"]}
    assert "authenticationMetadata" not in complete


async def test_a_constrained_impersonation_tells_its_mode() -> None:
    """The verb that allowed it stands in the record, once it is known."""
    world = World({"level": "Metadata", "users": ["admin"]})
    world.acting_as = Impersonated(CAROL, "impersonate:user-info")

    await world.send(impersonate_user="carol")

    received, complete = world.log.events
    assert "authenticationMetadata" not in received
    assert complete["authenticationMetadata"] == {
        "impersonationConstraint": "impersonate:user-info"
    }


async def test_refusal_is_recorded_with_its_status() -> None:
    """A 403 carries the decision, and the whole Status without kind and apiVersion."""
    world = World()
    world.decision = Decision(Verdict.NO_OPINION)

    await world.send()

    event = world.log.events[-1]
    assert event["annotations"] == {
        "authorization.orch.io/decision": "forbid",
        "authorization.orch.io/reason": "",
    }
    assert event["responseStatus"]["reason"] == "Forbidden"
    assert event["responseStatus"]["code"] == 403
    assert "kind" not in event["responseStatus"]


async def test_panic_is_a_stage_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """What nobody foresaw is recorded as Panic, without the text of the error anywhere."""
    world = World()

    def fail(exchange: Exchange) -> Response:
        raise KeyError(TOKEN)

    world.answer = fail
    await world.send()

    event = world.log.events[-1]
    assert event["stage"] == "Panic"
    assert event["responseStatus"]["code"] == 500
    assert "KeyError" in caplog.text
    assert TOKEN not in caplog.text
    assert TOKEN.encode() not in b"".join(world.log.lines)


async def test_watch_is_recorded_when_it_starts_and_when_it_ends() -> None:
    """A stream has a ResponseStarted at once and a ResponseComplete once it is closed."""
    world = World()
    world.answer = lambda _: Stream(200, b"", lambda sink: None)
    closing: list[Callable[[], None]] = []

    class Sink:
        closed = False

        def send(self, chunk: Chunk) -> None: ...
        def finish(self) -> None: ...
        def abort(self) -> None: ...
        def on_close(self, callback: Callable[[], None]) -> None:
            closing.append(callback)

    stream = await world.send(target=f"{ACCOUNTS}?watch=1")
    assert isinstance(stream, Stream)
    stream.open(Sink())
    before = [event["stage"] for event in world.log.events]
    closing[0]()

    assert before == ["RequestReceived", "ResponseStarted"]
    assert [event["stage"] for event in world.log.events][2:] == ["ResponseComplete"]


async def test_deadline_is_recorded_as_504() -> None:
    """A request that is cancelled because it took too long ends in the record too."""
    world = World()

    async def wait(exchange: Exchange, request: Request) -> Response:
        await asyncio.Event().wait()
        return Response(200)

    world.chain._dispatch = wait
    task = asyncio.create_task(world.send())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert world.log.events[-1]["responseStatus"]["code"] == 504


async def test_omitted_stages_are_left_out() -> None:
    """Stages that the policy omits are not written."""
    world = World(omitStages=["RequestReceived"])

    await world.send()

    assert [event["stage"] for event in world.log.events] == ["ResponseComplete"]


async def test_full_log_refuses_what_it_could_not_record() -> None:
    """Nothing is done unrecorded: with a full log a request to be recorded is answered 500."""
    world = World({"level": "None", "verbs": ["get"]}, {"level": "Metadata"})
    world.log.full = True

    refused = await world.send()
    unrecorded = await world.send(target=f"{ACCOUNTS}/a")

    assert refused.status == 500
    assert unrecorded.status == 200
    assert world.audit.rejected == 1


def answered_with(sent: Object | None, shown: bytes) -> Callable[[Exchange], Response]:
    def answer(exchange: Exchange) -> Response:
        exchange.observed.sent = sent
        return document(exchange, 201, shown, PLAIN)

    return answer


@pytest.mark.parametrize(
    ("level", "bodies"),
    [
        ("Metadata", set()),
        ("Request", {"requestObject"}),
        ("RequestResponse", {"requestObject", "responseObject"}),
    ],
)
async def test_levels_add_bodies(level: str, bodies: set[str]) -> None:
    """Each level records more of the bodies, and the name comes from what was sent."""
    world = World({"level": level})
    sent = Object(kind="ServiceAccount", api_version="v1", metadata=ObjectMeta(name="app"))
    world.answer = answered_with(sent, b'{"kind":"ServiceAccount"}')

    await world.send("POST", body=b"{}")

    received, complete = world.log.events
    assert {"requestObject", "responseObject"} & set(received) == set()
    assert {"requestObject", "responseObject"} & set(complete) == bodies
    assert "name" not in received["objectRef"]
    assert complete["objectRef"]["name"] == "app"


async def test_managed_fields_can_be_left_out_of_bodies() -> None:
    """With omitManagedFields no body shows them, in lists neither."""
    world = World({"level": "RequestResponse"}, omitManagedFields=True)
    listed = b'{"items":[{"metadata":{"name":"a","managedFields":[{"manager":"m"}]}}]}'
    world.answer = answered_with(None, listed)

    await world.send()

    assert world.log.events[-1]["responseObject"] == {"items": [{"metadata": {"name": "a"}}]}


async def test_patch_is_recorded_as_it_came() -> None:
    """A patch has no object; its own text is recorded, YAML as JSON, telling fields masked."""
    world = World({"level": "Request"})

    await world.send("PATCH", f"{ACCOUNTS}/a", b"a: 1\ntoken: abc\n")

    assert world.log.events[-1]["requestObject"] == {"a": 1, "token": "***"}


async def test_unreadable_body_is_not_recorded() -> None:
    """A body that is no document leaves no trace."""
    world = World({"level": "Request"})

    await world.send("PATCH", f"{ACCOUNTS}/a", b"{" * 5000)

    assert "requestObject" not in world.log.events[-1]


@pytest.mark.parametrize("credential", [TOKEN, JWT])
async def test_presented_token_is_hidden_wherever_it_is_repeated(credential: str) -> None:
    """A caller who puts their token into every place finds it in none of them."""
    world = World({"level": "RequestResponse"})

    def fail(exchange: Exchange) -> Response:
        raise NotFound(ErrorSubject("", "serviceaccounts", credential))

    world.answer = fail
    world.acting_as = Impersonated(UserInfo(username=credential, extra={"a": (credential,)}))
    await world.send(
        "PATCH",
        f"{ACCOUNTS}/{credential}?fieldManager={credential}&{credential}",
        json.dumps({"a": {"b": [credential]}}).encode(),
        authorization=f"Bearer {credential}",
        user_agent=credential,
        audit_id=credential,
        x_forwarded_for=credential,
    )

    record = b"".join(world.log.lines)
    assert credential.encode() not in record
    assert world.log.events[-1]["objectRef"]["name"] == "***"
    assert world.log.events[-1]["user"]["username"] == "admin"


async def test_token_shapes_are_hidden_without_being_presented() -> None:
    """A token or private key that is not the caller's own credential is hidden by its shape."""
    world = World({"level": "Request"})
    key = "-----BEGIN EC PRIVATE KEY-----\nabcd\n-----END EC PRIVATE KEY-----\n"

    await world.send(
        "PATCH", f"{ACCOUNTS}/a?labelSelector={JWT}", json.dumps([JWT, key, "left"]).encode()
    )

    event = world.log.events[-1]
    assert event["requestURI"].endswith("?labelSelector=***")
    assert event["requestObject"] == ["***", "***\n", "left"]


async def test_nobody_hides_who_they_are_by_presenting_it() -> None:
    """What the server found out about a caller stays, even if they present it as a token."""
    world = World()
    world.caller = Authenticated(UserInfo(username="mallory-the-user"))

    await world.send(authorization="Bearer mallory-the-user")
    await world.send(authorization="Bearer sourceIPs")

    assert {event["user"]["username"] for event in world.log.events} == {"mallory-the-user"}
    assert {tuple(event["sourceIPs"]) for event in world.log.events} == {("10.0.0.9",)}


async def test_what_is_no_text_is_recorded_all_the_same() -> None:
    """Bytes that are not UTF-8 in a path or a header do not break the record."""
    world = World()

    await world.send("GET", f"{ACCOUNTS}/%ff", user_agent="a\udcff")

    assert world.log.events[-1]["userAgent"] == "a?"
    assert world.log.events[-1]["requestURI"] == f"{ACCOUNTS}/%ff"


async def test_nothing_is_recorded_of_what_the_policy_leaves_out() -> None:
    """Level None writes no event, and NoAudit writes none of anything."""
    world = World({"level": "None"})
    await world.send()
    world.chain._audit = NoAudit()
    await world.send()

    assert world.log.lines == []


def get(query: str = "", peer: str = "10.0.0.9:4000", **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("GET", "/x", "/x", query, named, Peer(peer))


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (get(), ("10.0.0.9",)),
        (get(peer="[::1]:80"), ("::1",)),
        (get(peer=""), ()),
        (get(x_forwarded_for="1.1.1.1, 2.2.2.2"), ("1.1.1.1", "2.2.2.2", "10.0.0.9")),
        (get(x_forwarded_for="junk, 10.0.0.9"), ("10.0.0.9",)),
        (get(x_real_ip="3.3.3.3"), ("3.3.3.3", "10.0.0.9")),
        (get(x_forwarded_for="3.3.3.3", x_real_ip="3.3.3.3"), ("3.3.3.3", "10.0.0.9")),
        (get(x_real_ip="token"), ("10.0.0.9",)),
    ],
)
def test_sources_are_what_proxies_say_and_what_we_see(
    request_: HttpRequest, found: tuple[str, ...]
) -> None:
    """Addresses only, the peer's own always among them."""
    assert source_ips(request_) == found


def test_sources_are_bounded() -> None:
    """A header of ten thousand addresses makes no event of ten thousand."""
    assert len(source_ips(get(x_forwarded_for=",".join(["1.1.1.1"] * 10_000)))) == 101


def test_unknown_parameters_lose_their_values() -> None:
    """A secret in a parameter that the API does not know is not recorded."""
    shown = shown_uri(get("limit=5&access_token=abc&bare&labelSelector=a%3Db"))

    assert shown == "/x?limit=5&access_token=***&***&labelSelector=a%3Db"


async def test_user_agent_is_cut() -> None:
    """A long user agent is cut at 1024 and says so."""
    world = World()

    await world.send(user_agent="x" * 5000)

    assert world.log.events[0]["userAgent"] == "x" * 1024 + "...TRUNCATED"
