"""Watches over WebSocket, as a page in a browser opens them; the client is aiohttp's."""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import Server, running_server

PLACE = "/api/v1/namespaces/sockets/serviceaccounts"
TOKEN = "admin-token-0001"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ORIGIN = "https://console.example.test"
SECONDS = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("sockets") / "data"
    with running_server(place, "--token-auth-file", str(TOKENS), "--controllers", "") as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    tls = ssl.create_default_context(cafile=str(server.data_dir / "ca.crt"))
    connector = aiohttp.TCPConnector(ssl=tls)
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(server.url, connector=connector, timeout=timeout) as session:
        yield session


def as_subprotocol(token: str) -> str:
    text = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return f"base64url.bearer.authorization.orch.io.{text}"


async def make(client: aiohttp.ClientSession, name: str) -> None:
    async with client.post(PLACE, json={"metadata": {"name": name}}, headers=BEARER) as made:
        assert made.status == 201, await made.text()


async def event(socket: aiohttp.ClientWebSocketResponse) -> tuple[str, str]:
    text = await socket.receive_str(timeout=SECONDS)
    assert text.endswith("\n")
    event = json.loads(text)
    return event["type"], event["object"]["metadata"]["name"]


def selected(name: str) -> str:
    return f"{PLACE}?watch=true&fieldSelector=metadata.name%3D{name}"


async def test_one_frame_for_each_event(client: aiohttp.ClientSession) -> None:
    """Existing objects come first, each in its own frame; then the changes."""
    for name in ("first", "second"):
        await make(client, name)

    async with client.ws_connect(f"{PLACE}?watch=true", origin=ORIGIN, headers=BEARER) as socket:
        seen = [await event(socket) for _ in range(2)]
        await make(client, "third")
        seen.append(await event(socket))

    assert seen == [("ADDED", "first"), ("ADDED", "second"), ("ADDED", "third")]


async def test_token_as_a_subprotocol(client: aiohttp.ClientSession) -> None:
    """A page can send no header; its token travels as a subprotocol, and another is chosen."""
    await make(client, "page")
    protocols = (as_subprotocol(TOKEN), "events")

    async with client.ws_connect(selected("page"), origin=ORIGIN, protocols=protocols) as socket:
        assert await event(socket) == ("ADDED", "page")
        assert socket.protocol == "events"


async def test_client_messages_are_ignored_and_pings_answered(
    client: aiohttp.ClientSession,
) -> None:
    """Messages of the client do not interrupt the events."""
    await make(client, "quiet")

    async with client.ws_connect(
        selected("quiet"), origin=ORIGIN, headers=BEARER, autoping=False
    ) as socket:
        assert await event(socket) == ("ADDED", "quiet")
        await socket.send_str("x" * 100_000)
        await socket.ping(b"there?")
        answer = await socket.receive(timeout=SECONDS)
        async with client.delete(f"{PLACE}/quiet", headers=BEARER) as gone:
            assert gone.status == 200
        deleted = await event(socket)

    assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"there?")
    assert deleted == ("DELETED", "quiet")


async def test_end_of_time_closes_properly(client: aiohttp.ClientSession) -> None:
    """A watch whose time is up says goodbye."""
    target = f"{selected('nobody')}&timeoutSeconds=1"

    async with client.ws_connect(target, origin=ORIGIN, headers=BEARER) as socket:
        last = await socket.receive(timeout=SECONDS)

    assert (last.type, last.data) == (aiohttp.WSMsgType.CLOSE, 1000)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"headers": BEARER}, 403),
        ({"headers": BEARER, "origin": ORIGIN, "protocols": ("one", "two")}, 400),
        ({"origin": ORIGIN, "protocols": (as_subprotocol(TOKEN),)}, 401),
        ({"origin": ORIGIN, "protocols": (as_subprotocol("wrong"), "events")}, 401),
        ({"origin": ORIGIN}, 401),
    ],
    ids=["no origin", "two protocols", "token alone", "wrong token", "nobody"],
)
async def test_refusals(client: aiohttp.ClientSession, more: Any, status: int) -> None:
    """Without an origin, with a choice of protocols, or without a right there is no socket."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(selected("nobody"), **more)

    assert refused.value.status == status


async def test_other_requests_do_not_upgrade(client: aiohttp.ClientSession) -> None:
    """An upgrade request on another path gets the ordinary answer."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(PLACE, origin=ORIGIN, headers=BEARER)

    assert refused.value.status == 200
