"""Publish a certificate revocation list for each authority, for everyone who does not ask us.

Reads   issuedcertificates that are revoked; certificateauthorities that are Ready, and their keys
Writes  ConfigMaps in the system namespace that hold the lists (credentials/stored_list.py)
Never   lists a certificate of an authority that we do not run

A list is signed anew at each revocation and once a day, off the event loop. Only the leader does
so, and all servers serve what is stored, so everybody gets the same list from any of them. Its
number is the time in nanoseconds: not even a restored backup makes it go back. An entry stays until
a week after its certificate's end, which is longer than any list lasts.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from orchid.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.clock import Clock
from orchid.controllers.follow_authorities import AuthorityFollower, AuthorityKeys
from orchid.controllers.runtime.context import ControllerContext, Signer
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.events import EventRecorder
from orchid.controllers.runtime.loop import Running, Start, TryAgain, Worker
from orchid.credentials import stored_list
from orchid.credentials.authority import Authority
from orchid.credentials.refusals import NotPermittedToSign, Refusal
from orchid.credentials.revocation_list import UNSPECIFIED, Edition, RevokedCertificates
from orchid.kinds.config_map import ConfigMap
from orchid.kinds.issued_certificate import IssuedCertificate
from orchid.kinds.role import CORE, READ, rule
from orchid.wire.errors import Expired
from orchid.wire.meta import ObjectMeta
from orchid.wire.naming import Naming
from orchid.wire.struct import replace
from orchid.wire.text import timestamp

log = logging.getLogger(__name__)

RENEWED_AFTER: Final = timedelta(days=1)
LASTS: Final = timedelta(days=7)
BACKDATE: Final = timedelta(minutes=5)  # clocks differ
KEPT_AFTER_END: Final = LASTS
REVOKED: Final = ListSelection(IssuedCertificate, fields="status.revoked=true")
CANNOT_AGAIN: Final = 3600.0  # seconds until an authority that may not sign lists is asked again
KEY_AGAIN: Final = 30.0  # seconds until the key of an authority is looked for again


class PublishedList(msgspec.Struct):
    """What goes into the list of one authority."""

    authority: Callable[[], Authority]
    signers: frozenset[str]
    entries: RevokedCertificates = msgspec.field(default_factory=RevokedCertificates)
    ends: dict[int, datetime] = msgspec.field(default_factory=dict)

    def lists(self, record: IssuedCertificate) -> bool:
        """Whether a certificate was signed with the key that signs this list."""
        spec = record.spec
        return (
            spec.signer_name in self.signers and spec.authority_key == self.authority().key_id.hex()
        )

    def take(self, record: IssuedCertificate, *, revoked: bool) -> None:
        serial, told = int(record.spec.serial_number, 16), record.status.revoked
        if revoked and told and told.time and record.spec.not_after:
            self.entries.add(serial, told.time, told.reason or UNSPECIFIED)
            self.ends[serial] = record.spec.not_after
        else:
            self.entries.remove(serial)
            self.ends.pop(serial, None)

    def forget_ended(self, now: datetime) -> None:
        limit = now - KEPT_AFTER_END
        for serial in [serial for serial, end in self.ends.items() if end < limit]:
            self.entries.remove(serial)
            del self.ends[serial]


class PublishRevocationLists(Worker[str, None]):
    name = "revocation-list-publisher"
    workers = 1

    def __init__(
        self, client: Client, signers: Mapping[str, Signer], names: Naming, clock: Clock
    ) -> None:
        """`signers`: those of the platform; authorities of one's own are followed."""
        super().__init__()
        self._client = client
        self._signers = signers
        self._authorities = AuthorityFollower(client)
        self._own = AuthorityKeys(client, names, self._authorities)
        self._lists: dict[str, PublishedList] = {}
        self._home = names.system_namespace
        self._clock = clock

    async def follow(self, start: Start) -> None:
        self._authorities.forget()
        changed = asyncio.Event()
        start(self._authorities.follow(lambda _authority: changed.set()))
        await self._authorities.all_told.wait()
        known = self._certificates()
        own = await self._own_lists()
        self._lists = {**own, **platform_lists(self._signers)}
        start(self._follow_revoked())
        if len(own) < len(known):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._another(known, changed), KEY_AGAIN)
        else:
            await self._another(known, changed)
        raise Expired("another authority signs now")

    async def _another(self, known: dict[str, str], changed: asyncio.Event) -> None:
        """Wait until other authorities are Ready, or others' certificates."""
        while self._certificates() == known:
            await changed.wait()
            changed.clear()

    def _certificates(self) -> dict[str, str]:
        return {one.name: one.status.certificate for one in self._authorities.ready}

    async def _own_lists(self) -> dict[str, PublishedList]:
        """Those of the authorities whose keys are there; the last list of any other stays."""
        found = {}
        for one in self._authorities.ready:
            signer = one.spec.signer_name
            try:
                made = await self._own.signer(signer)
            except (Refusal, TryAgain) as problem:
                log.warning("crl.not_published", extra={"authority": one.name, "why": str(problem)})
                continue
            if made is not None:
                found[made.list_name] = PublishedList(made.authority, frozenset((signer,)))
        return found

    async def _follow_revoked(self) -> None:
        listed = False
        async with contextlib.aclosing(self._client.follow(REVOKED)) as batches:
            async for batch in batches:
                changed = {name for event in batch for name in self._take(event)}
                listed = listed or not batch
                for name in (changed if batch else self._lists) if listed else ():
                    self.queue.add(name)

    def _take(self, event: WatchedChange[IssuedCertificate]) -> list[str]:
        """Put one event into the lists; say into which."""
        record = event.object
        found = [name for name, one in self._lists.items() if one.lists(record)]
        for name in found:
            self._lists[name].take(record, revoked=event.type != DELETED)
        return found

    async def attend(self, key: str, value: None) -> float | None:
        wanted, now = self._lists.get(key), self._clock.now()
        if wanted is None:
            return None  # its authority is gone; the last list stays until it runs out
        wanted.forget_ended(now)
        number = int(now.timestamp() * 1_000_000) * 1000
        edition = Edition(number, now - BACKDATE, now + LASTS)
        authority, entries = wanted.authority(), wanted.entries.copy()
        try:
            data = await asyncio.to_thread(authority.sign_revocation_list, entries, edition)
        except NotPermittedToSign as refusal:
            log.warning("crl.not_published", extra={"authority": key, "why": str(refusal)})
            return CANNOT_AGAIN
        await self._store(key, edition, stored_list.split(data))
        return RENEWED_AFTER.total_seconds()

    async def _store(self, name: str, edition: Edition, parts: list[bytes]) -> None:
        for index, part in enumerate(parts[1:], start=1):
            place = stored_list.part_name(name, edition.number, index)
            await self._client.create(self._part(place, part))
        head = self._part(stored_list.head_name(name), parts[0])
        told = {
            stored_list.NUMBER: str(edition.number),
            stored_list.NEXT_UPDATE: timestamp(edition.next_update),
            stored_list.PARTS: str(len(parts)),
        }
        before = await self._client.find(ConfigMap, head.name, self._home)
        if before is None:
            await self._client.create(replace(head, data=told))
            return
        await self._client.update(replace(before, data=told, binary_data=head.binary_data))
        await self._remove_parts(name, before)

    async def _remove_parts(self, name: str, before: ConfigMap) -> None:
        number = int(before.data.get(stored_list.NUMBER, "0"))
        for index in range(1, int(before.data.get(stored_list.PARTS, "1"))):
            place = stored_list.part_name(name, number, index)
            found = await self._client.find(ConfigMap, place, self._home)
            if found is not None:
                await self._client.delete_gone(ConfigMap, found)

    def _part(self, name: str, data: bytes) -> ConfigMap:
        meta = ObjectMeta(name=name, namespace=self._home)
        return ConfigMap(metadata=meta, binary_data={stored_list.DATA: data})


def platform_lists(signers: Mapping[str, Signer]) -> dict[str, PublishedList]:
    """One list for each authority of the platform signers, by the name of the authority."""
    found: dict[str, PublishedList] = {}
    for name, signer in signers.items():
        before = found.get(signer.list_name)
        known = before.signers if before else frozenset[str]()
        found[signer.list_name] = PublishedList(signer.authority, known | {name})
    return found


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    return PublishRevocationLists(client, context.signers, context.names, context.clock)


CONTROLLER = ControllerDeclaration(
    name="revocation-list-publisher",
    long_name="revocation-list-publisher-controller",
    account="revocation-list-publisher",
    rights=lambda names: (
        rule(READ, names.identity, ("certificateauthorities", "issuedcertificates")),
    ),
    rights_at_home=lambda names: (
        rule(("create", "delete", "get", "update"), CORE, ("configmaps",)),
    ),
    reads_authority_keys=True,
    build=build,
)
