"""Entries for token keys and authorities: each that is added or removed gets one.

They are files, not objects, so no object's commit could carry the entry. Instead the last set of
keys is in the store, and changes in the same commit as the entries about the difference. Servers
that share a store should share the keys too; while a key is being distributed, the ledger shows the
servers without it.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import (
    ABSENT,
    Change,
    Record,
    RevisionConflict,
    Span,
    Store,
    StoreError,
)

log = logging.getLogger(__name__)


async def note_keys(
    store: Store, what: str, keys: Mapping[str, Mapping[str, Any]], now: datetime
) -> None:
    """Log keys that were `made` and `retired` since the last call; `keys` are facts by key id.

    A failing store is logged: the next start finds the difference.
    """
    while True:
        try:
            await _note(store, what, keys, now)
            return
        except RevisionConflict:
            continue  # another server has just done so; its keys may differ from ours
        except StoreError as failure:
            log.warning("ledger.keys_not_noted: %s", failure)
            return


async def noted_keys(store: Store, what: str) -> Mapping[str, Any]:
    """The keys that were logged last, by key id."""
    return _decoded((await store.read(Span.key(_store_key(what)), limit=1)).records)


def _store_key(what: str) -> str:
    return f"{store_keys.PREFIX}known/{what}"


def _decoded(records: Sequence[Record]) -> dict[str, Any]:
    return msgspec.json.decode(records[0].value, type=dict[str, Any]) if records else {}


async def _note(
    store: Store, what: str, keys: Mapping[str, Mapping[str, Any]], now: datetime
) -> None:
    store_key = _store_key(what)
    records = (await store.read(Span.key(store_key), limit=1)).records
    stored = _decoded(records)
    facts = [Fact(f"{what}.made", {"key": key, **keys[key]}) for key in keys if key not in stored]
    facts += [Fact(f"{what}.retired", {"key": key}) for key in stored if key not in keys]
    if facts:
        seen = msgspec.json.encode(keys, order="sorted")
        revision = records[0].revision if records else ABSENT
        await store.commit([Change(store_key, seen, revision), *store_keys.pending(facts, "", now)])
