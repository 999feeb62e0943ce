"""Progress of the notices: what has been announced, in a ConfigMap of the system namespace.

    revisions   by event: changes up to this revision are handled
    searched    endings that were due until then are handled
    pending     notices that wait for the receiver, and since when
    delivered   when the last one was delivered
    failing     since when the receiver fails, and why

It is written shortly after a change. After a crash, notices of the last seconds may be sent again,
with the same `jti`; none is forgotten.
"""

from datetime import datetime
from math import inf
from typing import Final

import msgspec

from orchid.features.notices.notice import NoticeKey
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.client.client import Client
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace

NAME: Final = "notices"  # of the ConfigMap
ENTRY: Final = "progress.json"
MOST_PENDING: Final = 1000
RESERVED: Final = 200  # more, for notices that requesters cannot cause
REVISIONS_SECONDS: Final = 30.0


class Failing(msgspec.Struct):
    since: datetime
    why: str


class Stored(msgspec.Struct, omit_defaults=True):
    """The content of the ConfigMap."""

    revisions: dict[str, int] = {}
    searched: datetime | None = None
    pending: list[tuple[NoticeKey, datetime]] = []
    delivered: datetime | None = None
    failing: Failing | None = None


class NoticeProgress:
    def __init__(self, client: Client, naming: Naming) -> None:
        self._client = client
        self._namespace = naming.system_namespace
        self._map: ConfigMap | None = None
        self._urgent = b""  # as written last: all but the revisions
        self._revisions: dict[str, int] = {}
        self._due = 0.0  # when changed revisions are written
        self.state = Stored()
        self.pending: dict[NoticeKey, datetime] = {}

    async def load(self) -> None:
        """Read it for the first time; later, only the version that a write has to replace."""
        is_first = self._map is None
        config_map = await self._client.find(ConfigMap, NAME, self._namespace)
        if config_map is None:
            meta = ObjectMeta(name=NAME, namespace=self._namespace)
            config_map = await self._client.create(ConfigMap(metadata=meta))
        self._map = config_map
        if is_first:
            self.state = _read(config_map.data.get(ENTRY, ""))
            self.pending = dict(self.state.pending)

    def is_full_for(self, is_limited: bool) -> bool:
        """Whether there is no room; notices that anybody can cause leave room for the others."""
        return len(self.pending) >= MOST_PENDING + (0 if is_limited else RESERVED)

    async def save(self, now: float = inf) -> None:
        """Write it if it was read and has changed; `now` on the monotonic clock.

        If only revisions changed, not often: with an older one, some objects are checked again.
        """
        if self._map is None:
            return
        self.state.pending = list(self.pending.items())
        urgent = msgspec.json.encode(replace(self.state, revisions={}))
        if urgent == self._urgent and (now < self._due or self.state.revisions == self._revisions):
            return
        text = msgspec.json.encode(self.state).decode()
        revisions = dict(self.state.revisions)
        await self._client.update(replace(self._map, data={ENTRY: text}))
        self._urgent, self._revisions, self._due = urgent, revisions, now + REVISIONS_SECONDS
        await self.load()  # the version of the next write


def _read(text: str) -> Stored:
    try:
        return msgspec.json.decode(text, type=Stored) if text else Stored()
    except (msgspec.DecodeError, UnicodeError):
        return Stored()  # somebody has changed it: begin again
