"""Synchronous HTTPS calls to one API server, one after the other: status, headers and bytes.

`ApiConnection(access).send(...)` sends one request and reads the complete response within
limits of size and time: from the connection to the last byte, a call takes no longer than its
total. Nothing is retried and nothing is interpreted: commands and the agent do that, each in its
own way. `failure_reason` describes an error of the network for people.
"""

import http.client
import json
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException, HTTPMessage, IncompleteRead
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from orchid.kernel.base.version import __version__
from orchid.kernel.outbound import tls
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.kernel.outbound.time_limit import CallTooLong, TimedSocket, TimeLimit, dial
from orchid.kernel.wire.naming import SETS, Naming

LARGEST_ANSWER = 256 << 20
TIMEOUT = 30.0  # seconds without a byte
LONGEST_CALL = 300.0  # seconds for a whole call of a command; large answers may come slowly
SUCCESS = range(200, 300)
_OUT_OF_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED

FORM = "application/x-www-form-urlencoded"
Json = dict[str, Any]


class AnswerTooLarge(HTTPException):
    """The response exceeds the limit."""


class ApiReply(NamedTuple):
    """A complete response."""

    status: int
    data: bytes
    headers: HTTPMessage


def path(*parts: str) -> str:
    """A path made of names; a name cannot become part of another path."""
    return "/" + "/".join(quote(part, safe=":") for part in parts)


def decoded(data: bytes) -> Any:
    """The value of a JSON text; None if it is not JSON."""
    try:
        return json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return None


def find_naming(groups: Iterable[str]) -> Naming | None:
    """The set of names that a server with these API groups uses."""
    found = set(groups)
    return next((naming for naming in SETS.values() if naming.authentication in found), None)


class ApiConnection:
    """Requests to one server as one user, over one connection."""

    def __init__(
        self,
        access: ServerAccess,
        *,
        largest: int = LARGEST_ANSWER,
        limit: TimeLimit | None = None,
    ) -> None:
        """Raises UnusableKubeconfig or UnusableTls; nothing is sent yet."""
        parts = urlsplit(access.server)
        if parts.scheme != "https" or not parts.hostname:
            raise UnusableKubeconfig(f"{access.server!r} is not an https URL")
        self._host, self._port = parts.hostname, parts.port or 443
        self._server_name = access.server_name or parts.hostname
        self._prefix = parts.path.rstrip("/")
        self._largest = largest
        self._headers = {
            "Accept": "application/json, */*",
            "User-Agent": f"orchid/{__version__}",
            "Connection": "keep-alive",
        }
        token = access.token()
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token.reveal()}"
        self._context = _tls(access)
        self._limit = limit or TimeLimit(TIMEOUT, LONGEST_CALL)
        self._http = self._open(self._limit)

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        url: str,
        body: Json | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiReply:
        """One request, with JSON or, if the body is bytes, a form.

        Raises OSError or HTTPException, after which a new connection is opened.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**self._headers, **(headers or {})}
        if data is not None:
            sent["Content-Type"] = FORM if data is body else "application/json"
        self._limit.start()
        try:
            self._http.request(method, self._prefix + url, data, sent)
            answer = self._http.getresponse()
            content = answer.read(self._largest + 1)
            if len(content) > self._largest:
                raise AnswerTooLarge
            # A truncated response is not an error for read(), and anybody on the path can truncate
            # one.
            if answer.length:
                raise IncompleteRead(b"", answer.length)
        except (OSError, HTTPException) as error:
            self._http.close()
            if isinstance(error, TimeoutError):
                self._limit.left()  # raises if the whole call took too long
            raise
        return ApiReply(answer.status, content, answer.headers)

    def stream(self, url: str) -> Iterator[tuple[int, bytes]]:
        """The lines of an endless response, each with its status, over a connection of its own.

        A response that is not successful comes in one piece.
        """
        limit = TimeLimit(TIMEOUT, LONGEST_CALL)
        connection = self._open(limit)
        limit.start()
        try:
            connection.request("GET", self._prefix + url, headers=self._headers)
            answer = connection.getresponse()
            if answer.status not in SUCCESS:
                yield answer.status, answer.read(self._largest)
                return
            limit.lift()
            while line := answer.readline(self._largest):
                yield answer.status, line
        finally:
            connection.close()

    def _open(self, limit: TimeLimit) -> "_Https":
        return _Https(self._host, self._port, self._context, self._server_name, limit)


def failure_reason(error: Exception) -> str:
    """Why a server could not be reached, in a few words."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "; is the clock of this machine right?" if error.verify_code in _OUT_OF_TIME else ""
        return f"its certificate cannot be trusted: {error.verify_message}{hint}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or 'handshake failed'}"
    if isinstance(error, CallTooLong):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} seconds"
    if isinstance(error, socket.gaierror):
        return "the name cannot be resolved"
    if isinstance(error, OSError):
        return error.strerror or "the connection broke"
    if isinstance(error, AnswerTooLarge):
        return "it answered with more than can be read"
    if isinstance(error, IncompleteRead):
        return "its response is not complete"
    return "it does not speak HTTP"


class _Https(http.client.HTTPSConnection):
    """A connection whose certificate may be verified for another name than the dialled one."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        server_name: str,
        limit: TimeLimit,
    ) -> None:
        super().__init__(host, port, context=context)
        self._tls, self._server_name, self._limit = context, server_name, limit

    def connect(self) -> None:
        connection = dial(self.host, self.port, self._limit)
        try:
            connection.settimeout(self._limit.left())
            self.sock = self._tls.wrap_socket(connection, server_hostname=self._server_name)
        except BaseException:
            connection.close()
            raise
        assert isinstance(self.sock, TimedSocket)
        self.sock.limit = self._limit


def _tls(access: ServerAccess) -> ssl.SSLContext:
    context = tls.trusting(access.authority.decode("latin-1"))
    context.sslsocket_class = TimedSocket
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.key is not None:
        tls.present(context, access.certificate, access.key.reveal().encode("latin-1"))
    return context
