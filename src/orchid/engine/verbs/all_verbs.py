"""The verbs of the engine, for the server's dispatch."""

import msgspec

from orchid.engine.admission import Admission
from orchid.engine.cache.feed import Feed
from orchid.engine.cache.objects import IsStale, Objects, never_stale
from orchid.engine.interfaces import Randomness
from orchid.engine.offload import Offload
from orchid.engine.ownership import Ownership
from orchid.engine.verbs.create import Creating
from orchid.engine.verbs.delete import Deleting
from orchid.engine.verbs.listing import Listing
from orchid.engine.verbs.patching import Patching
from orchid.engine.verbs.read import Reading
from orchid.engine.verbs.update import Updating
from orchid.engine.verbs.watching import Watching
from orchid.store.interface import Store
from orchid.wire.naming import Naming


class Verbs(msgspec.Struct, frozen=True):
    reading: Reading
    listing: Listing
    watching: Watching
    creating: Creating
    updating: Updating
    patching: Patching
    deleting: Deleting

    @classmethod
    def over(
        cls,
        store: Store,
        feed: Feed,
        admission: Admission,
        names: Naming,
        randomness: Randomness,
        *,
        offload: Offload,
        is_stale: IsStale = never_stale,
    ) -> "Verbs":
        """`is_stale` reports keys whose values should be written again unchanged."""
        objects, ownership = Objects(store, feed, is_stale), Ownership()
        listing = Listing(store, feed, names, offload)
        creating = Creating(objects, admission, ownership, randomness, offload)
        updating = Updating(objects, admission, ownership, offload)
        return cls(
            reading=Reading(feed),
            listing=listing,
            watching=Watching(feed, names, offload),
            creating=creating,
            updating=updating,
            patching=Patching(objects, creating, updating, ownership, names=names, offload=offload),
            deleting=Deleting(objects, admission, listing),
        )
