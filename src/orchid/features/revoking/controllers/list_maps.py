"""Revocation lists in ConfigMaps: whether one is as it was stored, and how the next replaces it.

`store` writes the parts of an edition first and its head last, so that readers have one edition or
the other. Others may write these ConfigMaps: nothing in them is trusted. Signing is in
publish_revocation_lists.py, the format in kernel/credentials/x509/stored_list.py.
"""

import hashlib
from datetime import datetime
from typing import Final, NamedTuple

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.credentials.x509.revocation_list import Edition
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import timestamp

LONGEST: Final = 20  # digits of a number
LARGEST_NUMBER: Final = 2**62  # the year 2116


class StoredEdition(NamedTuple):
    """An edition that was stored: as long as its ConfigMaps have it, no other one is needed."""

    number: int
    version: int  # of the entries
    public_key: str
    renewal: datetime
    head: dict[str, str]
    parts: dict[str, str]  # SHA-256 of the data, by the name of the ConfigMap


class ListMaps:
    """The ConfigMaps of all lists, in the system namespace."""

    def __init__(self, client: Client, home: str) -> None:
        self._client = client
        self._home = home

    async def head(self, name: str) -> ConfigMap | None:
        """The ConfigMap with the number and the first part of a list."""
        return await self._client.find(ConfigMap, stored_list.head_name(name), self._home)

    async def hold(self, stored: StoredEdition) -> bool:
        """Whether the ConfigMaps of an edition are as they were stored."""
        for index, (name, digest) in enumerate(stored.parts.items()):
            part = await self._client.find(ConfigMap, name, self._home)
            if part is None or digest_of(part.binary_data.get(stored_list.DATA, b"")) != digest:
                return False
            if index == 0 and part.data != stored.head:
                return False
        return True

    async def store(
        self, name: str, edition: Edition, parts: list[bytes], before: ConfigMap | None
    ) -> None:
        """Write an edition in place of the one whose head is `before`."""
        for index, part in enumerate(parts[1:], start=1):
            part_name = stored_list.part_name(name, edition.number, index)
            await self._client.create(self._part(part_name, part))
        head = self._part(stored_list.head_name(name), parts[0])
        data = head_data(edition, len(parts))
        if before is None:
            await self._client.create(replace(head, data=data))
            return
        if before.immutable:  # set by a user; revocations must get into the list all the same
            await self._client.delete_gone(ConfigMap, before)
            await self._client.create(replace(head, data=data))
        else:
            await self._client.update(replace(before, data=data, binary_data=head.binary_data))
        number, count = number_in(before, stored_list.NUMBER), number_in(before, stored_list.PARTS)
        for index in range(1, count):
            if not await self._remove(stored_list.part_name(name, number, index)):
                return

    async def remove_parts(self, stored: StoredEdition) -> None:
        """Delete an earlier edition; its head has been replaced."""
        for part in list(stored.parts)[1:]:
            await self._remove(part)

    async def _remove(self, name: str) -> bool:
        """Delete a ConfigMap; return whether there was one."""
        part = await self._client.find(ConfigMap, name, self._home)
        if part is not None:
            await self._client.delete_gone(ConfigMap, part)
        return part is not None

    def _part(self, name: str, data: bytes) -> ConfigMap:
        meta = ObjectMeta(name=name, namespace=self._home)
        return ConfigMap(metadata=meta, binary_data={stored_list.DATA: data})


def number_in(head: ConfigMap, field: str) -> int:
    """A number in the head of a list; 0 if it has other content."""
    text = head.data.get(field, "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST else 0
    return number if number < LARGEST_NUMBER else 0


def head_data(edition: Edition, parts: int) -> dict[str, str]:
    return stored_list.head_data(edition.number, timestamp(edition.next_update), parts)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
