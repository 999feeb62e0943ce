"""All objects in memory: the feed, a cache for each kind, an entry for each object."""
