"""Audit events: what is recorded at which stage and level. What is left out: test_redaction.py."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from orchid.kernel.access.impersonation.impersonation import Impersonated
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Request
from orchid.kernel.http.messages import Chunk, HttpRequest, Peer, Response, Stream
from orchid.kernel.server.audit import trail
from orchid.kernel.server.audit.trail import source_ips
from orchid.kernel.server.negotiate import PLAIN
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import document
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.server.audit.audited import ACCOUNTS, TOKEN, World

CAROL = UserInfo(username="carol", groups=("g1",))


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
    """`user` is the real caller; the impersonated user is added once it is known."""
    world = World({"level": "Metadata", "users": ["admin"]})
    world.acting_as = Impersonated(CAROL)

    await world.send(impersonate_user="carol")

    received, complete = world.log.events
    assert "impersonatedUser" not in received
    assert complete["user"]["username"] == "admin"
    assert complete["impersonatedUser"] == {"username": "carol", "groups": ["g1"]}
    assert "authenticationMetadata" not in complete


async def test_a_constrained_impersonation_records_its_mode() -> None:
    """The record has the verb that allowed it, once it is known."""
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
    """An unexpected exception is recorded as Panic, without the text of the error anywhere."""
    world = World()

    def fail(state: RequestState) -> Response:
        raise KeyError(TOKEN)

    world.answer = fail
    await world.send()

    event = world.log.events[-1]
    assert event["stage"] == "Panic"
    assert event["responseStatus"]["code"] == 500
    assert caplog.records[-1].story.startswith("KeyError")
    assert TOKEN not in f"{caplog.text} {vars(caplog.records[-1])}"
    assert TOKEN.encode() not in b"".join(world.log.lines)


async def test_watch_is_recorded_when_it_starts_and_when_it_ends() -> None:
    """A stream has a ResponseStarted at once and a ResponseComplete once it is closed."""
    world = World()
    world.answer = lambda _: Stream(200, b"", lambda sink: None)
    closing: list[Callable[[], None]] = []

    class Sink:
        closed = False

        def send(self, chunk: Chunk) -> None: ...
        def when_taken(self, step: Callable[[], None]) -> None: ...
        def finish(self) -> None: ...
        def abort(self) -> None: ...
        def on_close(self, callback: Callable[[], None]) -> None:
            closing.append(callback)

    stream = await world.send(target=f"{ACCOUNTS}?watch=1")
    assert isinstance(stream, Stream)
    stream.open(Sink())
    before = [event["stage"] for event in world.log.events]
    for callback in closing:
        callback()

    assert before == ["RequestReceived", "ResponseStarted"]
    assert [event["stage"] for event in world.log.events][2:] == ["ResponseComplete"]


async def test_deadline_is_recorded_as_504() -> None:
    """A request that is cancelled because it took too long ends in the record too."""
    world = World()

    async def wait(state: RequestState, request: Request) -> Response:
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
    assert world.log.lines == []


def answered_with(sent: Object | None, shown: bytes) -> Callable[[RequestState], Response]:
    def answer(state: RequestState) -> Response:
        state.sent = sent
        return document(state, 201, shown, PLAIN)

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


async def test_nothing_that_was_forbidden_is_recorded_in_full() -> None:
    """A forbidden request does not record its body."""
    world = World({"level": "RequestResponse"})
    world.decision = Decision(Verdict.NO_OPINION)

    await world.send("PATCH", f"{ACCOUNTS}/a", b'{"a":1}')

    assert "requestObject" not in world.log.events[-1]


@pytest.mark.parametrize("body", [b'{"a":"%s"}' % (b"x" * trail.LARGE_BYTES), b"a: 1\n"])
async def test_large_bodies_are_readied_beside_the_event_loop(body: bytes) -> None:
    """Large bodies, and YAML, which may expand, are left to the thread of the log."""
    world = World({"level": "Request"})

    await world.send("PATCH", f"{ACCOUNTS}/a", body)

    assert len(world.log.deferred) == 1
    assert set(world.log.events[-1]["requestObject"]) == {"a"}


async def test_unreadable_body_is_not_recorded() -> None:
    """A body that is no document leaves no trace."""
    world = World({"level": "Request"})

    await world.send("PATCH", f"{ACCOUNTS}/a", b"{" * 5000)

    assert "requestObject" not in world.log.events[-1]


async def test_what_is_no_text_is_recorded_all_the_same() -> None:
    """Bytes that are not UTF-8 in a path or a header do not break the record."""
    world = World()

    await world.send("GET", f"{ACCOUNTS}/%ff", user_agent="a\udcff")

    assert world.log.events[-1]["userAgent"] == "a?"
    assert world.log.events[-1]["requestURI"] == f"{ACCOUNTS}/%ff"


async def test_nothing_is_recorded_of_what_the_policy_leaves_out() -> None:
    """Level None writes no event, and without a trail none of anything is written."""
    world = World({"level": "None"})
    await world.send()
    world.chain._audit = None
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


async def test_user_agent_is_cut() -> None:
    """A long user agent is cut at 1024 and says so."""
    world = World()

    await world.send(user_agent="x" * 5000)

    assert world.log.events[0]["userAgent"] == "x" * 1024 + "...TRUNCATED"
