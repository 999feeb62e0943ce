"""One connection, many requests: each is its own caller's (CVE-2018-1002105, Kludex/uvicorn#745).

Over real TLS sockets: the certificate of the connection, tokens that come and go on it, requests
to upgrade it, and time that passes while it is open.
"""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchid.kernel.http.messages import HttpRequest, Response
from tests.api.world import ADMIN, BOB, api
from tests.security.certified import HOUR, Certified, cluster_authority, issued, other_authority
from tests.security.listening import ACCOUNTS, asked, bearer, listening
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.http.listening import Running, serving, until


async def test_every_request_of_a_connection_is_authenticated(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """The identity of an administrator does not stay for the next request."""
    client = await open_server.connect(trust)

    lines = [[bearer(ADMIN)], [], [bearer(BOB)], [bearer("wrong")], [bearer(ADMIN)], []]
    statuses = [await asked(client, *line) for line in lines]

    assert statuses == [200, 401, 403, 401, 200, 401]
    assert open_server.listener.connections == 1


async def test_pipelined_requests_do_not_share_an_identity(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """Sent in one piece, they are still three callers."""
    client = await open_server.connect(trust)
    head = f"GET {ACCOUNTS} HTTP/1.1\r\nHost: test\r\n"
    client.send(f"{head}{bearer(ADMIN)}\r\n\r\n{head}\r\n{head}{bearer(BOB)}\r\n\r\n".encode())

    statuses = [(await client.answer()).status for _ in range(3)]

    assert statuses == [200, 401, 403]


async def test_a_method_is_of_one_request_alone(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """Behind a method that nobody knows, a delete is a delete and a list is a list."""
    client = await open_server.connect(trust)
    head = f"{ACCOUNTS} HTTP/1.1\r\nHost: test\r\n{bearer(ADMIN)}\r\n\r\n"
    client.send(f"BREW {head}GET {head}BREW {head}PURGE {head}DELETE {head}GET {head}".encode())

    answers = [await client.answer() for _ in range(6)]

    assert [answer.status for answer in answers] == [405, 200, 405, 405, 200, 200]


async def test_the_end_of_a_method_is_no_method(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """An unknown method that a proxy passes on in two parts deletes nothing."""
    client, other = await open_server.connect(trust), await open_server.connect(trust)
    client.send(b"GET_")
    await asked(other, bearer(ADMIN))  # by now the first part has been read
    client.send(f"DELETE {ACCOUNTS} HTTP/1.1\r\nHost: test\r\n{bearer(ADMIN)}\r\n\r\n".encode())

    assert (await client.answer()).status == 400


async def test_half_a_preface_of_http2_holds_nobody_up(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """A stranger's 29 bytes in two parts, once read in circles: the others are answered."""
    client, other = await open_server.connect(trust), await open_server.connect(trust)
    client.send(b"PRI * HTTP/2.0")
    await asked(other, bearer(ADMIN))
    client.send(b"\r\n\r\nSM\r\r\nSM\r\n\r\n")

    assert await asked(other, bearer(ADMIN)) == 200
    assert await client.reader.read() == b""


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "SPDY/3.1", "TLS/1.2"])
async def test_a_refused_upgrade_opens_no_way_around_authentication(
    protocol: str, open_server: Running, trust: ssl.SSLContext
) -> None:
    """After an upgrade that came to nothing, the next request on the connection is a stranger's."""
    client = await open_server.connect(trust)
    upgrade = ("Connection: Upgrade", f"Upgrade: {protocol}")

    refused = await asked(client, *upgrade, bearer(BOB), target=f"{ACCOUNTS}/x/token")
    client.get(ACCOUNTS)
    rest = b"" if client.reader.at_eof() else await client.reader.read(12)

    assert refused in (400, 403, 404, 405)
    assert rest in (b"", b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("who", "status"), [("ours", 403), ("none", 401), ("strange", 401), ("expired", 401)]
)
async def test_a_client_certificate_is_judged_end_to_end(
    who: str, status: int, open_server: Running, server_files: Path, tmp_path: Path
) -> None:
    """Ours is a user without rights; absent, of another authority or expired it is nobody."""
    authority = cluster_authority(server_files)
    past = datetime.now(UTC) - timedelta(hours=3)
    certified: dict[str, Certified | None] = {
        "ours": issued(authority, "jane"),
        "none": None,
        "strange": issued(other_authority(), "jane", "system:masters"),
        "expired": issued(authority, "jane", "system:masters", lifetime=HOUR, now=past),
    }
    shown = certified[who]
    trusting = ssl.create_default_context(cafile=server_files / "ca.crt")
    context = shown.context(tmp_path, server_files / "ca.crt") if shown else trusting
    client = await open_server.connect(context)

    assert await asked(client) == status


async def test_a_certificate_that_expires_is_refused_on_its_open_connection(
    open_server: Running, server_files: Path, tmp_path: Path, clock: MovingClock
) -> None:
    """The handshake is long over; the time is looked at in every request."""
    admin = issued(cluster_authority(server_files), "root", "system:masters")
    client = await open_server.connect(admin.context(tmp_path, server_files / "ca.crt"))

    before = await asked(client)
    clock.ahead += timedelta(hours=2)
    after = await asked(client)

    assert (before, after) == (200, 401)


async def test_a_removed_authority_ends_its_certificates_on_open_connections(
    server_files: Path, tmp_path: Path
) -> None:
    """Certificates of a removed authority are refused without a restart."""
    ours, theirs = tmp_path / "clients.crt", other_authority("theirs")
    ours.write_bytes(theirs.certificate_pem)
    admin = issued(theirs, "root", "system:masters")
    async with api(server_files, client_ca_file=str(ours)) as server, listening(server) as running:
        client = await running.connect(admin.context(tmp_path, server_files / "ca.crt"))
        before = await asked(client)
        ours.write_bytes(other_authority("new").certificate_pem)
        after = await asked(client)

    assert (before, after) == (200, 401)


async def test_after_a_request_that_took_long_others_go_first() -> None:
    """Eight pipelined requests that take 20 ms each do not hold the event loop eight times."""
    seen: list[str] = []
    other: list[socket.socket] = []
    now = 0.0

    async def slow(request: HttpRequest) -> Response:
        nonlocal now
        if not seen:
            other[0].sendall(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n")
        seen.append(request.path)
        now += 0.02
        return Response(200)

    async with serving(slow) as running:
        running.listener._service.monotonic = lambda: now
        many = await running.connect()
        other.append(socket.create_connection(("127.0.0.1", running.listener.port)))
        await until(lambda: running.listener.connections == 2)
        many.send(b"GET /many HTTP/1.1\r\nHost: h\r\n\r\n" * 40)
        for _ in range(40):
            await many.answer()
        other[0].close()

    assert seen.count("/many") == 40
    assert seen.index("/other") < 8
