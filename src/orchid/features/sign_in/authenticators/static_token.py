"""Static tokens: a file of `token,user,uid,"group1,group2"`, read once at start.

Start with `StaticTokenAuthenticator.load`. Tokens are stored and looked up as keyed hashes only:
neither memory nor timing reveals one. An invalid file is an error at start that quotes no token.
The file is not read again, so the user of a token is constant while the server runs. Revocations of
that user are checked in every request.
"""

import csv
import hashlib
import io
import secrets
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from orchid.features.revocation.revocations import REVOKED_USER, Revocations
from orchid.kernel.access.authenticators.audiences import Audiences, shared, with_group
from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import KeyRefused
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.wire.user import UserInfo

MAX_FILE = 16 << 20
COLUMNS = 3


class InvalidTokenFile(ValueError):
    """The token file is invalid. The message names lines and columns, never a token."""


class StaticTokenAuthenticator:
    """A fixed set of tokens by keyed hash."""

    def __init__(
        self,
        users: Mapping[str, UserInfo],
        api_audiences: Audiences,
        revocations: Revocations | None = None,
    ) -> None:
        self._keyed = hashlib.blake2b(key=secrets.token_bytes(32), digest_size=32)
        # Most tokens are of other types and far longer; those are not hashed.
        self._lengths = frozenset(len(token) for token in users)
        self._audiences = api_audiences
        self._revocations = revocations
        self._users = {
            self._hash(token): Authenticated(
                with_group(user),
                api_audiences,
                still_valid=revocations is None or partial(revocations.allows_user, user.username),
            )
            for token, user in users.items()
        }

    @classmethod
    def load(
        cls, path: Path, api_audiences: Audiences, revocations: Revocations | None = None
    ) -> "StaticTokenAuthenticator":
        """Read the file; raises InvalidTokenFile with a message for the administrator."""
        try:
            text = read_bounded(path, MAX_FILE).decode("utf-8")
        except KeyRefused as refusal:
            raise InvalidTokenFile(f"token file: {refusal}") from None
        except UnicodeDecodeError:
            raise InvalidTokenFile(f"token file '{path}' is not UTF-8 text") from None
        return cls(read_users(text, str(path)), api_audiences, revocations)

    async def authenticate_token(self, token: str, audiences: Audiences) -> Authenticated | None:
        if len(token) not in self._lengths:
            return None
        entry = self._users.get(self._hash(token))
        if entry is None:
            return None
        if self._revocations and not await self._revocations.allows_user(entry.user.username):
            raise Rejected(REVOKED_USER)
        if audiences == self._audiences:
            return entry
        good = shared(self._audiences, audiences)
        return Authenticated(entry.user, good) if good else None

    def _hash(self, token: str) -> bytes:
        digest = self._keyed.copy()
        digest.update(token.encode("utf-8", "surrogatepass"))
        return digest.digest()


def read_users(text: str, file: str) -> dict[str, UserInfo]:
    """Parse the rows: strictly quoted CSV, at least three columns, the last row of a token wins."""
    users: dict[str, UserInfo] = {}
    for number, row in _rows(text, file):
        if len(row) < COLUMNS:
            raise InvalidTokenFile(
                f"token file '{file}' must have at least 3 columns "
                f"(token, user name, user uid), found {len(row)} in row {number}"
            )
        token, name, uid, *rest = row
        if not token:
            continue
        groups = tuple(rest[0].split(",")) if rest and rest[0] else ()
        users[token] = UserInfo(username=name, uid=uid, groups=groups)
    return users


def _rows(text: str, file: str) -> Iterable[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for number, row in enumerate(reader, start=1):
            if row:
                yield number, row
    except csv.Error as error:
        raise InvalidTokenFile(
            f"token file '{file}' is not valid CSV near line {reader.line_num}: {error}"
        ) from None
