"""The client's verbs and its following, against a real server in memory and over TLS."""

import asyncio
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.rights.kinds.role import ClusterRole
from orchid.kernel.client import client as client_module
from orchid.kernel.client.client import ADDED, DELETED, LISTED, MODIFIED, Client, ListSelection
from orchid.kernel.credentials.secret import SecretValue as Hidden
from orchid.kernel.http.messages import Chunk, HttpRequest, Peer, Response
from orchid.kernel.outbound.failures import CallFailed, TimedOut
from orchid.kernel.outbound.https_client import HttpsClient
from orchid.kernel.outbound.remote import InvalidRemote, Remote, read_kubeconfig
from orchid.kernel.server.in_process import transport as in_process
from orchid.kernel.server.in_process.transport import InProcessTransport, _Reading
from orchid.kernel.wire.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
)
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.beside import PATIENCE, Beside, beside


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client") / "data"


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


@pytest.fixture(params=["in process", "over TLS"])
async def client(world: Beside, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """The same client by either way; every test holds for both."""
    if request.param == "in process":
        yield world.admin
        return
    listener = world.server.listener()
    await listener.start("127.0.0.1", 0)
    port = listener.port
    transport = over_tls(world, port)
    try:
        yield Client(transport, world.admin.catalog)
    finally:
        await transport.close()
        await listener.drain(0.0)


def over_tls(world: Beside, port: int) -> HttpsClient:
    """The client's way over TLS to a listener of this server, as its administrator."""
    found = read_kubeconfig(world.server.files.kubeconfig)
    here = dataclasses.replace(found, url=f"https://127.0.0.1:{port}")
    return HttpsClient(here, max_answer=256 << 20, keeps=4, user_agent="tests/1")


def config(name: str, namespace: str = "default", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


async def test_object_is_created_read_changed_and_deleted(client: Client) -> None:
    """Create and patch give the object as the server has it now."""
    made = await client.create(config("c", key="one"))
    await client.update(replace(made, data={"key": "two"}))
    changed = await client.get(ConfigMap, "c", "default")
    patched = await client.patch(ConfigMap, "c", "default", {"data": {"more": "x"}})
    read = await client.get(ConfigMap, "c", "default")
    await client.delete(ConfigMap, "c", "default", uid=made.metadata.uid)

    assert changed.data == {"key": "two"}
    assert patched.data == {"key": "two", "more": "x"}
    assert read == patched
    assert await client.find(ConfigMap, "c", "default") is None


async def test_refusals_come_back_as_the_errors_they_were(client: Client) -> None:
    """With the server's own words and details."""
    made = await client.create(config("c"))
    await client.update(replace(made, data={"a": "b"}))
    with pytest.raises(AlreadyExists, match='configmaps "c" already exists'):
        await client.create(config("c"))
    with pytest.raises(Conflict, match="the object has been modified"):
        await client.update(replace(made, data={"x": "y"}))
    with pytest.raises(Conflict, match="UID in the precondition"):
        await client.delete(ConfigMap, "c", "default", uid="another")
    with pytest.raises(NotFound) as missing:
        await client.get(ConfigMap, "nothing", "default")
    with pytest.raises(Invalid):
        await client.create(config("Not A Name"))

    assert missing.value.details is not None
    assert missing.value.details.name == "nothing"
    assert (await client.get(ConfigMap, "c", "default")).data == {"a": "b"}


async def test_names_with_colons_and_blanks_reach_their_object(client: Client) -> None:
    """Characters that a path must escape are escaped, and no others."""
    for name in ("system:odd", "with blank", "a?b=c#d", "ü"):
        await client.create(ClusterRole(metadata=ObjectMeta(name=name)))

        assert (await client.get(ClusterRole, name)).name == name


async def test_scan_reads_every_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, however small the pages."""
    monkeypatch.setattr(client_module, "PAGE", 2)
    names = [f"c{number}" for number in range(5)]
    for name in names:
        await client.create(config(name))

    found = [one.name async for one in client.scan(ListSelection(ConfigMap, "default"))]

    assert found == names


async def test_follow_yields_existing_objects_and_changes(client: Client) -> None:
    """Listed objects, an empty batch, then every event in order."""
    await client.create(config("old"))
    batches = client.follow(ListSelection(ConfigMap, "default", read_as=Object))
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(PATIENCE):
        async for batch in batches:
            seen += [(event.type, event.object.name) for event in batch]
            if not batch:
                new = await client.create(config("new"))
                await client.update(replace(new, data={"a": "b"}))
                await client.delete(ConfigMap, "new", "default")
            if len(seen) == 4:
                break
    await batches.aclose()

    assert seen == [(LISTED, "old"), (ADDED, "new"), (MODIFIED, "new"), (DELETED, "new")]


async def test_follow_without_existing_objects_yields_only_changes(client: Client) -> None:
    """For those who care about changes alone."""
    await client.create(config("old"))
    batches = client.follow(ListSelection(ConfigMap, "default", existing=False))
    async with asyncio.timeout(PATIENCE):
        assert await anext(batches) == []
        await client.delete(ConfigMap, "old", "default")
        (event,) = await anext(batches)
    await batches.aclose()

    assert (event.type, event.object.name) == (DELETED, "old")


async def test_those_who_follow_in_process_share_what_is_decoded(world: Beside) -> None:
    """An event is the server's own object, decoded once; parts of it are read from its bytes."""
    wanted = (
        ListSelection(ConfigMap, "default", existing=False),
        ListSelection(ConfigMap, fields="metadata.name=c", existing=False),
        ListSelection(ConfigMap, "default", existing=False, read_as=Object),
    )
    listeners = world.server.feed.of(ConfigMap).listeners
    before = len(listeners)
    followers = [world.admin.follow(one) for one in wanted]
    async with asyncio.timeout(PATIENCE):
        assert [await anext(one) for one in followers] == [[], [], []]
        waiting = [asyncio.ensure_future(anext(one)) for one in followers]
        while len(listeners) < before + len(wanted):  # noqa: ASYNC110 -- until all of them watch
            await asyncio.sleep(0)
        made = await world.admin.create(config("c", key="one"))
        [whole], [selected], [part] = [await one for one in waiting]
    for one in followers:
        await one.aclose()

    assert [event.type for event in (whole, selected, part)] == [ADDED] * 3
    assert whole.object == made
    assert whole.object is selected.object
    assert type(part.object) is Object
    assert part.object.metadata == made.metadata


async def test_caller_without_rights_is_refused_by_name(world: Beside) -> None:
    """In-process requests are authenticated, too."""
    nobody = world.server.clients.of_user(UserInfo(username="nobody"))

    with pytest.raises(Forbidden, match='User "nobody" cannot create resource "configmaps"'):
        await nobody.create(config("c"))


async def test_peer_that_nobody_introduced_is_not_let_in(world: Beside) -> None:
    """Being in the same process proves nothing; only the very object does."""
    stranger = Client(InProcessTransport(world.server.chain, Peer(""), "x"), world.admin.catalog)

    with pytest.raises(Unauthorized):
        await stranger.get(ConfigMap, "c", "default")


async def test_what_is_sent_in_process_is_on_record(tmp_path: Path) -> None:
    """The server takes the object as it is, and audit records it as that of anybody."""
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text("apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: Request}]\n")
    audit = {"audit_policy_file": str(policy), "audit_log_path": str(log)}

    async with beside(tmp_path / "data", **audit) as world:
        made = await world.admin.create(ClusterRole(metadata=ObjectMeta(name="c")))
        await world.admin.update(made.with_meta(labels={"a": "b"}))

    recorded = [json.loads(line) for line in log.read_text().splitlines()]
    assert [
        (event["verb"], event["user"]["username"], event["requestObject"]["metadata"].get("labels"))
        for event in recorded
        if event["stage"] == "ResponseComplete" and event["objectRef"].get("name") == "c"
    ] == [("create", "admin", None), ("update", "admin", {"a": "b"})]


async def test_call_in_process_never_hangs_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that gets no answer ends by itself, also one begun after another was answered."""
    monkeypatch.setattr(in_process, "TIMEOUT", 0.01)

    async def asked(http: HttpRequest) -> Response:
        if http.path != "/answered":
            await asyncio.get_running_loop().create_future()
        return Response(200)

    transport = InProcessTransport(asked, Peer(""), "x")
    async with asyncio.timeout(PATIENCE):
        answered = await transport.send("GET", "/answered")
        two = [transport.send("GET", "/a"), transport.send("GET", "/b")]
        ended = await asyncio.gather(*two, return_exceptions=True)
        with pytest.raises(TimedOut, match=r"no answer within 0\.01 seconds"):
            await transport.send("GET", "/c")

    assert answered.status == 200
    assert [type(one) for one in ended] == [TimedOut, TimedOut]


async def test_call_in_process_that_is_cancelled_is_not_late() -> None:
    """Cancelling a controller raises CancelledError."""

    async def asked(_: HttpRequest) -> Response:
        await asyncio.get_running_loop().create_future()
        return Response(200)

    task = asyncio.create_task(InProcessTransport(asked, Peer(""), "x").send("GET", "/a"))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_unread_stream_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded also where no socket pushes back."""
    monkeypatch.setattr(in_process, "MAX_UNREAD", 10)
    reading = _Reading()
    for _ in range(3):
        reading.send(Chunk(b"12345678"))

    assert reading.closed
    pieces = reading.pieces()
    assert [await anext(pieces), await anext(pieces)] == [b"12345678", b"12345678"]
    with pytest.raises(CallFailed):
        await anext(pieces)


async def test_connections_are_kept_and_replaced_when_the_server_dropped_them(
    world: Beside,
) -> None:
    """The second request needs no new handshake; a dropped connection is no failure."""
    listener = world.server.listener()
    await listener.start("127.0.0.1", 0)
    port = listener.port
    transport = over_tls(world, port)
    client = Client(transport, world.admin.catalog)

    await client.find(ConfigMap, "a", "default")
    (first,) = transport._idle
    await client.find(ConfigMap, "a", "default")
    (second,) = transport._idle
    assert first is second
    first._stream._writer.transport.abort()
    await client.find(ConfigMap, "a", "default")
    await listener.drain(0.0)
    with pytest.raises(CallFailed):
        await client.find(ConfigMap, "a", "default")
    await transport.close()

    assert second is first


async def test_server_with_an_unknown_certificate_gets_no_credential(world: Beside) -> None:
    """The handshake fails before anything is sent."""
    listener = world.server.listener()
    await listener.start("127.0.0.1", 0)
    port = listener.port
    asked = []

    def bearer() -> Hidden:
        asked.append(1)
        return Hidden("secret-token")

    stranger = Remote(f"https://127.0.0.1:{port}", ssl.create_default_context(), bearer=bearer)
    transport = HttpsClient(stranger, max_answer=1 << 20)

    with pytest.raises(CallFailed, match="TLS failed") as failure:
        await Client(transport, world.admin.catalog).get(ConfigMap, "a", "default")
    await listener.drain(0.0)

    assert "secret-token" not in str(failure.value)


def test_address_that_is_not_https_is_refused() -> None:
    """A credential is never sent in the clear."""
    with pytest.raises(InvalidRemote, match="is not an https address"):
        Remote("http://127.0.0.1:1", ssl.create_default_context())
