"""ConsoleSession: a user who has signed in to the console of the server.

The name is the SHA-256 of the session id, which only the cookie of the browser has. The tokens of
the user are sealed with a key that is derived from that id
(features/console/sign_in/sessions.py): a reader of the store or of a backup cannot use them.
Deleting the object signs the user out.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import field

from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.fields import (
    METADATA,
    FieldError,
    Path,
    immutable,
    invalid,
    required,
    too_long,
)
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, confidential, describe, proto
from orchid.kernel.wire.text import age

SPEC: Final = Path() / "spec"
LONGEST: Final = 1024  # characters of a user, an issuer or an address
LONGEST_SEALED: Final = 64 * 1024

_is_name = re.compile(r"[0-9a-f]{64}").fullmatch


class ConsoleSessionSpec(Wire):
    """The user, and their sealed tokens."""

    username: Annotated[str, proto(1), describe("The user.", required=True)] = always(str)
    issuer: Annotated[str, proto(2), describe("The provider that identified the user.")] = ""
    address: Annotated[str, proto(3), describe("The address from which the user signed in.")] = ""
    expires: Annotated[
        Time | None, proto(4), describe("The latest end of the session.", required=True)
    ] = None
    last_seen: Annotated[
        Time | None, proto(5), describe("When the user opened a page, to five minutes.")
    ] = None
    sealed: Annotated[
        str,
        proto(6),
        confidential(),
        describe("The tokens of the user, encrypted with a key that only the cookie has."),
    ] = ""


class ConsoleSession(Object):
    """A user who has signed in to the console of the server."""

    spec: Annotated[
        ConsoleSessionSpec, proto(2), describe("The user of the session.", required=True)
    ] = field(default_factory=ConsoleSessionSpec)


class Rules(Strategy[ConsoleSession]):
    """The tokens and `lastSeen` change; the user and the end are fixed."""

    def validate(self, new: ConsoleSession) -> Iterator[FieldError]:
        spec = new.spec
        if not _is_name(new.metadata.name):
            yield invalid(METADATA / "name", new.metadata.name, "must be a SHA-256 in hex")
        if not spec.username:
            yield required(SPEC / "username")
        if spec.expires is None:
            yield required(SPEC / "expires")
        for name, text, longest in (
            ("username", spec.username, LONGEST),
            ("issuer", spec.issuer, LONGEST),
            ("address", spec.address, LONGEST),
            ("sealed", spec.sealed, LONGEST_SEALED),
        ):
            if len(text) > longest:
                yield too_long(SPEC / name, longest, "character")

    def validate_update(self, new: ConsoleSession, old: ConsoleSession) -> Iterator[FieldError]:
        for name, now, before in (
            ("username", new.spec.username, old.spec.username),
            ("issuer", new.spec.issuer, old.spec.issuer),
            ("address", new.spec.address, old.spec.address),
            ("expires", new.spec.expires, old.spec.expires),
        ):
            yield from immutable(SPEC / name, now, before)
        yield from self.validate(new)


COLUMNS: Final = (
    NAME,
    Column("User", lambda one, now: one.spec.username, description="The user."),
    Column("Address", lambda one, now: one.spec.address, description="Where they signed in."),
    Column(
        "Last Seen",
        lambda one, now: age(one.spec.last_seen, now) if one.spec.last_seen else "never",
        description="When the user last opened a page.",
    ),
    AGE,
)


def declare(naming: Naming) -> Kind[ConsoleSession]:
    return Kind(
        type=ConsoleSession,
        group=naming.identity,
        version="v1alpha1",
        plural="consolesessions",
        scope=Scope.CLUSTER,
        counts_generation=True,
        rules=Rules(),
        columns=COLUMNS,
        selectable={"spec.username": lambda session: session.spec.username},
    )
