"""The steps of a SigningKey: who may take them, and what must hold first.

step                   takes the verb   the server rejects it unless
Published → Active     activate         every live server has the key, and it was published for the
                                        publish time; or it signs already
Verifying → Active     activate         its private key is still there, and every live server has it
Active → Verifying     -                another key signs
Verifying → Retired    retire           no live credential depends on the key
any → Retired          retire           a CredentialRevocation names the key
delete                 -                it is Retired, or Published and does not sign

A rejection lists every reason. `activation_reasons` and `retirement_reasons` are pure. The
controller gets the messages of its conditions by a dry run of the step. The server itself sets the
times in the status: the time of an activation is later than that of any other key, so that the last
one signs.
"""

from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from orchid.engine.cache.feed import Feed
from orchid.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.engine.kind import Kind
from orchid.engine.request import Request
from orchid.kinds.lease import ServerKeys
from orchid.kinds.secret import Secret
from orchid.kinds.signing_key import (
    ACTIVE,
    PUBLISHED,
    RETIRED,
    SPEC,
    STATE,
    VERIFYING,
    KeyDependents,
    SigningKey,
    key_secret,
    select,
)
from orchid.wire.errors import Forbidden, Invalid
from orchid.wire.fields import forbidden
from orchid.wire.naming import Naming
from orchid.wire.struct import replace
from orchid.wire.text import timestamp, whole_seconds

VERBS: Final = {ACTIVE: "activate", RETIRED: "retire"}
# After the publish time, for clocks that differ and requests that were under way.
ALLOWANCE: Final = timedelta(minutes=2)
MOST_NAMED: Final = 5  # servers or Secrets in a message
SECOND: Final = timedelta(seconds=1)

Servers = Mapping[str, ServerKeys]
Dependents = Callable[[SigningKey, datetime], Awaitable[KeyDependents]]


class SigningKeySteps(AdmissionPolicy):
    admits = (SigningKey,)
    reviews = (SigningKey,)

    def __init__(
        self,
        names: Naming,
        feed: Feed,
        authorizer: Authorizer,
        *,
        servers: Callable[[], Servers],
        revoked: Callable[[], Container[str]],
        dependents: Dependents,
        secrets_of: Callable[[str], list[str]],
        publish_time: tuple[str, float],
        published_elsewhere: str,
        own_user: str,
    ) -> None:
        """`servers`: the live servers and their keys. `revoked`: the ids of revoked keys.
        `secrets_of`: the Secrets that hold tokens of a key. `publish_time`: as given, and in
        seconds. `published_elsewhere`: the URL of the JWKS document, if it is not this server's.
        `own_user`: the user as which the server writes objects that show keys of files.
        """
        self._names = names
        self._feed = feed
        self._keys = feed.of(SigningKey)
        self._secrets = feed.of(Secret)
        self._authorizer = authorizer
        self._servers = servers
        self._revoked = revoked
        self._dependents = dependents
        self._secrets_of = secrets_of
        self._publish_text, seconds = publish_time
        self._publish = timedelta(seconds=seconds)
        self._elsewhere = published_elsewhere
        self._own_user = own_user

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Any:
        if old is None:
            return new
        if request.target.subresource:
            return await self._with_dependents(new, old, request.now)
        return replace(new, status=self._stepped(new, old, whole_seconds(request.now)))

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if old is None or request.target.subresource:
            return
        await self._feed.fresh()
        if new is None:
            self._review_deletion(kind, old)
        elif old.is_file and request.user.username != self._own_user:
            text = "it shows a key of the servers' files: change the files"
            raise Invalid(kind.about_kind(old.name), [forbidden(SPEC, text)])
        elif new.state != old.state and not old.is_file:
            await self._require(request, kind, old.name, VERBS.get(new.state, ""))
            reasons = await self._reasons(new.state, old, request.now)
            if reasons:
                problem = forbidden(STATE, "; ".join(reasons))
                raise Invalid(kind.about_kind(old.name), [problem])

    async def _require(self, request: Request, kind: Kind[Any], name: str, verb: str) -> None:
        target = replace(request.target, verb=verb)
        if verb and not (await self._authorizer.authorize(request.user, target)).allowed:
            raise Forbidden(kind.about(name), f"user not permitted to {verb} this key")

    # -- what must hold ----------------------------------------------------------------------

    async def _reasons(self, wanted: str, key: SigningKey, now: datetime) -> list[str]:
        """Why a key may not take a step; empty if it may."""
        is_revoked = key.key_id in self._revoked()
        if wanted == RETIRED:
            if is_revoked:
                return []
            if key.state != VERIFYING:
                return [f"only a revoked key changes from {key.state} to {RETIRED}"]
            found = await self._counted(key, now)
            return retirement_reasons(
                key, self._servers(), found, self._secrets_of(key.key_id), now
            )
        if wanted == VERIFYING:
            return ["it signs: activate another key first"] if self._is_signer(key) else []
        if is_revoked:
            return ["it is revoked"]
        if key.state == VERIFYING:
            return self._back_reasons(key, now)
        if self._is_signer(key):
            return []
        return activation_reasons(key, self._servers(), self._publish, now, self._elsewhere)

    def _back_reasons(self, key: SigningKey, now: datetime) -> list[str]:
        there = self._secrets.get(self._names.system_namespace, key_secret(key))
        if there is None:
            return ["its private key was deleted"]
        if key.back_until is not None and now >= key.back_until:
            return [f"it could become Active again until {timestamp(key.back_until)}"]
        return _lacking(key, self._servers())

    def _is_signer(self, key: SigningKey) -> bool:
        stored = [entry.object for entry in self._keys.entries.values()]
        signer = select(stored, self._revoked()).signer
        return signer is not None and signer.metadata.uid == key.metadata.uid

    def _review_deletion(self, kind: Kind[Any], old: SigningKey) -> None:
        if old.is_file:
            if any(old.key_id in one.keys for one in self._servers().values()):
                raise Forbidden(kind.about(old.name), "it shows a key of the servers' files")
        elif old.state in (ACTIVE, VERIFYING):
            raise Forbidden(
                kind.about(old.name), f"it is {old.state}: only a Retired key is deleted"
            )
        elif old.state == PUBLISHED and self._is_signer(old):
            raise Forbidden(kind.about(old.name), "it signs: activate another key first")

    # -- what the server fills in ------------------------------------------------------------

    def _stepped(self, new: SigningKey, old: SigningKey, now: datetime) -> Any:
        """The status after a change of the state; whatever was sent does not count."""
        status = old.status
        if new.state == old.state:
            return status
        times = status.times
        if new.state == ACTIVE:
            others = (entry.object.status.times.active for entry in self._keys.entries.values())
            latest = max((moment for moment in others if moment is not None), default=None)
            active = now if latest is None else max(now, latest + SECOND)
            # Tokens that it signed before were recorded by the publish time of that time.
            is_longer = old.publish_seconds > self._publish.total_seconds()
            return replace(
                status,
                times=replace(times, active=active, verifying=None),
                publish_time=status.publish_time if is_longer else self._publish_text,
            )
        if new.state == VERIFYING:
            return replace(status, times=replace(times, verifying=now))
        return replace(status, times=replace(times, retired=now))

    async def _with_dependents(self, new: SigningKey, old: SigningKey, now: datetime) -> SigningKey:
        """The object with its dependents as they are now."""
        if old.is_file or old.state not in (ACTIVE, VERIFYING):
            return replace(new, status=replace(new.status, dependents=old.status.dependents))
        found = await self._counted(old, now)
        return replace(new, status=replace(new.status, dependents=found))

    async def _counted(self, key: SigningKey, now: datetime) -> KeyDependents:
        found = await self._dependents(key, now)
        before = key.status.dependents
        return replace(
            found,
            unknown_until=before.unknown_until if before else None,
            secrets=len(self._secrets_of(key.key_id)),
        )


def activation_reasons(
    key: SigningKey, servers: Servers, publish: timedelta, now: datetime, elsewhere: str = ""
) -> list[str]:
    """Why verifiers or servers may not have a Published key yet.

    `elsewhere`: the URL from which verifiers fetch the keys, if it is not this server's.
    """
    reasons = _lacking(key, servers)
    since = key.status.times.published
    if since is None:
        if not reasons:
            reasons.append("the leader has not recorded yet that every server has it")
    elif elsewhere and key.status.found is None:
        reasons.append(f"the leader has not found it at {elsewhere}")
    elif now < (since := max(since, key.status.found or since)) + publish:
        possible = timestamp(since + publish)
        reasons.append(f"verifiers have it only after the publish time, from {possible}")
    return reasons


def retirement_reasons(
    key: SigningKey, servers: Servers, found: KeyDependents, secrets: list[str], now: datetime
) -> list[str]:
    """The live credentials that may depend on a Verifying key."""
    reasons = []
    signing = [name for name, one in servers.items() if one.signs == key.key_id]
    if signing:
        reasons.append(f"servers sign with it: {_listed(signing)}")
    since = key.status.times.verifying
    end = since + timedelta(seconds=key.publish_seconds) + ALLOWANCE if since else None
    if end is None or now < end:
        until = timestamp(end) if end else "an unknown time"
        reasons.append(f"tokens that it signed may be live until {until}")
    if found.live:
        last = f", the last until {timestamp(found.end)}" if found.end else ""
        text = f"{_counted(found.live, 'token')} of {_counted(found.holders, 'holder')}"
        longest = found.longest[0] if found.longest else None
        named = f"; longest {longest.holder} ({longest.count})" if longest else ""
        verb = "depends" if found.live == 1 else "depend"
        reasons.append(f"{text} {verb} on {key.name}{last}{named}")
    if secrets:
        text = "1 Secret holds" if len(secrets) == 1 else f"{len(secrets)} Secrets hold"
        reasons.append(f"{text} its tokens: {_listed(secrets)}")
    if found.unknown_until and now < found.unknown_until:
        until = timestamp(found.unknown_until)
        reasons.append(f"tokens from before its import may be live until {until}")
    return reasons


def _lacking(key: SigningKey, servers: Servers) -> list[str]:
    """Which live servers do not have a key."""
    if not servers:
        return ["no live server reports its keys yet"]
    lacking = sorted(name for name, one in servers.items() if key.key_id not in one.keys)
    if not lacking:
        return []
    return [
        f"{len(lacking)} of {_counted(len(servers), 'live server')} without it: {_listed(lacking)}"
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
