"""Anonymous requests: allowed on listed paths, and only without any credential.

Start with `AnonymousAuthenticator`. It runs last (union.py), and never after a refused credential.
A path is listed exactly (`/livez`) or, ending in `/*`, with everything below it.
"""

from collections.abc import Iterable
from typing import Final

from orchid.kernel.engine.interfaces import Authenticated, Presented
from orchid.kernel.wire.user import ANONYMOUS, UNAUTHENTICATED, UserInfo

NOBODY: Final = Authenticated(UserInfo(username=ANONYMOUS, groups=(UNAUTHENTICATED,)))


class InvalidAnonymousPath(ValueError):
    """A listed path that could never match, or would match everything."""


class AnonymousAuthenticator:
    """Authenticate requests to listed paths as `system:anonymous`."""

    def __init__(self, paths: Iterable[str]) -> None:
        exact, below = set(), []
        for path in paths:
            _refuse_unfit(path)
            if path.endswith("/*"):
                below.append(path[:-1])
            else:
                exact.add(path)
        self._exact = frozenset(exact)
        self._below = tuple(below)

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        path = presented.path
        if path in self._exact:
            return NOBODY
        if self._below and path.startswith(self._below) and _is_plain(path):
            return NOBODY
        return None


def _is_plain(path: str) -> bool:
    """A path with dots or escapes may mean another path to its handler."""
    return "%" not in path and "//" not in path and not {".", ".."} & set(path.split("/"))


def _refuse_unfit(path: str) -> None:
    if not path.startswith("/") or "*" in path.removesuffix("/*") or path == "/*":
        raise InvalidAnonymousPath(
            f"anonymous path {path!r} must begin with / and may end in /* below a first segment"
        )
