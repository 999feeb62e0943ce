"""Sessions of the console of a server: their ends, renewal and limits."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchid.features.console.api import JSON, Api
from orchid.features.console.page import Viewer
from orchid.features.console.rendering import Renderer
from orchid.features.console.sign_in.openid import ProviderUnavailable, SignInFailed
from orchid.features.console.sign_in.served import (
    MOST_AT_ONCE,
    MOST_PER_SESSION,
    MOST_STRANGERS,
    MOST_WAITING,
    OpenIdSignIn,
)
from orchid.features.console.sign_in.sessions import (
    IDLE,
    MOST_PER_USER,
    Sessions,
    Tokens,
    name_of,
    seal,
    unseal,
)
from orchid.features.console.web.messages import FORM, WebRequest, WebResponse
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.wire.naming import ORCH

URL = "https://console.example"
ISSUER = "https://login.example"
OWN = {"origin": URL, "sec-fetch-site": "same-origin", "content-type": FORM}
RENDERER = Renderer()
SHORT = 300  # seconds


class Connected(str):
    """The transport of a token: the token itself, which is one of jane."""

    async def send(self, *request: Any) -> Answer:
        return Answer(201, b'{"status": {"userInfo": {"username": "jane"}}}')


CONNECT: Any = Connected


class Stored:
    """The API of ConsoleSessions, in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = JSON, *, accept: str = ""
    ) -> Answer:
        name = target.partition("?")[0].rpartition("/")[2]
        given = json.loads(body) if body else {}
        if method == "POST":
            made = {
                "metadata": {
                    **given["metadata"],
                    "resourceVersion": "1",
                    "creationTimestamp": given["spec"]["lastSeen"],
                },
                "spec": given["spec"],
            }
            self.objects[given["metadata"]["name"]] = made
            return Answer(201, json.dumps(made).encode())
        if name == "consolesessions":
            return Answer(200, json.dumps({"items": list(self.objects.values())}).encode())
        if name not in self.objects:
            return Answer(404, b'{"message": "not found"}')
        if method == "PUT":
            self.objects[name] = given
        found = self.objects.pop(name) if method == "DELETE" else self.objects[name]
        return Answer(200, json.dumps(found).encode())

    def stream(self, target: str) -> Any:
        raise NotImplementedError


def id_token(name: str, **claims: Any) -> str:
    """A token that is not verified here; its signature is its name."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"header.{payload}.{name}"


class Pages:
    """A site that reports who asks; a page waits for `gate` if it is closed."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = self.most = 0
        self.stream: AsyncIterator[bytes] | None = None
        self.changed = asyncio.Condition()

    async def running_at_once(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.running == count)

    async def respond(self, request: WebRequest, base: str, viewer: Viewer) -> WebResponse:
        async with self.changed:
            self.running += 1
            self.most = max(self.most, self.running)
            self.changed.notify_all()
        await self.gate.wait()
        self.running -= 1
        token = str(viewer.api._transport)  # see `connect`
        return WebResponse(200, token.rpartition(".")[2].encode(), stream=self.stream)


class Provider:
    """Renews tokens, or fails."""

    def __init__(self) -> None:
        self.renewals = 0
        self.failure: SignInFailed | None = None
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.settings: Any = None

    async def renew(self, tokens: Tokens) -> Tokens:
        self.renewals += 1
        await asyncio.sleep(0)
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.failure is not None:
            raise self.failure
        now = datetime.now(UTC).timestamp()
        token = id_token(f"renewed-{self.renewals}", iat=now + 1)
        return Tokens(token, now + 600, tokens.refresh_token)

    async def redeem(self, login: Any, query: Any) -> Tokens:
        raise SignInFailed("no")

    async def sign_in_url(self, login: Any) -> str:
        return "https://login.example/authorize"

    async def sign_out_url(self) -> str:
        return "https://login.example/logout"


class World:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        self.stored, self.provider, self.pages = Stored(), Provider(), Pages()
        transport: Any = self.stored
        api = Api(transport, ORCH)
        self.revoked_until = 0.0  # the last time of issue of a revoked token of jane
        self.sessions = Sessions(api, lambda: self.now, timedelta(hours=8), self.is_revoked)
        site: Any = self.pages
        provider: Any = self.provider
        parts: Any = {"url": URL, "server": "https://api.example", "naming": ORCH}
        self.sign_in = OpenIdSignIn(
            site,
            RENDERER,
            self.sessions,
            provider,
            **parts,
            monotonic=lambda: 0.0,
        )

    def is_revoked(self, issuer: str, username: str, claims: Mapping[str, Any]) -> bool:
        assert issuer == ISSUER
        issued = claims.get("iat")
        return username == "jane" and (issued is None or issued <= self.revoked_until)

    async def begin(self, seconds: float = 600, refresh: str = "again", user: str = "jane") -> str:
        """Sign in; returns the cookie."""
        token = id_token("first", iat=self.now.timestamp())
        tokens = Tokens(token, datetime.now(UTC).timestamp() + seconds, refresh)
        made = await self.sessions.begin(user, ISSUER, "192.0.2.1:1", tokens)
        return f"__Host-orchid={made.id}"

    async def get(self, cookie: str, path: str = "/", method: str = "GET") -> WebResponse:
        sent = {"host": "console.example", "cookie": cookie, "sec-fetch-mode": "navigate"}
        request = WebRequest(method, path, {}, {**sent, **OWN}, address="192.0.2.1:1")
        return await self.sign_in.respond(request, CONNECT)


@pytest.fixture
def world() -> World:
    return World()


def test_tokens_are_sealed_with_the_id_alone() -> None:
    """A reader of the store has the name and the sealed text."""
    tokens, session = Tokens("secret", 1.0, "refresh"), "s" * 43

    sealed = seal(session, tokens)

    assert unseal(session, sealed) == tokens
    for other in (name_of(session), "t" * 43, ""):
        assert unseal(other, sealed) is None
    assert unseal(session, sealed[:-8]) is None
    assert unseal(session, "no base64!") is None


async def test_a_session_serves_with_the_token_of_its_user(world: World) -> None:
    cookie = await world.begin()

    assert (await world.get(cookie)).body == b"first"
    assert (await world.get("")).status == 303
    assert (await world.get(cookie[:-1] + "x")).status == 303


async def test_a_session_ends_after_its_time_and_when_idle(world: World) -> None:
    cookie = await world.begin()
    start = world.now
    world.now = start + IDLE - timedelta(minutes=1)
    assert (await world.get(cookie)).status == 200  # and was seen
    world.now += IDLE - timedelta(minutes=1)
    assert (await world.get(cookie)).status == 200
    world.now += IDLE
    assert (await world.get(cookie)).status == 303

    world.now = start + timedelta(hours=8)
    await world.sessions.sweep()
    assert world.stored.objects == {}


async def test_an_updated_page_does_not_keep_an_idle_session(world: World) -> None:
    """A forgotten tab follows changes; only a page that the user opens counts."""
    cookie = await world.begin()
    world.now += IDLE / 2
    sent = {"host": "console.example", "cookie": cookie, "sec-fetch-mode": "cors"}
    assert (await world.sign_in.respond(WebRequest("GET", "/", {}, sent), CONNECT)).status == 200
    world.now += IDLE / 2

    assert (await world.get(cookie)).status == 303


async def test_a_token_near_its_end_is_renewed_once_for_all_requests(world: World) -> None:
    cookie = await world.begin(seconds=30)

    found = await asyncio.gather(*(world.get(cookie) for _ in range(6)))

    assert {one.body for one in found} == {b"renewed-1"}
    assert world.provider.renewals == 1


async def test_a_refused_renewal_ends_the_session(world: World) -> None:
    """The old token is not sent, although it is valid for a moment."""
    cookie = await world.begin(seconds=30)
    world.provider.failure = SignInFailed("invalid_grant")

    assert (await world.get(cookie)).status == 303
    assert world.stored.objects == {}


async def test_of_two_servers_the_slower_one_ends_no_session(world: World) -> None:
    """The provider refuses the used refresh token; the other server has stored a new ID token."""
    cookie = await world.begin(seconds=30)
    world.provider.failure = SignInFailed("invalid_grant")

    async def renewed_elsewhere() -> None:
        session = await world.sessions.find(cookie.partition("=")[2])
        assert session is not None
        token = id_token("elsewhere", iat=world.now.timestamp())
        await world.sessions.renew(session, Tokens(token, world.now.timestamp() + 600, "new"))

    world.provider.meanwhile = renewed_elsewhere

    assert (await world.get(cookie)).body == b"elsewhere"
    assert len(world.stored.objects) == 1


async def test_a_revocation_during_a_renewal_ends_the_session(world: World) -> None:
    """The token of the provider is newer than the revocation; the session is not."""
    cookie = await world.begin(seconds=30)

    async def revoked() -> None:
        world.revoked_until = world.now.timestamp()

    world.provider.meanwhile = revoked

    assert (await world.get(cookie)).status == 303
    assert world.stored.objects == {}


async def test_signing_out_during_a_renewal_ends_the_session(world: World) -> None:
    """No page is served with the token that arrives afterwards."""
    cookie = await world.begin(seconds=30)

    async def signed_out() -> None:
        world.stored.objects.clear()

    world.provider.meanwhile = signed_out

    assert (await world.get(cookie)).status == 303


@pytest.mark.parametrize(("began", "issued"), [(0, 60), (60, 0), (0, 0), (None, 60)])
async def test_a_session_ends_with_its_beginning_and_with_its_token(
    world: World, began: int | None, issued: int
) -> None:
    """Either may be older than the revocation; without a time of creation it counts as older."""
    world.revoked_until = world.now.timestamp() + 30
    token = id_token("first", iat=world.now.timestamp() + issued)
    end = world.now.timestamp() + 600
    session = await world.sessions.begin("jane", ISSUER, "192.0.2.1:1", Tokens(token, end, "x"))
    metadata = world.stored.objects[session.name]["metadata"]
    del metadata["creationTimestamp"]
    if began is not None:
        metadata["creationTimestamp"] = (world.now + timedelta(seconds=began)).isoformat()

    assert await world.sessions.find(session.id) is None
    assert world.stored.objects == {}


async def test_a_session_after_the_revocation_goes_on(world: World) -> None:
    world.revoked_until = world.now.timestamp() - 30
    cookie = await world.begin()
    await world.sessions.sweep()

    assert (await world.get(cookie)).status == 200


async def test_the_sweep_ends_the_sessions_of_a_revoked_user_alone(world: World) -> None:
    await world.begin()
    other = await world.begin(user="joe")
    world.revoked_until = world.now.timestamp()

    await world.sessions.sweep()

    assert [one["spec"]["username"] for one in world.stored.objects.values()] == ["joe"]
    assert (await world.get(other)).status == 200


async def test_an_open_stream_ends_with_its_session(world: World) -> None:
    """What changes after the end is not shown."""

    async def changes() -> AsyncIterator[bytes]:
        yield b"before"
        world.stored.objects.clear()
        yield b"after"

    cookie = await world.begin()
    world.pages.stream = changes()
    found = await world.get(cookie)

    assert found.stream is not None
    assert [piece async for piece in found.stream] == [b"before"]


async def test_a_provider_that_is_down_ends_no_session_with_a_valid_token(world: World) -> None:
    cookie = await world.begin(seconds=30)
    world.provider.failure = ProviderUnavailable("down")

    assert (await world.get(cookie)).body == b"first"
    assert len(world.stored.objects) == 1


async def test_without_a_refresh_token_the_session_ends_with_the_id_token(world: World) -> None:
    cookie = await world.begin(seconds=300, refresh="")
    assert (await world.get(cookie)).status == 200
    world.now += timedelta(seconds=301)

    assert (await world.get(cookie)).status == 303
    assert world.provider.renewals == 0


@pytest.mark.parametrize(("refresh", "seconds"), [("", SHORT), ("", 9 * 3600), ("again", SHORT)])
async def test_a_session_is_stored_with_the_end_that_it_will_have(
    world: World, refresh: str, seconds: float
) -> None:
    """What cannot be renewed ends with its ID token; the list of sessions shows that."""
    world.now = world.now.replace(microsecond=0)
    tokens = Tokens("t", world.now.timestamp() + seconds, refresh)

    made = await world.sessions.begin("jane", ISSUER, "192.0.2.1:1", tokens)

    (stored,) = world.stored.objects.values()
    life = timedelta(seconds=seconds if seconds == SHORT and not refresh else 8 * 3600)
    assert made.expires == datetime.fromisoformat(stored["spec"]["expires"]) == world.now + life


async def test_a_user_has_a_limited_number_of_sessions(world: World) -> None:
    """The least recently used one ends, not the oldest; those of others do not count."""
    oldest, unused, other = await world.begin(), await world.begin(), await world.begin(user="joe")
    world.now += timedelta(minutes=6)
    assert (await world.get(oldest)).status == 200
    for _ in range(MOST_PER_USER - 1):
        world.now += timedelta(seconds=1)
        last = await world.begin()

    assert len(world.stored.objects) == MOST_PER_USER + 1
    assert name_of(unused.partition("=")[2]) not in world.stored.objects
    assert (await world.get(unused)).status == 303
    for cookie in (oldest, other, last):
        assert (await world.get(cookie)).status == 200


async def test_a_session_has_few_pages_at_a_time_and_all_are_served(world: World) -> None:
    """The others wait for their turn."""
    cookie = await world.begin()
    world.pages.gate.clear()
    waiting = [asyncio.create_task(world.get(cookie)) for _ in range(7)]
    await world.pages.running_at_once(MOST_PER_SESSION)
    world.pages.gate.set()

    assert {one.status for one in await asyncio.gather(*waiting)} == {200}
    assert world.pages.most == MOST_PER_SESSION


async def test_the_console_has_a_limited_number_of_requests_at_a_time(world: World) -> None:
    cookies = [await world.begin() for _ in range(MOST_AT_ONCE // MOST_PER_SESSION)]
    world.pages.gate.clear()
    waiting = [asyncio.create_task(world.get(one)) for one in cookies * MOST_PER_SESSION]
    await world.pages.running_at_once(MOST_AT_ONCE)
    refused = await world.get(cookies[0])
    world.pages.gate.set()

    assert refused.status == 503
    assert {one.status for one in await asyncio.gather(*waiting)} == {200}


async def test_a_session_cannot_take_the_places_of_others(world: World) -> None:
    """A hundred requests at the same time: few wait, and another user is served."""
    cookie, other = await world.begin(), await world.begin()
    world.pages.gate.clear()
    sent = [asyncio.create_task(world.get(cookie)) for _ in range(100)]
    await world.pages.running_at_once(MOST_PER_SESSION)
    beside = asyncio.create_task(world.get(other))
    await world.pages.running_at_once(MOST_PER_SESSION + 1)
    world.pages.gate.set()

    assert (await beside).status == 200
    served = [one.status for one in await asyncio.gather(*sent)].count(200)
    assert served == MOST_PER_SESSION + MOST_WAITING


async def test_strangers_do_not_take_the_places_of_users(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the provider hangs, each request without a session waits for it."""
    cookie, gate = await world.begin(), asyncio.Event()
    url = world.provider.sign_in_url

    async def hanging(login: Any) -> str:
        await gate.wait()
        return await url(login)

    monkeypatch.setattr(world.provider, "sign_in_url", hanging)
    strangers = [asyncio.create_task(world.get("")) for _ in range(200)]
    for _ in range(5):
        await asyncio.sleep(0)
    served = await world.get(cookie)
    gate.set()
    found = [one.status for one in await asyncio.gather(*strangers)]

    assert served.status == 200
    assert found.count(303) == MOST_STRANGERS
    assert found.count(503) == 200 - MOST_STRANGERS
    assert (await world.get("")).status == 303  # their places are free again


async def test_returns_from_the_provider_are_limited_like_strangers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no session yet, and each one waits for the provider."""
    cookie, gate = await world.begin(), asyncio.Event()
    login = {"host": "console.example", "cookie": "__Host-orchid-login=a.Lw=="}

    async def hanging(*_: Any) -> Tokens:
        await gate.wait()
        raise SignInFailed("no")

    def back(number: int) -> WebRequest:
        return WebRequest("GET", "/callback", {}, login, address=f"192.0.2.{number}:1")

    monkeypatch.setattr(world.provider, "redeem", hanging)
    returns = [asyncio.create_task(world.sign_in.respond(back(n), CONNECT)) for n in range(80)]
    for _ in range(5):
        await asyncio.sleep(0)
    served = await world.get(cookie)
    gate.set()
    found = [one.status for one in await asyncio.gather(*returns)]

    assert served.status == 200
    assert (found.count(403), found.count(503)) == (MOST_STRANGERS, 80 - MOST_STRANGERS)


async def test_signing_out_everywhere_ends_all_sessions_of_the_user(world: World) -> None:
    cookie, other = await world.begin(), await world.begin()
    sent = {"host": "console.example", "cookie": cookie, **OWN}
    request = WebRequest("POST", "/out", {}, sent, b"everywhere=yes")

    done = await world.sign_in.respond(request, CONNECT)

    assert done.status == 200
    assert b"https://login.example/logout" in done.body
    assert "Max-Age=0" in dict(done.headers)["Set-Cookie"]
    assert (await world.get(other)).status == 303


async def test_sign_ins_of_one_address_are_limited(world: World) -> None:
    """Each one calls the provider."""
    sent = {"host": "console.example", "cookie": "__Host-orchid-login=a.Lw=="}

    found = [
        await world.sign_in.respond(
            WebRequest("GET", "/callback", {}, sent, address=f"192.0.2.1:{port}"), CONNECT
        )
        for port in range(11)
    ]

    assert [one.status for one in found] == [403] * 10 + [429]


async def test_sign_ins_of_one_network_are_limited(world: World) -> None:
    """An IPv6 client has a whole /64 of addresses."""
    sent = {"host": "console.example", "cookie": "__Host-orchid-login=a.Lw=="}

    found = [
        await world.sign_in.respond(
            WebRequest("GET", "/callback", {}, sent, address=f"[2001:db8::{number:x}]:1"), CONNECT
        )
        for number in range(11)
    ]

    assert [one.status for one in found] == [403] * 10 + [429]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": ""}, 403),
        ({}, 200),
    ],
)
async def test_forged_forms_and_other_hosts_are_refused(
    world: World, headers: dict[str, str], status: int
) -> None:
    """With the cookie of the session: nothing is signed out."""
    cookie = await world.begin()
    sent = {"host": "console.example", "cookie": cookie, **OWN, **headers}

    found = await world.sign_in.respond(WebRequest("POST", "/out", {}, sent), CONNECT)

    assert found.status == status
    assert (len(world.stored.objects) == 1) == (status != 200)
    assert "default-src 'none'" in dict(found.headers)["Content-Security-Policy"]
    assert dict(found.headers)["Strict-Transport-Security"] == "max-age=31536000"
