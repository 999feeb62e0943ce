"""A kind's cache takes in changes that come together as it would one after the other."""

import random

import pytest

from orchid.features.objects.kinds import config_map
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.store.interface import StoreEvent
from orchid.kernel.wire.naming import ORCH

KIND = config_map.declare(ORCH)
PREFIX = KIND.key_prefix


def event(name: str, revision: int, *, deleted: bool = False) -> StoreEvent:
    body = KIND.stored_head + b'"metadata":{"name":"%b","uid":"u"}}' % name.encode()
    return StoreEvent(
        KIND.key("ns", name),
        None if deleted else body,
        revision,
        previous=None,
        previous_revision=0,
    )


def listed(cache: KindCache[ConfigMap]) -> list[tuple[str, int]]:
    """The keys in the order of a list, and the revision of each object."""
    return [(entry.key, entry.revision) for entry in cache.under(PREFIX)]


@pytest.mark.parametrize("seed", range(20))
def test_changes_that_come_together_end_where_they_do_one_by_one(seed: int) -> None:
    """Few names in one batch, so that many are made, deleted and made again within it."""
    chance = random.Random(seed)
    there: dict[str, int] = {}
    events = []
    for revision in range(2, 60):
        name = f"n{chance.randrange(6)}"
        gone = name in there and chance.random() < 0.6
        events.append(event(name, revision, deleted=gone))
        there.pop(name, None)
        if not gone:
            there[name] = revision
    together, alone = KindCache(KIND), KindCache(KIND)

    changes = together.apply(events, ours=True)
    for one in events:
        alone.apply([one], ours=True)

    assert listed(together) == sorted((KIND.key("ns", name), at) for name, at in there.items())
    assert listed(together) == listed(alone)
    assert [(each.key, each.revision) for each in changes] == [
        (one.key, one.revision) for one in events
    ]
    assert list(together.changes) == changes
    assert together.kept_bytes == alone.kept_bytes
    assert together.revision == alone.revision == 59
