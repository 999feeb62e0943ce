"""Rotation of SigningKeys: successors, activation in time, retirement of what nobody needs.

Reads   signingkeys; the Leases of servers; credentialrevocations that name a key; which Secrets of
        the system namespace exist
Writes  the state of a key, a new key, /status; deletes private keys that may no longer sign, and
        Retired keys after their retention
Never   judges whether a step is possible: the server does, also for the conditions, by a dry run

The keys of a group, of which one signs (key_groups.py), are one piece of work (`_rotate`), since
each step depends on the others. Every step is one write and follows from the stored objects alone,
so the next leader goes on where one was killed. rotate_token_keys.py and
features/authorities/controllers/rotate_authority_keys.py say when a key needs a successor, and when
that one is due.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from orchid.features.objects.kinds.lease import Lease, LiveServers, server_label
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.token_keys.controllers.key_conditions import (
    KEY_LOST,
    key_conditions,
    reasons,
    set_state,
)
from orchid.features.token_keys.controllers.key_groups import KeyGroup, authority_of, group_key
from orchid.features.token_keys.controllers.key_revocations import KeyRevocations, is_any_revoked
from orchid.features.token_keys.key_selection import KeySelection, select
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    MADE,
    PUBLIC_ONLY,
    PUBLISHED,
    RETIRABLE,
    RETIRED,
    VERIFYING,
    SigningKey,
    key_location,
)
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.runtime.events import NORMAL, WARNING, EventRecorder
from orchid.kernel.runtime.loop import Controller, Gone, Key, Trigger, TryAgain
from orchid.kernel.wire.conditions import FALSE, Condition, is_true, with_conditions
from orchid.kernel.wire.errors import AlreadyExists, Forbidden, Invalid
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, PolicyRule, may_record_events, rule
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.struct import replace

AT_ONCE: Final = 0.0
SOON: Final = 1.0  # seconds until the next look after a write
REFRESH: Final = 30.0  # seconds between two looks without an event
COUNTED: Final = 60.0  # seconds between two counts of what depends on a key
COUNTED_AT_LAST: Final = 30.0  # the same for a Verifying key: it is Retirable within a minute
REPEAT: Final = timedelta(days=1)  # between two events about the same blocked step
ALLOWANCE: Final = timedelta(minutes=2)  # of the wait before Retired, for clocks that differ


class RotationTimes(NamedTuple):
    """The time from publication to signing, and the retention of Retired keys."""

    publish_time: timedelta
    retention: timedelta


class RotateKeys(Controller[SigningKey]):
    """The steps that all groups of keys have in common."""

    workers = 1

    def __init__(
        self,
        client: Client,
        naming: Naming,
        clock: Clock,
        events: EventRecorder,
        times: RotationTimes,
    ) -> None:
        super().__init__(client, ListSelection(SigningKey))
        self._naming = naming
        self._clock = clock
        self._events = events
        self._times = times
        self._groups: dict[str, dict[str, SigningKey]] = {}  # by authority and name
        self.named: dict[str, str] = {}  # the authority of every key, also of others, by name
        self._authority_of: dict[str, str] = {}  # by the name of a key, and of its Secret
        self._listed = asyncio.Event()
        self._servers = LiveServers(naming, clock.monotonic)
        self._revocations = KeyRevocations()
        self._secrets: set[str] = set()  # names of Secrets in the system namespace
        self._refreshed: dict[str, object] = {}  # what the last status of each key was made from
        self._reported: dict[tuple[str, str], datetime] = {}  # the last event about a blocked step
        home = naming.system_namespace
        servers = ListSelection(Lease, namespace=home, labels=f"{server_label(naming)}=true")
        self.triggers = (
            Trigger(servers, self._on_lease),
            Trigger(ListSelection(CredentialRevocation), self._on_revocation),
            Trigger(ListSelection(Secret, home, read_as=Object), self._on_secret),
        )

    # -- what differs ------------------------------------------------------------------------

    @abstractmethod
    def concerns(self, key: SigningKey) -> bool:
        """Whether a key is one of ours."""

    @abstractmethod
    def successor(self, group: KeyGroup) -> SigningKey | None:
        """The successor that a group needs now; None if it needs none yet."""

    @abstractmethod
    def is_due(self, group: KeyGroup, signer: SigningKey) -> bool:
        """Whether the successor should sign in time, because of the age of the signer."""

    @abstractmethod
    def moments(self, group: KeyGroup) -> Iterator[datetime]:
        """The times at which a successor becomes needed or due."""

    @abstractmethod
    def keeps_private(self, key: SigningKey) -> bool:
        """Whether a key that does not sign any more needs its private key all the same."""

    def members(self, authority: str) -> list[SigningKey]:
        """The stored keys of a group."""
        keys = self._groups.get(authority, {}).values()
        return [key for key in keys if not key.is_file]

    async def first_step(self, authority: str) -> bool:
        """Take a step that comes before all others; return whether there was one."""
        return False

    async def last_step(self, group: KeyGroup) -> bool:
        """Take a step of the publication of a key; return whether there was one."""
        return False

    # -- what is followed --------------------------------------------------------------------

    def starting(self) -> None:
        self._listed.clear()
        self._groups.clear()
        self.named.clear()
        self._authority_of.clear()

    async def all_listed(self) -> None:
        self._listed.set()
        self.wake()

    def wake(self) -> None:
        """Queue every group."""
        for authority in self._groups:
            self.queue.add(group_key(authority))

    def take(self, event: WatchedChange[SigningKey]) -> None:
        key = event.object
        if event.type == DELETED:
            self.named.pop(key.name, None)
        else:
            self.named[key.name] = key.group
        if not self.concerns(key):
            return
        group = self._groups.setdefault(key.spec.authority, {})
        if event.type == DELETED:
            group.pop(key.name, None)
            self._refreshed.pop(key.name, None)
        else:
            group[key.name] = key
            for name in (key.name, self._secret_of(key).name):
                self._authority_of[name] = key.spec.authority
        if self._listed.is_set():
            self.queue.add(group_key(key.spec.authority))

    async def _on_lease(self, event: WatchedChange[Lease]) -> AsyncIterator[Key]:
        lease, before = event.object, self._servers.live()
        if event.type == DELETED:
            self._servers.ended(lease.name)
        else:
            meta = lease.metadata
            self._servers.renewed(lease.name, meta.resource_version, meta.annotations)
        if self._servers.live() != before:
            for authority in self._groups:
                yield group_key(authority)

    async def _on_revocation(
        self, event: WatchedChange[CredentialRevocation]
    ) -> AsyncIterator[Key]:
        named = self._revocations.take(event)
        if named is None:
            return
        for authority in list(self._groups):
            if is_any_revoked(self.members(authority), named):
                yield group_key(authority)

    async def _on_secret(self, event: WatchedChange[Secret]) -> AsyncIterator[Key]:
        name = event.object.name
        if event.type == DELETED:
            self._secrets.discard(name)
        else:
            self._secrets.add(name)
        if name in self._authority_of:
            yield group_key(self._authority_of[name])

    # -- the work ----------------------------------------------------------------------------

    async def reconcile(self, found: SigningKey) -> float | None:
        return await self._rotate(found.spec.authority)

    async def attend(self, key: Key, value: SigningKey | Gone[SigningKey] | None) -> float | None:
        if not self._listed.is_set():
            raise TryAgain("not every key is known yet")
        return await self._rotate(authority_of(key))

    async def _rotate(self, authority: str) -> float | None:
        """Take one step, or refresh the status of each key; return when to look again."""
        if await self.first_step(authority):
            return SOON
        stored = self.members(authority)
        if not stored:
            return REFRESH
        group = KeyGroup(
            authority, stored, select(stored, self._revocations.identities(), authority)
        )
        if await self._step(group):
            return SOON
        for key in stored:
            if await self._refresh(key, group.chosen):
                return AT_ONCE  # a step may be due meanwhile; it does not wait for all the others
        return self._pause(group)

    def _pause(self, group: KeyGroup) -> float:
        """Seconds until the next moment at which a step may become possible."""
        now, times = self._clock.now(), self._times
        moments = list(self.moments(group))
        for key in group.stored:
            since, wait = key.status.times, timedelta(seconds=key.publish_seconds)
            moments += [since.published + times.publish_time] if since.published else []
            if since.verifying:
                moments += [since.verifying + wait, since.verifying + wait + ALLOWANCE]
        left = ((moment - now).total_seconds() for moment in moments if moment > now)
        return min([self.longest_pause(group), *(max(seconds, SOON) for seconds in left)])

    def longest_pause(self, group: KeyGroup) -> float:
        """Seconds between two looks without an event."""
        return REFRESH

    async def _step(self, group: KeyGroup) -> bool:
        """Take the first step that is due; return whether there was one."""
        return (
            await self._settle(group)
            or await self._publish(group)
            or await self._activate_successor(group)
            or await self._clean_up(group.stored)
        )

    async def _settle(self, group: KeyGroup) -> bool:
        """Bring the states in line with the signer."""
        signer = group.chosen.signer
        for key in group.stored:
            if key.state != RETIRED and key.is_revoked(self._revocations.identities()):
                await set_state(self._client, key, RETIRED)
                self._record(key, RETIRED, "Retired: the key is revoked.")
                return True
            if key.state == ACTIVE and signer and key.metadata.uid != signer.metadata.uid:
                await set_state(self._client, key, VERIFYING)
                return True
        if signer and signer.state == PUBLISHED:
            await set_state(self._client, signer, ACTIVE)
            text = f"Signs {signer.purpose.signs}: there is no other key."
            if signer.is_first:
                self._record(signer, "Activated", text)
            else:
                self._record(signer, "ActivatedEarly", text, WARNING)
            return True
        return False

    async def _publish(self, group: KeyGroup) -> bool:
        """Create a successor when due; set `published` once every live server has it."""
        if all(map(self.is_unusable, group.waiting)):
            second = whole_seconds(self._clock.now())
            if any(
                second <= moment <= second + ALLOWANCE
                for moment in self._revoked_at(group.authority)
            ):
                raise TryAgain("a key of this second would count as older than the revocation")
            new = self.successor(group)
            return new is not None and await self._create(new, group)
        live = self._servers.live().values()
        for key in group.waiting:
            is_new = key.status.times.published is None
            if is_new and live and all(key.key_id in server.keys for server in live):
                times = replace(key.status.times, published=whole_seconds(self._clock.now()))
                status = replace(key.status, times=times)
                await self._client.update_status(replace(key, status=status))
                self._record(key, PUBLISHED, f"Every live server ({len(live)}) has the key.")
                return True
        return await self.last_step(group)

    async def _create(self, new: SigningKey, group: KeyGroup) -> bool:
        try:
            key = await self._client.create(new)
        except AlreadyExists:
            raise TryAgain("another server has just created a key") from None
        except (Forbidden, Invalid) as refusal:
            self._report_blocked(group.chosen.signer or group.stored[0], "NotMade", str(refusal))
            return False
        self._record(key, "Made", f"Created a {key.status.algorithm} key.")
        return True

    async def _activate_successor(self, group: KeyGroup) -> bool:
        signer = group.chosen.signer
        waiting = [key for key in group.waiting if not self.is_lost(key)]
        if signer is None or not waiting or not self._is_needed(group, signer):
            return False
        successor = waiting[0]
        try:
            await set_state(self._client, successor, ACTIVE)
        except Invalid as refusal:
            self._report_blocked(successor, "NotActivated", reasons(refusal))
            return False
        text = f"Signs {signer.purpose.signs} in place of {signer.name}."
        self._record(successor, "Activated", text)
        return True

    def _is_needed(self, group: KeyGroup, signer: SigningKey) -> bool:
        """Whether another key should sign as soon as it may."""
        return self.must_go(signer) or self.is_due(group, signer)

    def must_go(self, signer: SigningKey) -> bool:
        """Whether the signer should be replaced whatever its age."""
        if self.is_lost(signer):
            return True  # the next restart could not sign with it
        born, revoked = signer.metadata.creation_timestamp, self._revoked_at(signer.spec.authority)
        # Verifiers may have cached the revoked key: a new id makes them fetch.
        return any(born and born <= moment for moment in revoked)

    def _revoked_at(self, authority: str) -> list[datetime]:
        """When the revoked keys of a group were revoked."""
        return self._revocations.moments(self.members(authority))

    async def _clean_up(self, stored: list[SigningKey]) -> bool:
        now = self._clock.now()
        for key in stored:
            secret = self._secret_of(key).name
            if self._is_past(key, now) and self._is_deletable(key) and secret in self._secrets:
                await self._client.delete(Secret, secret, self._naming.system_namespace)
                self._secrets.discard(secret)
                return True
            since = key.status.times.retired
            if key.state == RETIRED and since and now >= since + self._times.retention:
                await self._client.delete_gone(SigningKey, key)
                return True
            if key.state == VERIFYING and await self._retired(key):
                return True
        return False

    def _is_past(self, key: SigningKey, now: datetime) -> bool:
        """Whether nobody needs the private key of a key any more."""
        if key.state != VERIFYING or self.keeps_private(key):
            return key.state == RETIRED
        return key.back_until is not None and now >= key.back_until

    def _is_deletable(self, key: SigningKey) -> bool:
        """Whether the server made the Secret with the private key; users delete their own."""
        secret = self._secret_of(key)
        is_ours = key.spec.secret_ref is None or key.status.source == MADE or not key.spec.authority
        return is_ours and secret.namespace == self._naming.system_namespace

    def is_lost(self, key: SigningKey) -> bool:
        """Whether the Secret with a private key is gone; keys elsewhere are not watched."""
        secret = self._secret_of(key)
        is_watched = not key.hsm_label and secret.namespace == self._naming.system_namespace
        return is_watched and secret.name not in self._secrets

    def is_unusable(self, key: SigningKey) -> bool:
        """Whether a successor has lost its private key; a new one may be seen before its Secret."""
        born = key.metadata.creation_timestamp
        return self.is_lost(key) and (born is None or self._clock.now() - born > ALLOWANCE)

    def _secret_of(self, key: SigningKey) -> SecretReference:
        return key_location(key, self._naming.system_namespace)

    async def _retired(self, key: SigningKey) -> bool:
        """Retire a key of which the last status reports that nothing depends on it."""
        if not is_true(key.status.conditions, RETIRABLE):
            return False
        try:
            await set_state(self._client, key, RETIRED)
        except Invalid:
            return False  # the next status has the reasons
        self._record(key, RETIRED, "Retired: nothing depends on the key.")
        return True

    # -- status and events -------------------------------------------------------------------

    async def _refresh(self, key: SigningKey, selection: KeySelection) -> bool:
        """Write the conditions, if one may have changed; the server adds the dependents.

        Returns whether they were written.
        """
        signer, is_lost = selection.signer, self.is_lost(key)
        is_signer = signer is not None and signer.metadata.uid == key.metadata.uid
        facts = (
            key.state,
            replace(key.status, conditions=(), dependents=None),  # without what is written here
            is_lost,
            is_signer,
            self._servers.live() if key.state != ACTIVE else None,
            self._clock.now().timestamp()
            // (COUNTED_AT_LAST if key.state == VERIFYING else COUNTED),
        )
        if self._refreshed.get(key.name) == facts:
            return False
        judged = await key_conditions(self._client, key, is_signer=is_signer, is_lost=is_lost)
        reported = with_conditions(key, judged, self._clock.now())
        conditions = reported.status.conditions
        before = {condition.type: condition.reason for condition in key.status.conditions}
        await self._client.update_status(reported)
        self._refreshed[key.name] = facts
        self._report_unretired(key, conditions)
        for condition in conditions:
            if (
                condition.reason in (KEY_LOST, PUBLIC_ONLY)
                and before.get(condition.type) != condition.reason
            ):
                self._record(key, condition.reason, condition.message, WARNING)
        return True

    def _report_unretired(self, key: SigningKey, conditions: Sequence[Condition]) -> None:
        """Record an event if a key verifies for longer than the wait before it may be Retired."""
        until = key.back_until
        if key.state == VERIFYING and until and self._clock.now() >= until + ALLOWANCE:
            for condition in conditions:
                if condition.type == RETIRABLE and condition.status == FALSE:
                    self._report_blocked(key, "NotRetired", condition.message)

    def _record(self, key: SigningKey, reason: str, text: str, type_: str = NORMAL) -> None:
        self._events.record(self.name, key, reason, text, type_=type_)

    def _report_blocked(self, key: SigningKey, reason: str, text: str) -> None:
        """Record an event about a step that is due and not possible, once a day."""
        now, about = self._clock.now(), (key.name, reason)
        last = self._reported.get(about)
        if last is None or now - last >= REPEAT:
            self._reported[about] = now
            self._record(key, reason, text, WARNING)


def rights(naming: Naming) -> tuple[PolicyRule, ...]:
    """Rights of a controller that rotates keys."""
    steps = ("activate", "create", "delete", "retire", "update", *READ)
    return (
        rule(steps, naming.identity, ("signingkeys",)),
        rule(("update",), naming.identity, ("signingkeys/status",)),
        rule(("list", "watch"), naming.identity, ("credentialrevocations",)),
        may_record_events(naming),
    )


def rights_at_home(naming: Naming) -> tuple[PolicyRule, ...]:
    """Its rights in the system namespace: private keys that may no longer sign, and servers."""
    return (
        rule(("delete", "list", "watch"), CORE, ("secrets",)),
        rule(("list", "watch"), naming.coordination, ("leases",)),
    )
