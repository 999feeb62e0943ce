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
import base64
import binascii
import functools
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httptools
import yaml

from orchid.credentials.files import read_bounded, read_private
from orchid.credentials.refusals import Refusal
from orchid.credentials.secret import SecretValue
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
        context = ssl.create_default_context(cadata=authorities or None)
    except (ssl.SSLError, ValueError):
        raise InvalidRemote("the authorities are not certificates in PEM form") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have connections show a client certificate."""
    # The library takes paths only; memory files keep the key off every disk.
    with _memory_file(certificate) as certificate_path, _memory_file(key) as key_path:
        try:
            context.load_cert_chain(certificate_path, key_path, password=lambda: "")
        except (ssl.SSLError, OSError, ValueError):
            raise InvalidRemote("client certificate and key do not belong together") from None


def read_kubeconfig(path: Path) -> Remote:
    """Make a Remote of the current context of a kubeconfig file."""
    place = f"kubeconfig {path}"
    try:
        document = yaml.safe_load(read_bounded(path))
    except Refusal as refusal:
        raise InvalidRemote(str(refusal)) from None
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError):
        raise InvalidRemote(f"{place} is not readable YAML") from None
    config = _Kubeconfig(document, path.parent, place)
    return config.remote()


class _Kubeconfig:
    """The parts of one kubeconfig file that make up a call."""

    def __init__(self, document: Any, folder: Path, place: str) -> None:
        if not isinstance(document, dict):
            raise InvalidRemote(f"{place} is not a mapping")
        self._document = document
        self._folder = folder
        self._place = place

    def remote(self) -> Remote:
        context = self._named("contexts", "context", self._text(self._document, "current-context"))
        cluster = self._named("clusters", "cluster", self._text(context, "cluster"))
        user_name = self._text(context, "user")
        user = self._named("users", "user", user_name) if user_name else {}
        self._refuse_unsupported(cluster, user)
        tls = trusting((self._data(cluster, "certificate-authority") or b"").decode("latin-1"))
        certificate = self._data(user, "client-certificate")
        key = self._data(user, "client-key", private=True)
        if (certificate is None) != (key is None):
            raise InvalidRemote(f"{self._place} needs both client-certificate and client-key")
        if certificate is not None and key is not None:
            present(tls, certificate, key)
        return Remote(
            url=self._text(cluster, "server"),
            tls=tls,
            server_name=self._text(cluster, "tls-server-name"),
            bearer=self._bearer(user),
        )

    def _named(self, listing: str, member: str, name: str) -> dict[str, Any]:
        entries = self._document.get(listing)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                found = entry.get(member)
                if isinstance(found, dict):
                    return found
        raise InvalidRemote(f"{self._place} has no {member} named {name!r}")

    def _refuse_unsupported(self, cluster: dict[str, Any], user: dict[str, Any]) -> None:
        for where, word in (
            (cluster, "insecure-skip-tls-verify"),
            (cluster, "proxy-url"),
            (user, "exec"),
            (user, "auth-provider"),
            (user, "username"),
        ):
            if where.get(word):
                raise InvalidRemote(f"{self._place}: {word} is not supported")

    def _text(self, where: Mapping[str, Any], word: str) -> str:
        value = where.get(word) or ""
        if not isinstance(value, str):
            raise InvalidRemote(f"{self._place}: {word} is not a string")
        return value

    def _data(self, where: Mapping[str, Any], word: str, *, private: bool = False) -> bytes | None:
        """The bytes given inline as `word-data`, else in the file that `word` names."""
        inline = self._text(where, f"{word}-data")
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except binascii.Error:
                raise InvalidRemote(f"{self._place}: {word}-data is not base64") from None
        name = self._text(where, word)
        if not name:
            return None
        try:
            return (read_private if private else read_bounded)(self._folder / name)
        except Refusal as refusal:
            raise InvalidRemote(f"{self._place}: {word}: {refusal}") from None

    def _bearer(self, user: dict[str, Any]) -> Callable[[], SecretValue] | None:
        token, name = self._text(user, "token"), self._text(user, "tokenFile")
        if name:
            # Read at each use: whoever rotates the file needs no restart.
            path = self._folder / name
            return lambda: _fit_token(_file_text(path))
        if token:
            try:
                secret = _fit_token(token)
            except OutboundRefused as refusal:
                raise InvalidRemote(f"{self._place}: {refusal}") from None
            return lambda: secret
        return None


def _file_text(path: Path) -> str:
    try:
        return read_bounded(path).decode("ascii", "replace")
    except Refusal as refusal:
        raise OutboundRefused(f"the token file cannot be read: {refusal}") from None


def _fit_token(text: str) -> SecretValue:
    """A token that would break the head of a request into two is none."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise OutboundRefused("the configured bearer token is not usable in a header")
    return SecretValue(token)


def _seconds(text: bytes) -> float:
    return float(text) if text.isdigit() and len(text) < 6 else 0.0  # noqa: PLR2004 - digits


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """A nameless file in memory, as a path, for as long as the block lasts."""
    descriptor = os.memfd_create("orchid", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
