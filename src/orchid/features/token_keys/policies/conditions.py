"""Conditions of a step of a SigningKey, by the purpose of the key.

                        Published → Active                         Verifying → Retired
TokenKeyConditions      every live server has the key, and the     no live token depends on it, in
                        publish time has passed                    hand or in a Secret
AuthorityKeyConditions  the same, and three refresh hints of the   no valid certificate of the key
                        published bundle; nothing to wait for if   is in the inventory
                        its root is published already

Each method returns the reasons against a step; none if it may be taken. `SigningKeySteps` asks.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

from orchid.features.authorities.kinds.certificate_authority import CLUSTER
from orchid.features.objects.kinds.lease import ServerKeys
from orchid.features.token_keys.kinds.signing_key import ACTIVE, VERIFYING, SigningKey
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.wire.signing_key_status import KeyDependents
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import timestamp

# After the publish time, for clocks that differ and requests that were under way.
ALLOWANCE: Final = timedelta(minutes=2)
MOST_NAMED: Final = 5  # servers or Secrets in a message
HINTS: Final = 3  # refresh hints after which clients of a bundle have it (SPIFFE Federation, 5)

Servers = Mapping[str, ServerKeys]


class KeyConditions(Protocol):
    """Preconditions of the steps of a key."""

    def activation_reasons(self, key: SigningKey, servers: Servers, now: datetime) -> list[str]:
        """Why verifiers or servers may not have a Published key yet."""

    async def dependents(self, key: SigningKey, now: datetime) -> KeyDependents:
        """The live credentials of a key."""

    def retirement_reasons(
        self, key: SigningKey, servers: Servers, found: KeyDependents, now: datetime
    ) -> list[str]:
        """The live credentials that may depend on a Verifying key; `found`: the recorded ones."""


class TokenKeyConditions:
    """Token keys: verifiers fetch the JWKS document, and long tokens are recorded."""

    def __init__(
        self,
        counted: Callable[[SigningKey, datetime], Awaitable[KeyDependents]],
        secrets_of: Callable[[str], list[str]],
        publish: timedelta,
        elsewhere: str = "",
    ) -> None:
        """`counted`: the recorded tokens. `secrets_of`: the Secrets that hold tokens of a key.
        `elsewhere`: the URL from which verifiers fetch the keys, if it is not this server's.
        """
        self._counted = counted
        self._secrets_of = secrets_of
        self._publish = publish
        self._elsewhere = elsewhere

    def activation_reasons(self, key: SigningKey, servers: Servers, now: datetime) -> list[str]:
        found_at = key.status.found
        if self._elsewhere and key.status.times.published and found_at is None:
            missing = f"the leader has not found it at {self._elsewhere}"
            return [*lacking(key, servers), missing]
        return _unpublished(key, servers, self._publish, now, found_at)

    async def dependents(self, key: SigningKey, now: datetime) -> KeyDependents:
        found = await self._counted(key, now)
        return replace(found, secrets=len(self._secrets_of(key.key_id)))

    def retirement_reasons(
        self, key: SigningKey, servers: Servers, dependents: KeyDependents, now: datetime
    ) -> list[str]:
        reasons = []
        signing = [name for name, server in servers.items() if server.signs == key.key_id]
        if signing:
            reasons.append(f"servers sign with it: {_listed(signing)}")
        since = key.status.times.verifying
        end = since + timedelta(seconds=key.publish_seconds) + ALLOWANCE if since else None
        if end is None or now < end:
            until = timestamp(end) if end else "an unknown time"
            reasons.append(f"tokens that it signed may be live until {until}")
        if dependents.live:
            last = f", the last until {timestamp(dependents.end)}" if dependents.end else ""
            text = (
                f"{_counted(dependents.live, 'token')} of {_counted(dependents.holders, 'holder')}"
            )
            longest = dependents.longest[0] if dependents.longest else None
            named = f"; longest {longest.holder} ({longest.count})" if longest else ""
            verb = "depends" if dependents.live == 1 else "depend"
            reasons.append(f"{text} {verb} on {key.name}{last}{named}")
        secrets = self._secrets_of(key.key_id)
        if secrets:
            text = "1 Secret holds" if len(secrets) == 1 else f"{len(secrets)} Secrets hold"
            reasons.append(f"{text} its tokens: {_listed(secrets)}")
        return [*reasons, *_unknown(key, dependents, now)]


class AuthorityKeyConditions:
    """Keys of an authority: verifiers fetch trust bundles, and certificates are recorded."""

    def __init__(
        self,
        counted: Callable[[SigningKey], KeyDependents],
        keys_of: Callable[[str], list[SigningKey]],
        keys_below: Callable[[SigningKey], list[str]],
        publish: timedelta,
        hint_of: Callable[[str], timedelta],
    ) -> None:
        """`counted`: the valid certificates of a key. `keys_of`: the keys of an authority.
        `keys_below`: the keys of other authorities that a key certified. `hint_of`: the refresh
        hint of an authority's bundle.
        """
        self._counted = counted
        self._keys_of = keys_of
        self._keys_below = keys_below
        self._publish = publish
        self._hint_of = hint_of

    def activation_reasons(self, key: SigningKey, servers: Servers, now: datetime) -> list[str]:
        if self._has_published_root(key):
            return lacking(key, servers)
        wait = self._publish + HINTS * self._hint_of(key.spec.authority)
        return _unpublished(key, servers, wait, now)

    async def dependents(self, key: SigningKey, now: datetime) -> KeyDependents:
        return self._counted(key)

    def retirement_reasons(
        self, key: SigningKey, servers: Servers, dependents: KeyDependents, now: datetime
    ) -> list[str]:
        reasons = []
        since = key.status.times.verifying
        if since is None or now < since + ALLOWANCE:
            until = timestamp(since + ALLOWANCE) if since else "an unknown time"
            reasons.append(f"certificates that it signed may be under way until {until}")
        if dependents.live:
            verb = "depends" if dependents.live == 1 else "depend"
            last = f", the last until {timestamp(dependents.end)}" if dependents.end else ""
            text = f"{_counted(dependents.live, 'certificate')} {verb} on {key.name}{last}"
            reasons.append(f"{text}; issued --key {key.name} lists them")
        reasons += _serving(key, servers)
        below = self._keys_below(key)
        if below:
            reasons.append(f"keys of intermediate authorities depend on it: {_listed(below)}")
        earlier = self._earlier(key)
        if earlier:
            text = "its cross certificate is for verifiers that trust only an earlier key"
            reasons.append(f"{text}: {_listed(earlier)}")
        return [*reasons, *_unknown(key, dependents, now)]

    def _earlier(self, key: SigningKey) -> list[str]:
        """The keys still in use before one that they certified: keys are Retired in order."""
        began = key.status.times.active
        if not key.status.cross_certificate or began is None:
            return []
        return sorted(
            other.name
            for other in self._keys_of(key.spec.authority)
            if other.state == VERIFYING
            and other.status.times.active
            and other.status.times.active < began
        )

    def _has_published_root(self, key: SigningKey) -> bool:
        """Whether another key, which signs or signed, has the same certificate at its top."""
        others = (
            other
            for other in self._keys_of(key.spec.authority)
            if other.metadata.uid != key.metadata.uid and other.state in (ACTIVE, VERIFYING)
        )
        root = _root(key)
        return bool(root) and any(_root(other) == root for other in others)


def _root(key: SigningKey) -> bytes:
    try:
        return list(certificates.encoded_blocks(key.status.certificate))[-1]
    except (Refusal, IndexError):
        return b""


def _unpublished(
    key: SigningKey,
    servers: Servers,
    wait: timedelta,
    now: datetime,
    found_at: datetime | None = None,
) -> list[str]:
    """Why a key is not published for long enough; `found`: when it was found elsewhere."""
    reasons = lacking(key, servers)
    since = key.status.times.published
    if since is None:
        if not reasons:
            reasons.append("the leader has not recorded yet that every server has it")
    elif now < (since := max(since, found_at or since)) + wait:
        possible = timestamp(since + wait)
        reasons.append(f"verifiers have it only after the publish time, from {possible}")
    return reasons


def _unknown(key: SigningKey, found: KeyDependents, now: datetime) -> list[str]:
    if found.unknown_until and now < found.unknown_until:
        until = timestamp(found.unknown_until)
        return [f"{key.purpose.signs} from before its import may be live until {until}"]
    return []


def _serving(key: SigningKey, servers: Servers) -> list[str]:
    """Which live servers may have a serving certificate of a key."""
    if key.spec.authority != CLUSTER:
        return []
    serving = sorted(name for name, server in servers.items() if server.serves == key.key_id)
    silent = sorted(name for name, server in servers.items() if not server.serves)
    reasons = [f"servers serve with it: {_listed(serving)}"] if serving else []
    if silent:
        text = "servers do not report the authority of their serving certificate"
        reasons.append(f"{text}: {_listed(silent)}")
    return reasons


def lacking(key: SigningKey, servers: Servers) -> list[str]:
    """The live servers that do not have a key."""
    if not servers:
        return ["no live server reports its keys yet"]
    without = sorted(name for name, server in servers.items() if key.key_id not in server.keys)
    if not without:
        return []
    return [
        f"{len(without)} of {_counted(len(servers), 'live server')} without it: {_listed(without)}"
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
