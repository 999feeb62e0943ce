"""A notice: one thing that a person should learn of, as a Security Event Token (RFC 8417).

`NoticeKey` identifies it, also after a restart. Its hash is the `jti`: a receiver recognises a
notice that comes twice. Values come from requesters: `plain` limits them to printable text.
"""

import hashlib
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

LONGEST_VALUE: Final = 200  # characters
MOST_VALUES: Final = 20
REPLACEMENT: Final = "\ufffd"  # by number: a name would load the table of all names


class NoticeKey(NamedTuple):
    """The object of a notice; `mark` distinguishes two events of one object."""

    event: str
    name: str
    uid: str
    mark: str = ""

    @property
    def jti(self) -> str:
        return hashlib.sha256("\n".join(self).encode()).hexdigest()[:32]


class Notice(msgspec.Struct, frozen=True):
    """A sentence for people, and the same as fields for programs."""

    occurred: datetime
    text: str
    fields: dict[str, Any]
    limited_by: str = ""  # the requester whose notices are limited

    def claims(
        self, key: NoticeKey, *, issuer: str, audience: str, now: datetime
    ) -> dict[str, Any]:
        """The claims of its token: neither `sub` nor `exp`, so that it is no credential."""
        details = {name: value for name, value in self.fields.items() if value}
        return {
            "iss": issuer,
            "aud": audience,
            "iat": int(now.timestamp()),
            "jti": key.jti,
            "toe": int(self.occurred.timestamp()),
            "events": {key.event: {"text": self.text, **details}},
        }


def plain(value: str) -> str:
    """A value as printable text of limited length."""
    if len(value) > LONGEST_VALUE:
        value = value[: LONGEST_VALUE - 1] + "…"
    if value.isprintable():
        return value
    return "".join(character if character.isprintable() else REPLACEMENT for character in value)


def plain_all(values: tuple[str, ...]) -> list[str]:
    return [plain(one) for one in values[:MOST_VALUES]]
