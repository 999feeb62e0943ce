"""A connection of a command to one server: plain calls that return decoded responses.

Start with `add_flags(parser)` and `connect(chosen)`. A call returns the decoded JSON or raises
`CommandRefused`, a Complaint with a message for people: the error of the server, and advice. An
unreachable server is a Complaint too, with its URL and the kubeconfig that names it. One
connection, one call after the other; nothing is retried.

Commands that change something print the server. A server that is not an Orchid, and that was only
found by the environment, is only changed if the user named it (`--context`, `--kubeconfig`) or
confirms.
"""

import argparse
import functools
import http.client
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from orchid.commands.terminal import kubeconfig_file
from orchid.commands.terminal.asking import confirmed
from orchid.commands.terminal.kubeconfig_file import FoundKubeconfig
from orchid.commands.terminal.output import USAGE, Complaint, printable, remark
from orchid.credentials.secret import SecretValue
from orchid.outbound import tls
from orchid.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.outbound.tls import UnusableTls
from orchid.version import __version__
from orchid.wire.naming import CLIENT_CONFIG, SETS, Naming

LARGEST_ANSWER = 256 << 20
PAGE = 500
TIMEOUT = 30.0
_SUCCESS = range(200, 300)
FORMS = ("text", "json", "yaml")
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409

# Sent with POST, though they change nothing.
_ONLY_ASKED = ("reviews", "/token")

Json = dict[str, Any]


class CommandRefused(Complaint):
    """The server refused the request."""

    def __init__(self, status: int, text: str, about: str = "") -> None:
        """`about`: the name of the object in the response, if it has one."""
        super().__init__(text)
        self.status = status
        self.about = about


def add_flags(
    parser: argparse.ArgumentParser,
    *,
    forms: Sequence[str] = FORMS,
    kubeconfig: str = "--kubeconfig",
) -> None:
    """The flags of every command that uses a server, and its output formats.

    `kubeconfig`: the flag for the server, where --kubeconfig is that of another one.
    """
    server = parser.add_argument_group("server")
    server.add_argument(
        kubeconfig,
        dest="kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig of the server (default: $KUBECONFIG, ./orchid-data/admin.kubeconfig "
        f"or {Path('~', *CLIENT_CONFIG)}, whichever exists first)",
    )
    server.add_argument("--context", default="", help="the context to use")
    if forms:
        parser.add_argument(
            "-o", "--output", choices=forms, default=forms[0], help="how to show it"
        )


def connect(
    chosen: argparse.Namespace, identity: tuple[bytes, SecretValue] | None = None
) -> "ServerConnection":
    """Find the server by the flags, the environment and the default paths.

    `identity`: a certificate and its key, instead of the credential in the kubeconfig.
    """
    found = kubeconfig_file.find(chosen.kubeconfig, os.environ)
    access = kubeconfig_file.load(found, chosen.context)
    if identity is not None:
        certificate, key = identity
        access = ServerAccess(
            server=access.server,
            user="the certificate",
            authority=access.authority,
            server_name=access.server_name,
            insecure=access.insecure,
            certificate=certificate,
            key=key,
        )
    return ServerConnection(access, found, is_meant=bool(chosen.context) or not found.is_ambient)


def path(*parts: str) -> str:
    """A path made of names; a name cannot become part of another path."""
    return "/" + "/".join(quote(part, safe=":") for part in parts)


class ServerConnection:
    """Calls to one server as one user."""

    def __init__(
        self, access: ServerAccess, found: FoundKubeconfig, *, is_meant: bool = True
    ) -> None:
        self.access = access
        self.source = str(found)
        self.files = found.paths
        self._is_meant = is_meant
        self._has_named_server = False
        self._warnings: set[str] = set()  # the server's warnings, printed once
        parts = urlsplit(access.server)
        if parts.scheme != "https" or not parts.hostname:
            raise Complaint(f"{found}: {access.server!r} is not an https URL", USAGE)
        self._prefix = parts.path.rstrip("/")
        self._headers = {
            "Accept": "application/json, */*",
            "User-Agent": f"orchid/{__version__}",
            "Connection": "keep-alive",
        }
        try:
            token = access.token()
            context = _tls(access)
        except (UnusableKubeconfig, UnusableTls) as problem:
            raise Complaint(f"{found}: {problem}", USAGE) from None
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token.reveal()}"
        self._open = functools.partial(
            _Https, parts.hostname, parts.port or 443, context, access.server_name or parts.hostname
        )
        self._http = self._open()

    def close(self) -> None:
        self._http.close()

    # -- calls -----------------------------------------------------------------------------

    def get(self, place: str, query: Mapping[str, str] | None = None) -> Json:
        return self._json("GET", f"{place}?{urlencode(query)}" if query else place)

    def post(self, place: str, body: Json) -> Json:
        return self._json("POST", place, body)

    def put(self, place: str, body: Json) -> Json:
        return self._json("PUT", place, body)

    def delete(self, place: str, *, dry_run: bool = False) -> Json:
        return self._json("DELETE", f"{place}?dryRun=All" if dry_run else place)

    def text(self, place: str) -> tuple[int, str]:
        """The status and text of a page that is no object."""
        status, data = self._exchange("GET", place, None)
        return status, data.decode("utf-8", "replace")

    def data(self, place: str, *, absent: int = 0) -> bytes:
        """The bytes of a page that is no object; b"" for the status `absent`."""
        status, data = self._exchange("GET", place, None)
        if status == absent:
            return b""
        if status not in _SUCCESS:
            raise CommandRefused(status, self._refusal(status, _decoded(data)))
        return data

    def items(self, place: str, query: Mapping[str, str] | None = None) -> Iterator[Json]:
        """All items of a list, page by page."""
        for page in self._pages(place, query):
            yield from page.get("items") or ()

    def listed(self, place: str, query: Mapping[str, str] | None = None) -> tuple[list[Json], str]:
        """All items of a list, and its resourceVersion, for a watch."""
        found: list[Json] = []
        version = ""
        for page in self._pages(place, query):
            found += page.get("items") or ()
            version = page.get("metadata", {}).get("resourceVersion", "")
        return found, version

    def _pages(self, place: str, query: Mapping[str, str] | None) -> Iterator[Json]:
        onwards = ""
        while True:
            asked = {**(query or {}), "limit": str(PAGE)}
            if onwards:
                asked["continue"] = onwards
            page = self.get(place, asked)
            yield page
            onwards = page.get("metadata", {}).get("continue", "")
            if not onwards:
                return

    def watch(
        self, place: str, version: str, query: Mapping[str, str] | None = None
    ) -> Iterator[Json]:
        """The changes since a version, until the server ends the watch."""
        asked = {**(query or {}), "watch": "true", "resourceVersion": version}
        http = self._open(timeout=None)
        try:
            http.request("GET", f"{self._prefix}{place}?{urlencode(asked)}", headers=self._headers)
            answer = http.getresponse()
            if answer.status not in _SUCCESS:
                data = answer.read(LARGEST_ANSWER)
                raise CommandRefused(answer.status, self._refusal(answer.status, _decoded(data)))
            while line := answer.readline(LARGEST_ANSWER):
                event = _decoded(line)
                if isinstance(event, dict):
                    yield event
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            http.close()

    def count(self, place: str) -> int:
        """The number of items of a list, without fetching them."""
        page = self.get(place, {"limit": "1"})
        rest = page.get("metadata", {}).get("remainingItemCount") or 0
        return len(page.get("items") or ()) + int(rest)

    # -- naming ----------------------------------------------------------------------------

    @cached_property
    def names(self) -> Naming:
        """The set of names that the server uses, detected by its API groups."""
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

    # -- transport -------------------------------------------------------------------------

    def _json(self, method: str, place: str, body: Json | None = None) -> Json:
        changes = method != "GET" and not urlsplit(place).path.endswith(_ONLY_ASKED)
        if changes:
            self._insist_on_the_server()
        status, data = self._exchange(method, place, body)
        value = _decoded(data)
        if status not in _SUCCESS:
            details = value.get("details") if isinstance(value, dict) else None
            name = details.get("name") if isinstance(details, dict) else None
            raise CommandRefused(status, self._refusal(status, value), str(name or ""))
        if not isinstance(value, dict):
            raise Complaint(
                f"{self.access.server} did not answer with JSON; is it a server of ours?"
            )
        if changes and not self._has_named_server:
            self._has_named_server = True
            remark(f"server: {self.access.server}")
        return value

    @cached_property
    def is_orchid(self) -> bool:
        return "+orchid." in str(self.get("/version").get("gitVersion", ""))

    def _insist_on_the_server(self) -> None:
        """Confirm changes to a server that was only found by the environment."""
        if self._is_meant or self.is_orchid:
            return
        where = f"{self.access.server}, the server of {self.source}, is not an Orchid"
        self._is_meant = bool(meant := confirmed(f"{where}. Change it?"))
        if meant is None:
            raise Complaint(
                f"{where}; if you mean it, say so with --context or --kubeconfig", USAGE
            )
        if not meant:
            raise Complaint("nothing was changed")

    def _exchange(self, method: str, place: str, body: Json | None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            self._http.request(method, self._prefix + place, data, headers)
            answer = self._http.getresponse()
            found = answer.read(LARGEST_ANSWER + 1)
        except (OSError, HTTPException) as error:
            self._http.close()
            raise self._unreachable(error) from None
        if len(found) > LARGEST_ANSWER:
            self._http.close()
            raise Complaint(f"{self.access.server} answered with more than can be read")
        for warning in answer.headers.get_all("Warning") or ():
            text = printable(_warning_text(warning))
            if text not in self._warnings:
                self._warnings.add(text)
                remark(f"warning: {text}")
        return answer.status, found

    def _refusal(self, status: int, value: Any) -> str:
        said = value.get("message") if isinstance(value, dict) else None
        text = printable(said or f"the server answered with status {status}")
        who = f"{self.access.user!r} of {self.source}"
        if status == UNAUTHORIZED:
            return (
                f"{self.access.server} does not accept the credential of {who}: it may have "
                f"expired, or belong to another server ({text})"
            )
        if status == FORBIDDEN:
            return (
                f"{text}\nYou are {who}. `orchid whoami` shows as whom the server knows you; an "
                "administrator gives rights with `orchid grant`."
            )
        return text

    def _unreachable(self, error: Exception) -> Complaint:
        where = f"{self.access.server}, the server of {self.source}"
        if isinstance(error, ConnectionRefusedError):
            return Complaint(f"nothing listens at {where}. Start it with: orchid serve")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Complaint(
                f"the certificate of {where}, cannot be trusted: {error.verify_message}. "
                "Was the data directory created again? Then use its new admin.kubeconfig."
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


def _warning_text(header: str) -> str:
    """The text of a Warning, `299 - "text"`, for people; quotes in it are escaped."""
    text = header.partition(" - ")[2].removeprefix('"').removesuffix('"')
    return re.sub(r"\\(.)", r"\1", text)


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return None


class _Https(http.client.HTTPSConnection):
    """A connection whose certificate may be verified for another name than the dialled one."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        server_name: str,
        timeout: float | None = TIMEOUT,
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._tls, self._server_name = context, server_name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _tls(access: ServerAccess) -> ssl.SSLContext:
    context = tls.trusting(access.authority.decode("latin-1"))
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.key is not None:
        tls.present(context, access.certificate, access.key.reveal().encode("latin-1"))
    return context
