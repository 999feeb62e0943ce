"""Outbound calls over real TLS on loopback: what is sent, what is trusted, what is refused."""

import pytest
import trustme

from orchid.kernel.access.json_endpoint import JsonEndpoint
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed, ServerUnreachable, TimedOut
from orchid.kernel.outbound.remote import Remote, trusting
from tests.unit.kernel.outbound.loopback import OK, PEM, Server, serving


def remote(server: Server) -> Remote:
    return Remote(server.url, trusting(PEM))


async def no_pause(_: float) -> None:
    """Tests do not wait."""


async def test_post_sends_json_to_exactly_the_address() -> None:
    """Path and query are kept, the host is named, the body is whole."""
    async with serving(OK) as server:
        answer = await JsonEndpoint(remote(server)).post(b'{"a":1}')

    assert answer == b"{}"
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook?x=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port)
    assert b"Content-Type: application/json" in head
    assert body == b'{"a":1}'


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
    ],
)
async def test_every_framing_of_an_answer_is_read(answer: bytes) -> None:
    """Chunks, the end of the connection, and an interim answer before the real one."""
    async with serving(answer) as server:
        assert await JsonEndpoint(remote(server)).get() == b"{}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_never_followed(status: int) -> None:
    """Our credentials go to the configured address and nowhere else."""
    async with serving(OK) as elsewhere:
        redirect = (
            f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n"
        )
        async with serving(redirect.encode()) as server:
            with pytest.raises(AnswerRefused, match="redirect"):
                await JsonEndpoint(remote(server)).post(b"{}")

    assert elsewhere.requests == []


async def test_server_with_an_unknown_certificate_is_not_spoken_to() -> None:
    """Nothing is sent before the server has proven its name."""
    async with serving(OK) as server:
        stranger = Remote(server.url, trusting(trustme.CA().cert_pem.bytes().decode()))

        with pytest.raises(AnswerRefused, match="TLS failed"):
            await JsonEndpoint(stranger).post(b"{}")

    assert server.requests == []


async def test_server_with_another_name_is_not_spoken_to() -> None:
    """The certificate has to be for the host we meant."""
    async with serving(OK) as server:
        other = Remote(server.url, trusting(PEM), server_name="other.example")

        with pytest.raises(CallFailed):
            await JsonEndpoint(other).post(b"{}")

    assert server.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 5000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_unusable_answer_is_refused_within_limits(answer: bytes) -> None:
    """Too large, too many headers, no HTTP, not a success."""
    async with serving(answer) as server:
        with pytest.raises(CallFailed):
            await JsonEndpoint(remote(server), max_answer=1000).get()


async def test_answer_cut_short_is_no_answer() -> None:
    """Half a body is not taken for a whole one."""
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}") as server:
        with pytest.raises(ServerUnreachable):
            await JsonEndpoint(remote(server)).get()


async def test_silent_server_is_given_up() -> None:
    """A server that accepts and then says nothing costs its time and no more."""
    async with serving(None) as server:
        with pytest.raises(TimedOut):
            await JsonEndpoint(remote(server), timeout=0.05).get()


async def test_nobody_listening_is_unreachable() -> None:
    """A refused connection may be tried again."""
    async with serving(OK) as server:
        pass

    with pytest.raises(ServerUnreachable):
        await JsonEndpoint(remote(server)).get()


async def test_patient_post_tries_again_while_that_may_help() -> None:
    """An overloaded server is asked again, after the pause it asks for."""
    busy = b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    broken = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with serving(busy, broken, OK) as server:
        assert await JsonEndpoint(remote(server)).post_patiently(b"{}", sleep=pause) == b"{}"

    assert pauses[0] == 7
    assert 0.75 <= pauses[1] <= 0.9


async def test_patient_post_gives_up_after_its_attempts_and_on_hopeless_answers() -> None:
    """Five times for what may pass, once for what will not."""
    async with serving(b"HTTP/1.1 504 Slow\r\nContent-Length: 0\r\n\r\n") as slow:
        with pytest.raises(AnswerRefused):
            await JsonEndpoint(remote(slow)).post_patiently(b"{}", sleep=no_pause)
    async with serving(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n") as strict:
        with pytest.raises(AnswerRefused):
            await JsonEndpoint(remote(strict)).post_patiently(b"{}", sleep=no_pause)

    assert len(slow.requests) == 5
    assert len(strict.requests) == 1
