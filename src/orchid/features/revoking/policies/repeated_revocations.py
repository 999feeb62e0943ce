"""One revocation of a credential is enough: a second one is refused unless it revokes more.

Shared by the policies of our own credentials (revocation_permission.py) and of those of clusters
(features/clusters/policies/cluster_revocation.py).
"""

from collections.abc import Callable
from typing import Any, Final

from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import AlreadyExists, ApiError, ErrorSubject, Forbidden
from orchid.kernel.wire.text import quote, timestamp

MOST_OF_ONE_TARGET: Final = 100  # revocations, of which each supersedes the one before

Already = Callable[[CredentialRevocationSpec], list[str]]


class AlreadyRevoked(AlreadyExists):
    """Another revocation revokes all of this; it is named."""

    def __init__(self, about: ErrorSubject) -> None:
        text = f"{about} {quote(about.name)} already revokes this"
        ApiError.__init__(self, text, about.details())


class RepeatedRevocations:
    """Compares a revocation with the others of its target."""

    def __init__(self, revocations: KindCache[CredentialRevocation], already: Already) -> None:
        """`already`: the keys of the existing revocations of the same credential."""
        self._revocations = revocations
        self._already = already

    def others(self, one: CredentialRevocation) -> list[CredentialRevocation]:
        """The other revocations of the same target."""
        found = (self._revocations.entries.get(key) for key in self._already(one.spec))
        others = [entry.object for entry in found if entry is not None]
        return [other for other in others if other.target == one.target and other.name != one.name]

    def refuse_repeated(self, request: Request, kind: Kind[Any], new: CredentialRevocation) -> None:
        """Raise AlreadyRevoked if another one covers this one; warn if one overlaps it."""
        others = sorted(self.others(new), key=lambda other: other.name)
        for other in others:
            if other.covers(new):
                raise AlreadyRevoked(kind.about(other.name))
        if len(others) >= MOST_OF_ONE_TARGET:
            text = f"there are {len(others)} revocations of this; delete those that are superseded"
            raise Forbidden(kind.about(new.name), text)
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            request.warn(f"already revoked by {quote(others[0].name)}{more}")

    def is_superseded(self, old: CredentialRevocation) -> bool:
        return any(old.is_superseded_by(other) for other in self.others(old))


def stays(kind: Kind[Any], old: CredentialRevocation) -> Forbidden:
    """The refusal to delete a revocation before its end."""
    if old.spec.key:
        return Forbidden(kind.about(old.name), "the revocation of a key stays for good")
    expires = old.status.expires
    until = f"until {timestamp(expires)}, when" if expires else "until"
    text = f"it stays {until} what it revokes has ended; only certificateHold can be lifted"
    return Forbidden(kind.about(old.name), text)
