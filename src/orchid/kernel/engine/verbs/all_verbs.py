"""The verbs of the engine, for the server's dispatch."""

import msgspec

from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.admission import Admission
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.objects import IsStale, Objects, never_stale
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.engine.ownership import Ownership
from orchid.kernel.engine.verbs.create import Creating
from orchid.kernel.engine.verbs.delete import Deleting
from orchid.kernel.engine.verbs.listing import Listing
from orchid.kernel.engine.verbs.patching import Patching
from orchid.kernel.engine.verbs.read import Reading
from orchid.kernel.engine.verbs.update import Updating
from orchid.kernel.engine.verbs.watching import Watching
from orchid.kernel.store.interface import Store
from orchid.kernel.wire.naming import Naming


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
        naming: Naming,
        randomness: Randomness,
        *,
        offload: Offload,
        is_stale: IsStale = never_stale,
    ) -> "Verbs":
        """`is_stale` reports keys whose values should be written again unchanged."""
        objects, ownership = Objects(store, feed, is_stale), Ownership()
        listing = Listing(store, feed, naming, offload)
        creating = Creating(objects, admission, ownership, randomness, offload)
        updating = Updating(objects, admission, ownership, offload)
        return cls(
            reading=Reading(feed),
            listing=listing,
            watching=Watching(feed, naming, offload),
            creating=creating,
            updating=updating,
            patching=Patching(
                objects, creating, updating, ownership, naming=naming, offload=offload
            ),
            deleting=Deleting(objects, admission, listing),
        )
