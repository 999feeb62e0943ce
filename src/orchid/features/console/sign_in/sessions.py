"""Sessions of the console of a server: ConsoleSession objects.

The id of a session is 256 random bits that only the cookie of the browser has. The object is named
by its SHA-256, and the tokens in it are sealed with a key that is derived from the id. A reader of
the store or of a backup has neither the cookie nor the tokens. Every request reads the object:
deleting it signs the user out everywhere. A session ends with the user and with its ID token: it is
deleted, with its refresh token, when either is revoked.
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from orchid.features.console.api import CONFLICT, NOT_FOUND, Api, Json, Refused
from orchid.features.console.decoding import claims_of
from orchid.features.console.text import parse_time

IDLE: Final = timedelta(minutes=30)
SEEN: Final = timedelta(minutes=5)  # between two updates of lastSeen
MOST_PER_USER: Final = 20
PAGE: Final = 500
PURPOSE: Final = b"orchid console session"
NONCE_BYTES: Final = 12
KIND: Final = "consolesessions"

# Whether a token of an issuer with these claims is revoked, or a user who has it.
IsRevoked = Callable[[str, str, Mapping[str, Any]], bool]

_is_id = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch


class Tokens(msgspec.Struct, frozen=True):
    """The credential of a user; `expires` is the end of the ID token, in seconds since 1970."""

    id_token: str
    expires: float
    refresh_token: str = ""

    __repr__ = object.__repr__  # shows no field


class OpenSession(msgspec.Struct, frozen=True):
    """A session that was opened with its id."""

    id: str
    username: str
    expires: datetime
    last_seen: datetime
    tokens: Tokens
    stored: Json

    __repr__ = object.__repr__  # shows no field

    @property
    def name(self) -> str:
        return name_of(self.id)


def name_of(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()


def seal(session_id: str, tokens: Tokens) -> str:
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = AESGCM(_key(session_id)).encrypt(nonce, msgspec.json.encode(tokens), None)
    return base64.b64encode(nonce + sealed).decode()


def unseal(session_id: str, text: str) -> Tokens | None:
    """None if the text was not sealed with this id."""
    try:
        data = base64.b64decode(text, validate=True)
        opened = AESGCM(_key(session_id)).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], None)
        return msgspec.json.decode(opened, type=Tokens)
    except (binascii.Error, ValueError, InvalidTag, msgspec.MsgspecError):
        return None


def _key(session_id: str) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=None, info=PURPOSE).derive(session_id.encode())


class Sessions:
    """The sessions of all users, through the API with the account of the console."""

    def __init__(
        self,
        api: Api,
        now: Callable[[], datetime],
        lifetime: timedelta,
        is_revoked: IsRevoked,
    ) -> None:
        """`is_revoked`: of an issuer, a user and claims, as new as what `api` has read last."""
        self._api = api
        self.now = now
        self._lifetime = lifetime
        self._is_revoked = is_revoked

    async def begin(self, username: str, issuer: str, address: str, tokens: Tokens) -> OpenSession:
        """A new session; the oldest ones of a user with too many end."""
        others = sorted(
            await self.of(username), key=lambda other: str(other["spec"].get("lastSeen"))
        )
        for other in others[: max(0, len(others) + 1 - MOST_PER_USER)]:
            await self.end(str(other["metadata"]["name"]))
        session_id, now = secrets.token_urlsafe(32), self.now().replace(microsecond=0)
        end = now + self._lifetime
        if not tokens.refresh_token:
            end = min(end, datetime.fromtimestamp(int(tokens.expires), now.tzinfo))
        body = {
            "metadata": {"name": name_of(session_id)},
            "spec": {
                "username": username,
                "issuer": issuer,
                "address": address,
                "expires": _time(end),
                "lastSeen": _time(now),
                "sealed": seal(session_id, tokens),
            },
        }
        stored = await self._api.post(await self._api.identity(KIND), body)
        return OpenSession(session_id, username, end, now, tokens, stored)

    async def find(self, session_id: str) -> OpenSession | None:
        """The session of a cookie; None if it has ended. A revoked one is deleted."""
        if not _is_id(session_id):
            return None
        try:
            record = await self._api.get(await self._api.identity(KIND, name_of(session_id)))
        except Refused as refused:
            if refused.status == NOT_FOUND:
                return None
            raise
        spec = record.get("spec") or {}
        if self._is_over(spec):
            return None
        tokens = unseal(session_id, str(spec.get("sealed") or ""))
        end, seen = parse_time(spec.get("expires")), parse_time(spec.get("lastSeen"))
        if tokens is None or end is None or seen is None:
            return None
        if self._has_ended(record, claims_of(tokens.id_token)):
            await self.end(name_of(session_id))
            return None
        return OpenSession(session_id, str(spec.get("username") or ""), end, seen, tokens, record)

    def _has_ended(self, stored: Json, *tokens: Json) -> bool:
        """Whether the user has been revoked since the session began, or one of its tokens is.

        A renewed ID token is newer than the revocation, so the beginning of the session counts.
        """
        spec, began = stored["spec"], parse_time(stored["metadata"].get("creationTimestamp"))
        user = str(spec.get("issuer") or ""), str(spec.get("username") or "")
        beginning = {"iat": began.timestamp() if began else None}
        return any(self._is_revoked(*user, claims) for claims in (beginning, *tokens))

    def _is_over(self, spec: Json) -> bool:
        end, seen, now = (
            parse_time(spec.get("expires")),
            parse_time(spec.get("lastSeen")),
            self.now(),
        )
        return end is None or seen is None or now >= end or now >= seen + IDLE

    async def touch(self, session: OpenSession) -> None:
        """Note that the user opened a page, once in five minutes."""
        if self.now() < session.last_seen + SEEN:
            return
        await self._update(session, lastSeen=_time(self.now()))

    async def renew(self, session: OpenSession, tokens: Tokens) -> OpenSession | None:
        """Replace the tokens of a session; it stays as idle as it is.

        None if it has ended while the provider made them: they are used by nobody.
        """
        await self._update(session, sealed=seal(session.id, tokens))
        return await self.find(session.id)

    async def _update(self, session: OpenSession, **change: str) -> None:
        body = {**session.stored, "spec": {**session.stored["spec"], **change}}
        try:
            await self._api.put(await self._api.identity(KIND, session.name), body)
        except Refused as refused:
            if refused.status not in (CONFLICT, NOT_FOUND):  # changed or deleted meanwhile
                raise

    async def end(self, name: str) -> None:
        try:
            await self._api.delete(await self._api.identity(KIND, name), {})
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise

    async def of(self, username: str) -> list[Json]:
        """The sessions of a user, as objects."""
        return [one for one in await self._listed() if one["spec"].get("username") == username]

    async def sweep(self) -> None:
        """Delete the sessions that have ended, by time or by a revocation."""
        for one in await self._listed():
            if self._is_over(one["spec"]) or self._has_ended(one):
                await self.end(str(one["metadata"]["name"]))

    async def _listed(self) -> list[Json]:
        records: list[Json] = []
        query = {"limit": str(PAGE)}
        while True:
            page = await self._api.get(await self._api.identity(KIND), query)
            records += page.get("items") or ()
            after = str(page.get("metadata", {}).get("continue") or "")
            if not after:
                return records
            query["continue"] = after


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
