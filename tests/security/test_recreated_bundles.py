"""A published bundle that is deleted and created again serves nothing of the earlier one."""

import contextlib
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles import stored_edition
from orchid.features.trust_bundles.editions import PublishedEditions
from orchid.features.trust_bundles.kinds.published_bundle import (
    PublishedBundle,
    PublishedBundleStatus,
)
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.authorities.test_keep_authorities import KEEPER, create, until_ready
from tests.unit.features.beside import beside

PUBLISHER = "bundle-publisher"


def stored_bundle(uid: str, text: bytes) -> tuple[PublishedBundle, ConfigMap]:
    """A bundle whose edition 7 has a text, and the ConfigMap of that edition."""
    status = PublishedBundleStatus(sequence=7, sha256=hashlib.sha256(text).hexdigest())
    name = stored_edition.edition_name("web", 7)
    config_map = ConfigMap(metadata=ObjectMeta(name=name), data={stored_edition.PEM: text.decode()})
    return PublishedBundle(metadata=ObjectMeta(name="web", uid=uid), status=status), config_map


async def served_after(*bundles: tuple[PublishedBundle, ConfigMap | None]) -> bytes | None:
    """What is served when the bundles were seen one after another, each with its ConfigMap."""
    config_maps: list[ConfigMap | None] = []

    async def find(*_: object) -> ConfigMap | None:
        return config_maps[-1]

    client: Any = SimpleNamespace(find=find)
    editions = PublishedEditions(client, ORCH)
    for published, stored in bundles:
        config_maps.append(stored)
        with contextlib.suppress(TryAgain):
            await editions.reconcile(published)
    current = editions.current("web")
    return current.text if current is not None else None


async def test_a_bundle_created_again_serves_nothing_of_the_earlier_one() -> None:
    """Sequences are seconds: two bundles of a name may have the same one."""
    earlier, new = stored_bundle("a", b"earlier"), stored_bundle("b", b"new")

    assert await served_after(earlier) == b"earlier"
    assert await served_after(earlier, new) == b"new"
    assert await served_after(earlier, (new[0], None)) is None
    assert await served_after(earlier, stored_bundle("b", b"earlier")) == b"earlier"


async def test_another_text_of_the_same_sequence_is_served() -> None:
    """It is stored before the status names it; until it is there, the one before is served."""
    earlier, new = stored_bundle("a", b"earlier"), stored_bundle("a", b"new")

    assert await served_after(earlier, new) == b"new"
    assert await served_after(earlier, (new[0], None)) == b"earlier"


async def test_a_bundle_has_no_roots_of_a_deleted_authority(server_files: Path) -> None:
    """Its trust bundles are collected by the leader, which may take as long as a new one needs.

    Meanwhile another authority of the signer is created, and clients take its bundle for its roots.
    """
    async with beside(server_files) as world:
        await create(world)
        async with world.running(KEEPER):
            first = await until_ready(world)
        await world.admin.delete(CertificateAuthority, "web")
        await create(world, "next")
        async with world.running(KEEPER, PUBLISHER):
            second = await until_ready(world, "next")

            async def published() -> ConfigMap | None:
                bundle = await world.admin.find(PublishedBundle, "next")
                if bundle is None or not bundle.status.sequence:
                    return None
                name = stored_edition.edition_name("next", bundle.status.sequence)
                return await world.admin.find(ConfigMap, name, ORCH.system_namespace)

            edition = await world.until(published)

    roots = edition.data[stored_edition.PEM]
    assert second.status.certificate in roots
    assert first.status.certificate not in roots
