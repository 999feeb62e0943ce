"""A token of an account, bound to the Pod that places the account on this host."""

import datetime
from typing import Final

import msgspec

from orchid.features.hosts.agent.calls import FORBIDDEN, ApiRefused, IdentityRefused
from orchid.features.hosts.agent.configuration import Token
from orchid.features.hosts.agent.generations import OutputFile
from orchid.features.hosts.agent.held_certificate import fraction
from orchid.features.hosts.agent.outputs.content import (
    ContentFailed,
    Files,
    Fresh,
    Life,
    Round,
    projected_sources,
)
from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.api_connection import Json, path

FILE: Final = "token"
LONGEST_USE: Final = 86_400.0  # seconds until a token is renewed at the latest
SHARE: Final = 0.8  # of its life
EARLIER: Final = 0.1  # by up to this share, so that agents do not renew together
_PARTS: Final = 3


class TokenTimes(msgspec.Struct):
    """The times in a token, which the server checks and we only read."""

    exp: float
    iat: float
    aud: str | list[str] = ""


class TokenContent:
    """The content of an output with `token`."""

    def __init__(self, wanted: Token) -> None:
        self._wanted = wanted

    def life(self, files: Files) -> Life | None:
        return token_life(files.get(FILE, b""), self._wanted.audience)

    def refresh(self, name: str, files: Files, current: Round) -> Fresh:
        settings = self._wanted
        token = fresh_token(
            files.get(FILE, b""), current, settings.account, settings.audience, settings.lifetime
        )
        life = token_life(token, settings.audience)
        if life is None:
            raise ContentFailed("the server returned a token without times")
        return Fresh([OutputFile(FILE, token, is_secret=True)], life)


def fresh_token(held: bytes, current: Round, account: str, audience: str, seconds: int) -> bytes:
    """The present token, or a new one if it is due or no longer accepted."""
    life = token_life(held, audience)
    now = current.clocks.now()
    if life is not None and not life.is_due(now) and _is_accepted(held, current, audience):
        return held
    return request_token(current, account, audience, seconds).reveal().encode()


def token_life(token: bytes, audience: str) -> Life | None:
    """When a token expires and is due; None if it cannot be read or is for another audience."""
    parts = token.split(b".")
    try:
        times = msgspec.json.decode(b64url_decode(parts[1]), type=TokenTimes)
    except (IndexError, ValueError, msgspec.MsgspecError):
        return None
    audiences = [times.aud] if isinstance(times.aud, str) else times.aud
    if len(parts) != _PARTS or (audience and audience not in audiences):
        return None
    used = min((times.exp - times.iat) * SHARE, LONGEST_USE)
    renews = times.iat + used * (1 - EARLIER * fraction(token))
    try:
        return Life(_moment(times.exp), _moment(renews))
    except (ValueError, OverflowError, OSError):  # no time that a calendar has
        return None


def request_token(current: Round, account: str, audience: str, seconds: int) -> SecretValue:
    """A new token; without an audience it is one for this server."""
    namespace, _, name = account.partition("/")
    spec: Json = {}
    if audience:
        spec["audiences"] = [audience]
    if seconds:
        spec["expirationSeconds"] = int(seconds)
    if current.identity.host:
        spec["boundObjectRef"] = _pod_reference(current, account, audience)
    body = {
        "apiVersion": f"{current.calls.naming.authentication}/v1",
        "kind": "TokenRequest",
        "spec": spec,
    }
    url = path("api", "v1", "namespaces", namespace, "serviceaccounts", name, "token")
    token = (current.calls.post(url, body).get("status") or {}).get("token")
    if not isinstance(token, str) or not token:
        raise ContentFailed(f"the server returned no token of {account}")
    return SecretValue(token)


def _pod_reference(current: Round, account: str, audience: str) -> Json:
    for pod in current.pods(account):
        for source in projected_sources(pod):
            projection = source.get("serviceAccountToken")
            if projection is not None and projection.get("audience", "") == audience:
                meta = pod["metadata"]
                return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    host = current.identity.host
    flag = f"--audience {audience}" if audience else "--api"
    raise ContentFailed(
        f"no Pod places {account} on {host} for this audience; "
        f"run: orchid host place {host} {account} {flag}"
    )


def _is_accepted(token: bytes, current: Round, audience: str) -> bool:
    """Whether the server still accepts a token; True if we may not ask."""
    spec: Json = {"token": token.decode("ascii", "replace")}
    if audience:
        spec["audiences"] = [audience]
    url = current.calls.group("authentication", "v1", "tokenreviews")
    body = {
        "apiVersion": f"{current.calls.naming.authentication}/v1",
        "kind": "TokenReview",
        "spec": spec,
    }
    try:
        status = current.calls.post(url, body).get("status") or {}
    except IdentityRefused:
        raise
    except ApiRefused as refused:
        if refused.status != FORBIDDEN:
            raise
        return True
    return status.get("authenticated") is True


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
