"""One server, as a command talks to it: plain calls that give what the server answered.

Start with `add_flags(parser)` and `connect(chosen)`. A call gives the decoded JSON or raises
`CommandRefused`, a Complaint whose text is for people: what the server said, and what to do about
it. A server that cannot be reached is a Complaint too, and says which address was tried and which
file named it. One connection, one call after the other; nothing is retried.
"""

import argparse
import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from orchid.commands.terminal import kubeconfig_file
from orchid.commands.terminal.kubeconfig_file import ServerAccess
from orchid.commands.terminal.output import USAGE, Complaint, printable
from orchid.version import __version__
from orchid.wire.naming import CLIENT_CONFIG, SETS, Naming

LARGEST_ANSWER = 256 << 20
PAGE = 500
TIMEOUT = 30.0
_SUCCESS = range(200, 300)
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409

Json = dict[str, Any]


class CommandRefused(Complaint):
    """The server answered, and the answer was no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def add_flags(parser: argparse.ArgumentParser, *, json_output: bool = True) -> None:
    """The flags of every command that talks to a server."""
    server = parser.add_argument_group("server")
    server.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="how to reach the server (default: $KUBECONFIG, ./orchid-data/admin.kubeconfig "
        f"or {Path('~', *CLIENT_CONFIG)}, whichever is there first)",
    )
    server.add_argument("--context", default="", help="which of its contexts to use")
    if json_output:
        parser.add_argument(
            "-o", "--output", choices=("text", "json"), default="text", help="how to show it"
        )


def connect(chosen: argparse.Namespace) -> "ServerConnection":
    """Find the server by the flags, the environment and the usual places."""
    found = kubeconfig_file.find(chosen.kubeconfig, os.environ)
    return ServerConnection(kubeconfig_file.load(found, chosen.context))


def path(*parts: str) -> str:
    """A path made of names; nothing in a name can become part of another path."""
    return "/" + "/".join(quote(part, safe=":") for part in parts)


class ServerConnection:
    """Calls to one server as one user."""

    def __init__(self, access: ServerAccess) -> None:
        self.access = access
        parts = urlsplit(access.server)
        if parts.scheme != "https" or not parts.hostname:
            raise Complaint(f"{access.source}: {access.server!r} is no https address", USAGE)
        self._prefix = parts.path.rstrip("/")
        self._headers = {
            "Accept": "application/json",
            "User-Agent": f"orchid/{__version__}",
            "Connection": "keep-alive",
        }
        if access.token is not None:
            self._headers["Authorization"] = f"Bearer {access.token.reveal()}"
        self._http = _Https(
            parts.hostname, parts.port or 443, _tls(access), access.server_name or parts.hostname
        )

    def close(self) -> None:
        self._http.close()

    # -- calls -----------------------------------------------------------------------------

    def get(self, place: str, query: Mapping[str, str] | None = None) -> Json:
        return self._json("GET", f"{place}?{urlencode(query)}" if query else place)

    def post(self, place: str, body: Json) -> Json:
        return self._json("POST", place, body)

    def put(self, place: str, body: Json) -> Json:
        return self._json("PUT", place, body)

    def delete(self, place: str) -> Json:
        return self._json("DELETE", place)

    def text(self, place: str) -> tuple[int, str]:
        """The status and text of a page that is no object."""
        status, data = self._exchange("GET", place, None)
        return status, data.decode("utf-8", "replace")

    def data(self, place: str, *, absent: int = 0) -> bytes:
        """The bytes of a page that is no object; none if the answer's status is `absent`."""
        status, data = self._exchange("GET", place, None)
        if status == absent:
            return b""
        if status not in _SUCCESS:
            raise CommandRefused(status, self._refusal(status, _decoded(data)))
        return data

    def items(self, place: str, query: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Everything in a list, page by page."""
        onwards = ""
        while True:
            asked = {**(query or {}), "limit": str(PAGE)}
            if onwards:
                asked["continue"] = onwards
            page = self.get(place, asked)
            yield from page.get("items") or ()
            onwards = page.get("metadata", {}).get("continue", "")
            if not onwards:
                return

    def count(self, place: str) -> int:
        """How many a list has, without fetching them."""
        page = self.get(place, {"limit": "1"})
        rest = page.get("metadata", {}).get("remainingItemCount") or 0
        return len(page.get("items") or ()) + int(rest)

    # -- which names it speaks -------------------------------------------------------------

    @cached_property
    def names(self) -> Naming:
        """The set of names that the server speaks, told by its API groups."""
        groups = {each.get("name") for each in self.get("/apis").get("groups", ())}
        for names in SETS.values():
            if names.authentication in groups:
                return names
        raise Complaint(f"{self.access.server} serves no API groups that this program knows")

    def group(self, word: str, version: str, *parts: str) -> str:
        """A path in one of the product's API groups."""
        return path("apis", self.names.group(word), version, *parts)

    def api_version(self, word: str, version: str) -> str:
        return f"{self.names.group(word)}/{version}"

    # -- the way there ---------------------------------------------------------------------

    def _json(self, method: str, place: str, body: Json | None = None) -> Json:
        status, data = self._exchange(method, place, body)
        value = _decoded(data)
        if status not in _SUCCESS:
            raise CommandRefused(status, self._refusal(status, value))
        if not isinstance(value, dict):
            raise Complaint(
                f"{self.access.server} did not answer with JSON; is it a server of ours?"
            )
        return value

    def _exchange(self, method: str, place: str, body: Json | None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            self._http.request(method, self._prefix + place, data, headers)
            answer = self._http.getresponse()
            found = answer.read(LARGEST_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise self._unreachable(error) from None
        if len(found) > LARGEST_ANSWER:
            self._http.close()
            raise Complaint(f"{self.access.server} answered with more than can be read")
        return answer.status, found

    def _refusal(self, status: int, value: Any) -> str:
        said = value.get("message") if isinstance(value, dict) else None
        text = printable(said or f"the server answered with status {status}")
        who = f"{self.access.user!r} of {self.access.source}"
        if status == UNAUTHORIZED:
            return (
                f"{self.access.server} does not accept the credential of {who}: it may have "
                f"expired, or belong to another server ({text})"
            )
        if status == FORBIDDEN:
            return (
                f"{text}\nYou are {who}. An administrator can permit it with a role and a "
                "binding; `orchid whoami` shows as whom the server knows you."
            )
        return text

    def _unreachable(self, error: Exception) -> Complaint:
        where = f"{self.access.server}, the server of {self.access.source}"
        if isinstance(error, ConnectionRefusedError):
            return Complaint(f"nothing listens at {where}. Start it with: orchid serve")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Complaint(
                f"the certificate of {where}, cannot be trusted: {error.verify_message}. "
                "Was the data directory made anew? Then take its new admin.kubeconfig."
            )
        if isinstance(error, ssl.SSLError):
            return Complaint(f"no TLS connection to {where}: {error.reason or 'handshake failed'}")
        if isinstance(error, TimeoutError):
            return Complaint(f"no answer within {TIMEOUT:g} seconds from {where}")
        if isinstance(error, socket.gaierror):
            return Complaint(f"the name of {where}, cannot be resolved")
        if isinstance(error, OSError):
            return Complaint(f"cannot reach {where}: {error.strerror or 'the connection broke'}")
        return Complaint(f"{where}, does not speak HTTP")


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return None


class _Https(http.client.HTTPSConnection):
    """A connection whose certificate may be checked for another name than the one dialled."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, server_name: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT, context=tls)
        self._tls, self._server_name = tls, server_name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _tls(access: ServerAccess) -> ssl.SSLContext:
    try:
        authorities = access.authority.decode("ascii") or None
        context = ssl.create_default_context(cadata=authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if access.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if access.certificate and access.key is not None:
            _present(context, access.certificate, access.key.reveal().encode("latin-1"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise Complaint(
            f"{access.source}: its certificates or its key cannot be read", USAGE
        ) from None
    return context


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Show a certificate to the server. The key goes by memory: it never touches a disk."""
    descriptor = os.memfd_create("client-credential", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
