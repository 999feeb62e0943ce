"""Declarations of pages, and the `Visit` that a page is read and acted with.

A page reads through `Visit.api`, with the rights of the user. If the user may not read a part, the
page shows the missing right and how to get it, and not nothing: `Visit.part`.
"""

import datetime
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from orchid.features.console.api import FORBIDDEN, NOT_FOUND, Api, Json, Refused
from orchid.features.console.web.messages import Fields, WebResponse

if TYPE_CHECKING:
    from orchid.features.console.live import Changes

T = TypeVar("T")

# Roles that give the right to read a resource, for the command that the page shows.
ROLES: Final = {
    "certificatesigningrequests": "certificate-approver",
    "approvalreviews": "certificate-approver",
    "approvalpolicies": "certificate-approver",
    "certificateauthorities": "certificate-approver",
    "issuedcertificates": "certificate-inventory-viewer",
    "certificatesearches": "certificate-inventory-viewer",
    "credentialrevocations": "credential-revoker",
    "ledger": "ledger-viewer",
}
ADMINISTRATOR: Final = "cluster-admin"


class PagePart(msgspec.Struct, Generic[T], frozen=True):
    """A part of a page: its value, or the right that the user lacks."""

    value: T | None = None
    refusal: str = ""
    command: str = ""

    @property
    def is_missing(self) -> bool:
        return bool(self.refusal)


class Viewer(msgspec.Struct, frozen=True):
    """The user of a request: the API with their credential, and facts about their session."""

    api: Api
    changes: "Changes"
    server: str  # the URL of the server
    expiry: Callable[[], datetime.datetime | None] = lambda: None  # of the credential, if known
    is_local: bool = True  # the console runs on the user's machine
    can_sign_out: bool = True
    sessions: Callable[[], Awaitable[list[Json]]] | None = None  # of the same user


class Visit(msgspec.Struct, frozen=True):
    """A request to a page."""

    viewer: Viewer
    base: str  # the path that all pages are below
    path: str
    names: Mapping[str, str]  # the variable segments of the path
    query: Fields
    user: Json  # the user, as the server sees them
    form: Fields = msgspec.field(default_factory=dict)

    @property
    def api(self) -> Api:
        return self.viewer.api

    @property
    def username(self) -> str:
        return str(self.user.get("username", ""))

    def link(self, *parts: str, **query: str) -> str:
        """The URL of a page; values cannot become other segments."""
        given = {name: value for name, value in query.items() if value}
        target = f"{self.base}/" + "/".join(quote(part, safe="") for part in parts)
        return f"{target}?{urlencode(given)}" if given else target

    @property
    def link_again(self) -> str:
        """The URL of this request."""
        query = f"?{urlencode(self.query)}" if self.query else ""
        return f"{self.base}{self.path}{query}"

    async def part(self, reading: Awaitable[T]) -> PagePart[T]:
        """The result, or the missing right; other refusals are raised."""
        try:
            return PagePart(await reading)
        except Refused as refused:
            if refused.status != FORBIDDEN:
                raise
            resource = str(refused.details.get("kind") or "")
            role = ROLES.get(resource, ADMINISTRATOR)
            command = f"orchid grant {role} --user {_word(self.username)}"
            return PagePart(None, refused.message, command)

    async def found(self, reading: Awaitable[T]) -> T | None:
        """The result, or None if there is no such object."""
        try:
            return await reading
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise
            return None


Read = Callable[[Visit], Awaitable[Mapping[str, Any]]]
Act = Callable[[Visit], Awaitable["Succeeded | Retry | Shown"]]


class Succeeded(msgspec.Struct, frozen=True):
    """An action succeeded: the page to show next, and a sentence about the result."""

    target: str
    notice: str = ""


class Retry(msgspec.Struct, frozen=True):
    """An action was refused: the same page again, with the typed text and the reason."""

    problem: str
    status: int = 409
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Shown(msgspec.Struct, frozen=True):
    """An action that stores nothing: the same page, with its result."""

    values: Mapping[str, Any]


class ConsolePage(msgspec.Struct, frozen=True):
    """A page: where it is, what it shows, what it reads and what it does."""

    path: str  # "/requests/{name}"
    template: str
    read: Read
    section: str = ""  # the entry of the navigation
    live: tuple[str, ...] = ()  # plurals whose changes the page follows
    every: int = 0  # seconds until it is read again, if it shows what cannot be followed
    act: Act | None = None  # for POST


class Download(msgspec.Struct, frozen=True):
    """A file: not rendered."""

    path: str
    fetch: Callable[[Visit], Awaitable[WebResponse]]


def _word(name: str) -> str:
    """A name, quoted for a shell."""
    plain = name.replace("-", "").replace("_", "").replace(".", "").replace(":", "")
    return name if plain.isalnum() and name.isascii() else "'" + name.replace("'", "'\\''") + "'"
