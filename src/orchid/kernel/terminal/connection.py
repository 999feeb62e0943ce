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
import contextlib
import os
import re
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.api_connection import (
    SUCCESS,
    ApiConnection,
    Json,
    decoded,
    failure_reason,
    find_naming,
    path,
)
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.kernel.outbound.tls import UnusableTls
from orchid.kernel.terminal import kubeconfig_file, times
from orchid.kernel.terminal.asking import confirmed
from orchid.kernel.terminal.kubeconfig_file import SERVER_FLAG, FoundKubeconfig
from orchid.kernel.terminal.output import USAGE, Complaint, printable, remark
from orchid.kernel.terminal.polling import polls
from orchid.kernel.wire.naming import CLIENT_CONFIG, Naming

__all__ = [
    "CommandRefused",
    "Json",
    "NoAnswer",
    "ServerConnection",
    "add_flags",
    "connect",
    "path",
    "retried",
]

A = TypeVar("A")

PAGE = 500
FORMS = ("text", "json", "yaml")
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409
PASSING = frozenset({CONFLICT, 429, 500, 502, 503, 504})  # the same request may succeed later

# Reasons of OpenSSL for refusing a certificate.
NOT_YET_VALID, EXPIRED = 9, 10

# Sent with POST, though they change nothing.
_ONLY_ASKED = ("reviews", "reviewbatches", "searches", "/token")


class NoAnswer(Complaint):
    """The server did not answer."""


class CommandRefused(Complaint):
    """The server refused the request."""

    def __init__(self, status: int, text: str, about: str = "") -> None:
        """`about`: the name of the object in the response, if it has one."""
        super().__init__(text)
        self.status = status
        self.about = about


def retried(
    attempt: Callable[[], A | None], seconds: float, not_yet: Collection[int] = ()
) -> A | None:
    """Repeat an attempt until it has a result; when the time is over, raise its last refusal.

    A server that restarts meanwhile does not end the wait. `not_yet`: further statuses that do not.
    """
    refusal: Complaint | None = None
    for _ in polls(seconds):
        before, refusal = refusal, None
        try:
            if (result := attempt()) is not None:
                return result
        except (NoAnswer, CommandRefused) as error:
            if isinstance(error, CommandRefused) and error.status not in PASSING.union(not_yet):
                raise
            refusal = error
            if seconds and str(error) != str(before):
                remark(f"not yet: {error}")
    if refusal is not None:
        raise refusal
    return None


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
    arguments: argparse.Namespace,
    identity: tuple[bytes, SecretValue] | None = None,
    *,
    only_for_plugin: bool = False,
) -> "ServerConnection":
    """Find the server by the flags, the environment and the default paths.

    `identity`: a certificate and its key, instead of the credential in the kubeconfig; or only
    instead of its plugin, for that plugin itself.
    """
    kubeconfig = kubeconfig_file.find(arguments.kubeconfig, os.environ)
    access = kubeconfig_file.load(kubeconfig, arguments.context, runs_plugin=identity is None)
    if identity is not None and (access.plugin is not None or not only_for_plugin):
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
    return ServerConnection(
        access, kubeconfig, is_meant=bool(arguments.context) or not kubeconfig.is_ambient
    )


class ServerConnection:
    """Calls to one server as one user."""

    def __init__(
        self,
        access: ServerAccess,
        kubeconfig: FoundKubeconfig,
        *,
        is_meant: bool = True,
        is_ours: bool = True,
    ) -> None:
        """`is_ours`: an Orchid, not the API server of a cluster."""
        self.access = access
        self.source = str(kubeconfig)
        self.files = kubeconfig.paths
        self._is_meant = is_meant
        self._is_ours = is_ours
        self._has_named_server = False
        self._warnings: set[str] = set()  # the server's warnings, printed once
        self.date: datetime | None = None  # the server's time, in its last response
        try:
            self._api = ApiConnection(access)
        except (UnusableKubeconfig, UnusableTls) as problem:
            raise Complaint(f"{kubeconfig}: {problem}", USAGE) from None

    def close(self) -> None:
        self._api.close()

    # -- calls -----------------------------------------------------------------------------

    def get(self, target: str, query: Mapping[str, str] | None = None) -> Json:
        return self._json("GET", f"{target}?{urlencode(query)}" if query else target)

    def post(self, target: str, body: Json, *, warnings: bool = True) -> Json:
        """`warnings`: whether those of the server are printed."""
        return self._json("POST", target, body, warnings=warnings)

    def rehearse(self, target: str, body: Json) -> list[str]:
        """The warnings of a dry run that creates an object; nothing is printed or stored."""
        try:
            answer = self._api.send("POST", f"{target}?dryRun=All", body)
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        if answer.status not in SUCCESS:
            raise CommandRefused(answer.status, self._refusal(answer.status, decoded(answer.data)))
        return [printable(_warning_text(text)) for text in answer.headers.get_all("Warning") or ()]

    def post_form(self, target: str, fields: Sequence[tuple[str, str]]) -> Json:
        """Send a form to an OAuth endpoint; its errors have another format."""
        status, data = self._exchange("POST", target, urlencode(fields).encode())
        value = decoded(data)
        if status not in SUCCESS or not isinstance(value, dict):
            said = value.get("error_description") if isinstance(value, dict) else None
            raise CommandRefused(status, printable(said) if said else self._refusal(status, value))
        return value

    def put(self, target: str, body: Json) -> Json:
        return self._json("PUT", target, body)

    def delete(self, target: str, *, dry_run: bool = False) -> Json:
        return self._json("DELETE", f"{target}?dryRun=All" if dry_run else target)

    def text(self, target: str) -> tuple[int, str]:
        """The status and text of a page that is no object."""
        status, data = self._exchange("GET", target, None)
        return status, data.decode("utf-8", "replace")

    def data(self, target: str, *, absent: int = 0) -> bytes:
        """The bytes of a page that is no object; b"" for the status `absent`."""
        status, data = self._exchange("GET", target, None)
        if status == absent:
            return b""
        if status not in SUCCESS:
            raise CommandRefused(status, self._refusal(status, decoded(data)))
        return data

    def items(self, target: str, query: Mapping[str, str] | None = None) -> Iterator[Json]:
        """All items of a list, page by page."""
        for page in self._pages(target, query):
            yield from page.get("items") or ()

    def listed(self, target: str, query: Mapping[str, str] | None = None) -> tuple[list[Json], str]:
        """All items of a list, and its resourceVersion, for a watch."""
        items: list[Json] = []
        version = ""
        for page in self._pages(target, query):
            items += page.get("items") or ()
            version = page.get("metadata", {}).get("resourceVersion", "")
        return items, version

    def _pages(self, target: str, query: Mapping[str, str] | None) -> Iterator[Json]:
        onwards = ""
        while True:
            asked = {**(query or {}), "limit": str(PAGE)}
            if onwards:
                asked["continue"] = onwards
            page = self.get(target, asked)
            if kind := str(page.get("kind", "")).removesuffix("List"):
                # As in other answers; in a list, the server leaves them out.
                named = {"apiVersion": page.get("apiVersion"), "kind": kind}
                page["items"] = [{**named, **item} for item in page.get("items") or ()]
            yield page
            onwards = page.get("metadata", {}).get("continue", "")
            if not onwards:
                return

    def watch(
        self, target: str, version: str, query: Mapping[str, str] | None = None
    ) -> Iterator[Json]:
        """The changes since a version, until the server ends the watch."""
        asked = {**(query or {}), "watch": "true", "resourceVersion": version}
        try:
            for status, line in self._api.stream(f"{target}?{urlencode(asked)}"):
                event = decoded(line)
                if status not in SUCCESS:
                    raise CommandRefused(status, self._refusal(status, event))
                if isinstance(event, dict):
                    yield event
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None

    def count(self, target: str) -> int:
        """The number of items of a list, without fetching them."""
        page = self.get(target, {"limit": "1"})
        rest = page.get("metadata", {}).get("remainingItemCount") or 0
        return len(page.get("items") or ()) + int(rest)

    # -- naming ----------------------------------------------------------------------------

    @cached_property
    def naming(self) -> Naming:
        """The set of names that the server uses, detected by its API groups."""
        groups = [each.get("name", "") for each in self.get("/apis").get("groups", ())]
        naming = find_naming(groups)
        if naming is None:
            raise Complaint(f"{self.access.server} serves no API groups that this program knows")
        return naming

    def group(self, word: str, version: str, *parts: str) -> str:
        """A path in one of the product's API groups."""
        return path("apis", self.naming.group(word), version, *parts)

    def api_version(self, word: str, version: str) -> str:
        return f"{self.naming.group(word)}/{version}"

    # -- transport -------------------------------------------------------------------------

    def _json(
        self, method: str, target: str, body: Json | None = None, *, warnings: bool = True
    ) -> Json:
        changes = method != "GET" and not urlsplit(target).path.endswith(_ONLY_ASKED)
        if changes:
            self._insist_on_the_server()
        status, data = self._exchange(method, target, body, warnings=warnings)
        value = decoded(data)
        if status not in SUCCESS:
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

    def _exchange(
        self, method: str, target: str, body: Json | bytes | None, *, warnings: bool = True
    ) -> tuple[int, bytes]:
        try:
            answer = self._api.send(method, target, body)
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        self.date = _date(answer.headers.get("Date"))
        for warning in (answer.headers.get_all("Warning") or ()) if warnings else ():
            text = printable(_warning_text(warning))
            if text not in self._warnings:
                self._warnings.add(text)
                remark(f"warning: {text}")
        return answer.status, answer.data

    def _refusal(self, status: int, value: Any) -> str:
        said = value.get("message") if isinstance(value, dict) else None
        text = printable(said or f"the server answered with status {status}")
        who = f"{self.access.user!r} of {self.source}"
        if status == UNAUTHORIZED:
            why = _expiry(self.access.certificate) or (
                "it may have expired, be revoked, or be for another server or audience"
            )
            return f"{self.access.server} does not accept the credential of {who}: {why} ({text})"
        if status == FORBIDDEN:
            if "at the cluster scope" in text:
                text += "\nIn a single namespace it may be allowed: try --namespace."
            return (
                f"{text}\nYou are {who}. `orchid whoami` shows as whom the server knows you; an "
                "administrator gives rights with `orchid grant`."
            )
        return text

    def _unreachable(self, error: Exception) -> Complaint:
        where = f"{self.access.server}, the server of {self.source}"
        if isinstance(error, ConnectionRefusedError):
            hint = ". Start it with: orchid serve" if self._is_ours else ""
            return NoAnswer(f"nothing listens at {where}{hint}")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Complaint(_untrusted(where, error, is_by_flag=self.source == SERVER_FLAG))
        return NoAnswer(f"cannot reach {where}: {failure_reason(error)}")


def _expiry(chain: bytes) -> str:
    """When a client certificate ended, by the clock of this machine; "" if it has not."""
    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.credentials.x509 import certificates

    try:
        end = certificates.parse_blocks(chain)[0].not_valid_after_utc
    except (Refusal, ValueError):
        return ""
    return f"its certificate ended {times.until(end)}" if end <= times.now() else ""


def _untrusted(where: str, error: ssl.SSLCertVerificationError, *, is_by_flag: bool) -> str:
    """The reason why a server's certificate is not accepted; most often a clock, or other files."""
    now = times.now().isoformat(timespec="minutes")
    if error.verify_code == NOT_YET_VALID:
        return (
            f"the certificate of {where}, is not valid yet by the clock of this machine, which "
            f"says {now}. Set the clock."
        )
    if error.verify_code == EXPIRED:
        return (
            f"the certificate of {where}, has expired by the clock of this machine, which says "
            f"{now}. If it is right, check the clock of the server, and restart the server: it "
            "renews its certificate."
        )
    help_text = "Was the data directory created again? Then use its new admin.kubeconfig."
    if is_by_flag:
        help_text = "Name its CA with --certificate-authority."
    return f"the certificate of {where}, cannot be trusted: {error.verify_message}. {help_text}"


def _date(header: str | None) -> datetime | None:
    """The time in a Date header; None if there is none that can be read."""
    with contextlib.suppress(ValueError):
        return parsedate_to_datetime(header) if header else None
    return None


def _warning_text(header: str) -> str:
    """The text of a Warning, `299 - "text"`, for people; quotes in it are escaped."""
    text = header.partition(" - ")[2].removeprefix('"').removesuffix('"')
    return re.sub(r"\\(.)", r"\1", text)
