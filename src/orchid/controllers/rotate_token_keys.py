"""Rotate token keys: create the successor, activate it in time, retire what nobody needs.

Reads   signingkeys; the Leases of servers; credentialrevocations that name a key; which Secrets of
        the system namespace exist
Writes  the state of a key, a new key, /status; deletes private keys that may no longer sign, and
        Retired keys after their retention
Never   judges whether a step is possible: the server does, also for the conditions, by a dry run

All keys are one piece of work (`_rotate`), since each step depends on the others. Every step is one
write and follows from the stored objects alone, so the next leader goes on where one was killed.
If token keys are files, objects only show them: those of keys that no server has are deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from orchid.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.clock import Clock
from orchid.controllers.runtime.context import ControllerContext, KeyRotation
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.events import NORMAL, WARNING, EventRecorder
from orchid.controllers.runtime.loop import Controller, Gone, Key, Running, Trigger, TryAgain
from orchid.credentials.keys import MADE_ALGORITHMS
from orchid.kinds.credential_revocation import CredentialRevocation
from orchid.kinds.lease import Lease, LiveServers, server_label
from orchid.kinds.role import CORE, READ, may_record_events, rule
from orchid.kinds.secret import Secret
from orchid.kinds.signing_key import (
    ACTIVATABLE,
    ACTIVE,
    PUBLISHED,
    RETIRABLE,
    RETIRED,
    VERIFYING,
    KeySelection,
    SigningKey,
    SigningKeySpec,
    key_secret,
    next_name,
    select,
)
from orchid.outbound.failures import CallFailed
from orchid.wire.conditions import FALSE, READY, TRUE, Condition, is_true, with_condition
from orchid.wire.errors import AlreadyExists, ApiError, Invalid
from orchid.wire.meta import Object, ObjectMeta
from orchid.wire.naming import Naming
from orchid.wire.struct import replace
from orchid.wire.text import whole_seconds

ALL: Final[Key] = ("", "tokens")  # the one piece of work
SOON: Final = 1.0  # seconds until the next look after a write
REFRESH: Final = 30.0  # seconds between two looks without an event
COUNTED: Final = 60.0  # seconds between two counts of what depends on a key
REPEAT: Final = timedelta(days=1)  # between two events about the same blocked step
ALLOWANCE: Final = timedelta(minutes=2)  # of the wait before Retired, for clocks that differ
KEY_LOST: Final = "KeyLost"


class RotateTokenKeys(Controller[SigningKey]):
    name = "token-key-rotation"
    workers = 1

    def __init__(
        self,
        client: Client,
        names: Naming,
        clock: Clock,
        events: EventRecorder,
        rotation: KeyRotation,
    ) -> None:
        super().__init__(client, ListSelection(SigningKey))
        self._names = names
        self._clock = clock
        self._events = events
        self._rotation = rotation
        self._keys: dict[str, SigningKey] = {}
        self._listed = asyncio.Event()
        self._servers = LiveServers(names, clock.monotonic)
        self._revocations: dict[str, CredentialRevocation] = {}  # those that name a key
        self._secrets: set[str] = set()  # names of Secrets in the system namespace
        self._refreshed: dict[str, object] = {}  # what the last status of each key was made from
        self._reported: dict[tuple[str, str], datetime] = {}  # the last event about a blocked step
        home = names.system_namespace
        servers = ListSelection(Lease, namespace=home, labels=f"{server_label(names)}=true")
        self.triggers = (
            Trigger(servers, self._on_lease),
            Trigger(ListSelection(CredentialRevocation), self._on_revocation),
            Trigger(ListSelection(Secret, home, read_as=Object), self._on_secret),
        )

    # -- what is followed --------------------------------------------------------------------

    def starting(self) -> None:
        self._listed.clear()
        self._keys.clear()

    async def all_listed(self) -> None:
        self._listed.set()
        self.queue.add(ALL)

    def take(self, event: WatchedChange[SigningKey]) -> None:
        found = event.object
        if event.type == DELETED:
            self._keys.pop(found.name, None)
            self._refreshed.pop(found.name, None)
        else:
            self._keys[found.name] = found
        if self._listed.is_set():
            self.queue.add(ALL)

    async def _on_lease(self, event: WatchedChange[Lease]) -> AsyncIterator[Key]:
        lease, before = event.object, self._servers.live()
        if event.type == DELETED:
            self._servers.ended(lease.name)
        else:
            self._servers.renewed(lease.name, lease.metadata.annotations)
        if self._servers.live() != before:
            yield ALL

    async def _on_revocation(
        self, event: WatchedChange[CredentialRevocation]
    ) -> AsyncIterator[Key]:
        found = event.object
        if found.spec.key is None:
            return
        if event.type == DELETED:
            self._revocations.pop(found.name, None)
        else:
            self._revocations[found.name] = found
        yield ALL

    async def _on_secret(self, event: WatchedChange[Secret]) -> AsyncIterator[Key]:
        name = event.object.name
        if event.type == DELETED:
            self._secrets.discard(name)
        else:
            self._secrets.add(name)
        if name.startswith("signing-key-"):
            yield ALL

    # -- the work ----------------------------------------------------------------------------

    async def reconcile(self, found: SigningKey) -> float | None:
        return await self._rotate()

    async def attend(self, key: Key, value: SigningKey | Gone[SigningKey] | None) -> float | None:
        if not self._listed.is_set():
            raise TryAgain("not every token key is known yet")
        return await self._rotate()

    async def _rotate(self) -> float:
        """Take one step, or refresh the status of each key; return when to look again."""
        if await self._remove_shown():
            return SOON
        stored = [key for key in self._keys.values() if not key.is_file]
        if not stored or not self._rotation.is_stored:
            return REFRESH
        chosen = select(stored, self._revoked_ids())
        if await self._step(stored, chosen):
            return SOON
        for key in stored:
            await self._refresh(key, chosen)
        return self._pause(stored)

    def _pause(self, stored: list[SigningKey]) -> float:
        """Seconds until the next moment at which a step may become possible."""
        now, rotation = self._clock.now(), self._rotation
        moments = []
        for key in stored:
            times, wait = key.status.times, timedelta(seconds=key.publish_seconds)
            for since, spans in (
                (times.published, (rotation.publish_time,)),
                (times.active, (rotation.period,)),
                (times.verifying, (wait, wait + ALLOWANCE)),
            ):
                moments += [since + span for span in spans] if since else []
        left = ((moment - now).total_seconds() for moment in moments if moment > now)
        return min([REFRESH, *(max(seconds, SOON) for seconds in left)])

    async def _remove_shown(self) -> bool:
        """Delete an object that shows a key of files which no live server has."""
        live = self._servers.live().values()
        for key in self._keys.values():
            if key.is_file and live and not any(key.key_id in server.keys for server in live):
                await self._client.delete_gone(SigningKey, key)
                return True
        return False

    async def _step(self, stored: list[SigningKey], chosen: KeySelection) -> bool:
        """Take the first step that is due; return whether there was one."""
        return (
            await self._settle(stored, chosen)
            or await self._publish(stored, chosen)
            or await self._activate_successor(chosen)
            or await self._clean_up(stored)
        )

    async def _settle(self, stored: list[SigningKey], chosen: KeySelection) -> bool:
        """Bring the states in line with the signer."""
        signer = chosen.signer
        for key in stored:
            if key.state != RETIRED and key.key_id in self._revoked_ids():
                await self._set(key, RETIRED)
                self._record(key, RETIRED, "Retired: the key is revoked.")
                return True
            if key.state == ACTIVE and signer and key.metadata.uid != signer.metadata.uid:
                await self._set(key, VERIFYING)
                return True
        if signer and signer.state == PUBLISHED:
            await self._set(signer, ACTIVE)
            self._record(signer, "ActivatedEarly", "Signs tokens: there is no other key.", WARNING)
            return True
        return False

    async def _publish(self, stored: list[SigningKey], chosen: KeySelection) -> bool:
        """Have a successor, and record when every live server has it."""
        signer, waiting = chosen.signer, self._waiting(chosen)
        if not waiting:
            return await self._create(stored, signer)
        live = self._servers.live().values()
        for key in waiting:
            is_new = key.status.times.published is None
            if is_new and live and all(key.key_id in server.keys for server in live):
                times = replace(key.status.times, published=whole_seconds(self._clock.now()))
                status = replace(key.status, times=times)
                await self._client.update_status(replace(key, status=status))
                self._record(key, PUBLISHED, f"Every live server ({len(live)}) has the key.")
                return True
        return await self._find_elsewhere(waiting)

    async def _find_elsewhere(self, waiting: list[SigningKey]) -> bool:
        """Record that a key is at the URL from which verifiers fetch the keys."""
        fetch, missing = self._rotation.elsewhere, [k for k in waiting if k.status.found is None]
        if fetch is None or not missing:
            return False
        try:
            found = await fetch()
        except CallFailed as problem:
            self._report_blocked(missing[0], "NotActivated", str(problem))
            return False
        for key in missing:
            if key.key_id in found:
                now = whole_seconds(self._clock.now())
                await self._client.update_status(
                    replace(key, status=replace(key.status, found=now))
                )
                return True
        return False

    def _waiting(self, chosen: KeySelection) -> list[SigningKey]:
        """The Published keys that do not sign, oldest first."""
        return [key for key in chosen.signers[1:] if key.state == PUBLISHED]

    async def _create(self, stored: list[SigningKey], signer: SigningKey | None) -> bool:
        algorithm = signer.status.algorithm if signer else ""
        new = SigningKey(
            metadata=ObjectMeta(name=next_name(self._keys.values())),
            spec=SigningKeySpec(
                algorithm=algorithm if algorithm in MADE_ALGORITHMS else MADE_ALGORITHMS[0],
                state=PUBLISHED,
            ),
        )
        try:
            made = await self._client.create(new)
        except AlreadyExists:
            raise TryAgain("another server has just created a key") from None
        self._record(made, "Made", f"Created a {made.status.algorithm} key.")
        return True

    async def _activate_successor(self, chosen: KeySelection) -> bool:
        signer, waiting = chosen.signer, self._waiting(chosen)
        if signer is None or not waiting or not self._is_due(signer):
            return False
        successor = waiting[0]
        try:
            await self._set(successor, ACTIVE)
        except Invalid as refusal:
            self._report_blocked(successor, "NotActivated", _reasons(refusal))
            return False
        self._record(successor, "Activated", f"Signs tokens in place of {signer.name}.")
        return True

    def _is_due(self, signer: SigningKey) -> bool:
        """Whether another key should sign as soon as it may."""
        if key_secret(signer) not in self._secrets:
            return True  # the next restart could not sign with it
        born = signer.metadata.creation_timestamp
        revoked = (one.metadata.creation_timestamp for one in self._revocations.values())
        if any(born and moment and born <= moment for moment in revoked):
            return True  # verifiers may have cached the revoked key: a new id makes them fetch
        since, period = signer.status.times.active, self._rotation.period
        return bool(period and since and self._clock.now() >= since + period)

    async def _clean_up(self, stored: list[SigningKey]) -> bool:
        now = self._clock.now()
        for key in stored:
            secret = key_secret(key)
            has_private = secret in self._secrets
            is_over = key.state == VERIFYING and key.back_until is not None
            if has_private and (
                key.state == RETIRED or (is_over and key.back_until and now >= key.back_until)
            ):
                await self._client.delete(Secret, secret, self._names.system_namespace)
                self._secrets.discard(secret)
                return True
            since = key.status.times.retired
            if key.state == RETIRED and since and now >= since + self._rotation.retention:
                await self._client.delete_gone(SigningKey, key)
                return True
            if key.state == VERIFYING and await self._retired(key):
                return True
        return False

    async def _retired(self, key: SigningKey) -> bool:
        """Retire a key of which the last status reports that nothing depends on it."""
        if not is_true(key.status.conditions, RETIRABLE):
            return False
        try:
            await self._set(key, RETIRED)
        except Invalid:
            return False  # the next status has the reasons
        self._record(key, RETIRED, "Retired: nothing depends on the key.")
        return True

    async def _set(self, key: SigningKey, state: str, *, dry_run: bool = False) -> None:
        new = replace(key, spec=replace(key.spec, state=state))
        await self._client.update(new, dry_run=dry_run)

    def _revoked_ids(self) -> set[str]:
        named = (one.spec.key for one in self._revocations.values())
        return {key.key_id for key in named if key}

    # -- status and events -------------------------------------------------------------------

    async def _refresh(self, key: SigningKey, chosen: KeySelection) -> None:
        """Write the conditions; the server adds the dependents."""
        facts = (
            key.metadata.resource_version,
            key_secret(key) in self._secrets,
            chosen.signer == key,
            self._servers.live(),
            self._clock.now().timestamp() // COUNTED,
        )
        if self._refreshed.get(key.name) == facts:
            return
        conditions = key.status.conditions
        for one in await self._conditions(key, chosen):
            timed = replace(one, observed_generation=key.metadata.generation)
            conditions = with_condition(conditions, timed, self._clock.now())
        before = {one.type: one.reason for one in key.status.conditions}
        await self._client.update_status(
            replace(key, status=replace(key.status, conditions=conditions))
        )
        self._refreshed[key.name] = facts
        self._report_unretired(key, conditions)
        for one in conditions:
            if one.reason == KEY_LOST and before.get(one.type) != KEY_LOST:
                self._record(key, KEY_LOST, one.message, WARNING)

    def _report_unretired(self, key: SigningKey, conditions: Sequence[Condition]) -> None:
        """Record an event if a key verifies for longer than the wait before it may be Retired."""
        until = key.back_until
        if key.state == VERIFYING and until and self._clock.now() >= until + ALLOWANCE:
            for one in conditions:
                if one.type == RETIRABLE and one.status == FALSE:
                    self._report_blocked(key, "NotRetired", one.message)

    async def _conditions(self, key: SigningKey, chosen: KeySelection) -> list[Condition]:
        found = [self._ready(key, chosen)]
        for type_, state, starts in (
            (ACTIVATABLE, ACTIVE, (PUBLISHED, VERIFYING)),
            (RETIRABLE, RETIRED, (VERIFYING,)),
        ):
            if key.state in starts and (key.signs or state != ACTIVE):
                found.append(await self._possible(key, type_, state))
            else:
                text = f"A key in state {key.state} does not become {state}."
                found.append(Condition(type=type_, status=FALSE, reason=key.state, message=text))
        return found

    async def _possible(self, key: SigningKey, type_: str, state: str) -> Condition:
        try:
            await self._set(key, state, dry_run=True)
        except Invalid as refusal:
            text = _reasons(refusal)
            return Condition(type=type_, status=FALSE, reason="NotYet", message=text)
        text = f"The key may become {state}."
        return Condition(type=type_, status=TRUE, reason="ConditionsHold", message=text)

    def _ready(self, key: SigningKey, chosen: KeySelection) -> Condition:
        is_signer = chosen.signer is not None and chosen.signer.metadata.uid == key.metadata.uid
        is_lost = key.state in (PUBLISHED, ACTIVE) and key_secret(key) not in self._secrets
        if is_lost:
            text = "The Secret with the private key is gone; restore it, or let the successor sign."
            return Condition(type=READY, status=FALSE, reason=KEY_LOST, message=text)
        if key.state == RETIRED:
            return Condition(type=READY, status=FALSE, reason=RETIRED, message="It is Retired.")
        text = "Signs and verifies tokens." if is_signer else "Verifies tokens."
        reason = "Signs" if is_signer else "Verifies"
        return Condition(type=READY, status=TRUE, reason=reason, message=text)

    def _record(self, key: SigningKey, reason: str, text: str, type_: str = NORMAL) -> None:
        self._events.record(self.name, key, reason, text, type_=type_)

    def _report_blocked(self, key: SigningKey, reason: str, text: str) -> None:
        """Record an event about a step that is due and not possible, once a day."""
        now, about = self._clock.now(), (key.name, reason)
        last = self._reported.get(about)
        if last is None or now - last >= REPEAT:
            self._reported[about] = now
            self._record(key, reason, text, WARNING)


def _reasons(refusal: ApiError) -> str:
    """The reasons in the rejection of a step, without the name of the object and the field."""
    causes = refusal.details.causes if refusal.details else ()
    texts = [one.message.removeprefix("Forbidden: ") for one in causes]
    return "; ".join(texts) or refusal.message


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    return RotateTokenKeys(client, context.names, context.clock, events, context.key_rotation)


CONTROLLER = ControllerDeclaration(
    name="token-key-rotation",
    long_name="token-key-rotation-controller",
    account="token-key-rotation-controller",
    rights=lambda names: (
        rule(
            ("activate", "create", "delete", "retire", "update", *READ),
            names.identity,
            ("signingkeys",),
        ),
        rule(("update",), names.identity, ("signingkeys/status",)),
        rule(("list", "watch"), names.identity, ("credentialrevocations",)),
        may_record_events(names),
    ),
    rights_at_home=lambda names: (
        rule(("delete", "list", "watch"), CORE, ("secrets",)),
        rule(("list", "watch"), names.coordination, ("leases",)),
    ),
    build=build,
)
