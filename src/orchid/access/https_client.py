"""Calls to others over HTTPS: webhooks and published keys.

Start with `Remote` (where, whom to trust, what to show) and `HttpsClient`. A kubeconfig file is
made a Remote by `read_kubeconfig`. One request per connection, HTTP/1.1, always TLS with a verified
name. Never follows a redirect: whoever answers could send our credentials elsewhere. Never reads
more than a stated size, never waits longer than a stated time. No text of an error holds a
credential or what was sent or received.

    OutboundFailed
    ├── OutboundUnreachable   no connection, or it broke: trying again may help
    ├── TimedOut              no complete answer in time
    └── OutboundRefused       an answer that we cannot use; has the status, and when to try again
"""

import asyncio
import functools
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httptools

from orchid.credentials.secret import SecretValue
from orchid.outbound import kubeconfig, tls
from orchid.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.outbound.tls import UnusableTls
from orchid.version import __version__

T = TypeVar("T")

TIMEOUT = 30.0
MAX_ANSWER = 1 << 20
MAX_HEAD = 64 * 1024
MAX_HEADERS = 128
LONGEST_RETRY_AFTER = 30.0

_OK = range(200, 300)
_REDIRECT = range(300, 400)
_RETRIED = (429, 500, 504)
_HTTPS_PORT = 443


class InvalidRemote(ValueError):
    """An address or a kubeconfig file that cannot be used; the text says what to change."""


class OutboundFailed(Exception):
    """The call did not bring a usable answer."""

    can_retry = False
    retry_after: float = 0.0


class OutboundUnreachable(OutboundFailed):
    can_retry = True


class TimedOut(OutboundFailed):
    pass


class OutboundRefused(OutboundFailed):
    def __init__(self, text: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after
        self.can_retry = status in _RETRIED or retry_after > 0


@dataclass(frozen=True)
class Remote:
    """A server to call: its address, the TLS settings, and the credential to show."""

    url: str
    tls: ssl.SSLContext = field(repr=False, compare=False)
    server_name: str = ""  # the name on its certificate, when it is not the one in the address
    bearer: Callable[[], SecretValue] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_unfit_url(self.url)


async def patiently(
    call: Callable[[], Awaitable[T]],
    *,
    attempts: int = 5,
    pause: float = 0.5,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> T:
    """Make a call; while that may help, make it again after pauses that grow by half."""
    for left in range(attempts - 1, -1, -1):
        try:
            return await call()
        except OutboundFailed as failure:
            if not failure.can_retry or not left:
                raise
            # Jitter, so that many callers do not come back in the same instant.
            jitter = pause * (1 + 0.2 * random.random())  # noqa: S311 - no secret
            await sleep(max(jitter, min(failure.retry_after, LONGEST_RETRY_AFTER)))
        pause *= 1.5
    raise AssertionError("the last attempt returns or raises")


class HttpsClient:
    """Make single requests to one remote."""

    def __init__(
        self, remote: Remote, *, timeout: float = TIMEOUT, max_answer: int = MAX_ANSWER
    ) -> None:
        self._remote = remote
        self._timeout = timeout
        self._max_answer = max_answer
        parts = urlsplit(remote.url)
        assert parts.hostname is not None  # refuse_unfit_url saw to it
        self._host = parts.hostname
        self._port = parts.port or _HTTPS_PORT
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._authority = parts.netloc.rpartition("@")[2]

    async def get(self) -> bytes:
        """Fetch a document; anything but a 200 raises OutboundRefused."""
        return await self._call("GET", b"")

    async def post(self, body: bytes) -> bytes:
        """Send JSON, give the body of the answer; anything but a 2xx raises OutboundRefused."""
        return await self._call("POST", body)

    async def post_patiently(
        self,
        body: bytes,
        *,
        attempts: int = 5,
        pause: float = 0.5,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> bytes:
        """Send JSON; while that may help, try again (`patiently`)."""
        call = functools.partial(self.post, body)
        return await patiently(call, attempts=attempts, pause=pause, sleep=sleep)

    async def _call(self, method: str, body: bytes) -> bytes:
        # A handler is first driven without a task of its own, which a timeout needs.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._exchange(method, body)
        except TimeoutError:
            raise TimedOut(f"no answer within {self._timeout:g} seconds") from None
        except ssl.SSLError as error:
            raise OutboundRefused(f"TLS failed: {error.reason or 'handshake'}") from None
        except OSError as error:
            raise OutboundUnreachable(f"connection failed: {error.strerror or 'closed'}") from None
        return answer.usable()

    async def _exchange(self, method: str, body: bytes) -> "_Answer":
        reader, writer = await asyncio.open_connection(
            self._host,
            self._port,
            ssl=self._remote.tls,
            server_hostname=self._remote.server_name or self._host,
        )
        try:
            writer.write(self._head(method, body) + body)
            await writer.drain()
            answer = _Answer(self._max_answer)
            while not answer.complete:
                data = await reader.read(64 * 1024)
                answer.take(data)
            return answer
        finally:
            # A polite TLS farewell could take for ever; the answer is here.
            writer.transport.abort()

    def _head(self, method: str, body: bytes) -> bytes:
        lines = [
            f"{method} {self._target} HTTP/1.1",
            f"Host: {self._authority}",
            f"User-Agent: orchid/{__version__}",
            "Accept: application/json",
            "Connection: close",
        ]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self._remote.bearer is not None:
            lines.append(f"Authorization: Bearer {self._remote.bearer().reveal()}")
        return "\r\n".join((*lines, "", "")).encode("ascii")


class _Answer:
    """Collect one answer within limits; the parser calls the `on_` methods."""

    def __init__(self, max_body: int) -> None:
        self.complete = False
        self._parser: Any = httptools.HttpResponseParser(self)
        self._max_body = max_body
        self._body = bytearray()
        self._head_done = False
        self._head_bytes = 0
        self._header_count = 0
        self._headers: dict[bytes, bytes] = {}

    def take(self, data: bytes) -> None:
        if not data:
            self._end()
            return
        if not self._head_done:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD + self._max_body:
                raise OutboundRefused("the head of the answer is too long")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # Our own refusals come out of the callbacks wrapped.
            if isinstance(error.__context__, OutboundRefused):
                raise error.__context__ from None
            raise OutboundRefused("the answer is not HTTP") from None

    def usable(self) -> bytes:
        status = self._parser.get_status_code()
        if status in _OK:
            return bytes(self._body)
        if status in _REDIRECT:
            raise OutboundRefused(
                f"answered with a redirect ({status}), which is not followed", status
            )
        retry_after = _seconds(self._headers.get(b"retry-after", b""))
        raise OutboundRefused(f"answered with status {status}", status, retry_after)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise OutboundRefused("the answer has too many headers")
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._max_body:
            raise OutboundRefused(f"the answer is larger than {self._max_body} bytes")
        self._body += data

    def on_message_complete(self) -> None:
        # An interim answer (1xx) is followed by the real one.
        self.complete = self._parser.get_status_code() >= _OK.start

    def _end(self) -> None:
        framed = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if not self._head_done or framed:
            raise OutboundUnreachable("the connection was closed before the answer was complete")
        self.complete = True


def refuse_unfit_url(url: str) -> None:
    """Only https, with a host, without credentials or anything that never reaches the server."""
    try:
        parts = urlsplit(url)
        fit = parts.scheme == "https" and parts.hostname and parts.port != 0
    except ValueError:
        fit = False
    if not fit or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidRemote(f"{url!r} is not an https address")
    if parts.username or parts.password or parts.fragment:
        raise InvalidRemote("an address may not hold credentials or a fragment")


def trusting(authorities: str = "") -> ssl.SSLContext:
    """TLS settings that trust these PEM authorities, or the system's when there are none."""
    try:
        return tls.trusting(authorities)
    except UnusableTls as problem:
        raise InvalidRemote(str(problem)) from None


def read_kubeconfig(path: Path) -> Remote:
    """Make a Remote of the current context of a kubeconfig file."""
    try:
        access = kubeconfig.read([path])
        if access.insecure:
            raise InvalidRemote(f"{path}: insecure-skip-tls-verify is not supported")
        context = tls.trusting(access.authority.decode("latin-1"))
        if access.key is not None:
            tls.present(context, access.certificate, access.key.reveal().encode("latin-1"))
    except (UnusableKubeconfig, UnusableTls) as problem:
        raise InvalidRemote(f"kubeconfig {path}: {problem}") from None
    return Remote(
        url=access.server,
        tls=context,
        server_name=access.server_name,
        bearer=functools.partial(_token_of, access) if access.has_token else None,
    )


def _token_of(access: ServerAccess) -> SecretValue:
    """Read at each use: whoever rotates the file needs no restart."""
    try:
        token = access.token()
    except UnusableKubeconfig as problem:
        raise OutboundRefused(str(problem)) from None
    assert token is not None  # has_token was asked before
    return token


def _seconds(text: bytes) -> float:
    return float(text) if text.isdigit() and len(text) < 6 else 0.0  # noqa: PLR2004 - digits
