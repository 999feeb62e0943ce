"""A published bundle that is deleted and created again serves nothing of the earlier one."""

import contextlib
import hashlib
from types import SimpleNamespace
from typing import Any

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
