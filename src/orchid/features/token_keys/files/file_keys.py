"""SigningKey objects that show the token keys of files.

If token keys are files, the files decide: the objects of source File only show the keys, so that
`kubectl get signingkeys` and `orchid key list` work everywhere. Each server creates objects for its
own keys and keeps their states current (`run`). The controller deletes those that no server has
(features/token_keys/controllers/rotate_token_keys.py). Clients cannot change them
(features/token_keys/policies/steps.py).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from orchid.features.objects.kinds.lease import ServerKeys
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    FILE,
    VERIFYING,
    SigningKey,
    by_name,
    status_of,
)
from orchid.features.token_keys.token_keys import FileKeys
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.credentials.keys import VerificationKey
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.store.interface import ABSENT, Change, RevisionConflict, Store, StoreError
from orchid.kernel.wire.conditions import READY, TRUE, Condition, with_conditions
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.rules.key_names import next_name
from orchid.kernel.wire.signing_key_status import SigningKeyTimes
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 10.0
OF_FILES: Final = Condition(
    type=READY,
    status=TRUE,
    reason=FILE,
    message="It is a key of the servers' files, and is replaced by changing them.",
)


class FileKeyObjects:
    """Shows the keys of one server's files."""

    def __init__(
        self,
        keys: FileKeys,
        feed: Feed,
        store: Store,
        *,
        clock: Clock,
        randomness: Randomness,
        servers: Callable[[], Mapping[str, ServerKeys]],
    ) -> None:
        """`servers`: the live servers and their keys."""
        self._keys = keys
        self._feed = feed
        self._store = store
        self._clock = clock
        self._random = randomness
        self._servers = servers
        self._cache = feed.of(SigningKey)

    async def run(self) -> None:
        """Keep the objects current until cancelled."""
        while True:
            try:
                await self.update()
            except (StoreError, Unavailable) as failure:  # next time
                log.debug("tokens.files_not_shown: %s", failure)
            await asyncio.sleep(EVERY_SECONDS)

    async def update(self) -> None:
        """Write the objects that differ from the files."""
        for key in self._keys.verifying.keys:
            await self._feed.fresh()
            shown = next((entry for entry in self._entries() if _shows(entry.object, key)), None)
            if shown is None:
                await self._commit(None, self._object(key))
            elif shown.object.is_file and not self._is_current(shown.object):
                await self._commit(shown, self._with_state(shown.object))

    def _entries(self) -> list[Entry[SigningKey]]:
        return list(self._cache.entries.values())

    def _is_current(self, key: SigningKey) -> bool:
        return key.state == self._state(key) and key.is_ready

    def _state(self, key: SigningKey) -> str:
        """Active if a live server signs with the key; as before if that server may be dead."""
        signing = [server for server in self._servers().values() if server.signs == key.key_id]
        if key.key_id == self._keys.signs or any(server.is_renewed for server in signing):
            return ACTIVE
        return key.state if signing and key.is_ready else VERIFYING

    def _object(self, key: VerificationKey) -> SigningKey:
        kind, now = self._cache.kind, whole_seconds(self._clock.now())
        new = SigningKey(
            kind=kind.name,
            api_version=kind.api_version,
            metadata=ObjectMeta(
                name=next_name(by_name(entry.object for entry in self._entries())),
                uid=self._random.uid(),
                creation_timestamp=now,
                generation=1,
            ),
            spec=SigningKeySpec(public_key=key.pem()),
            status=status_of(key, FILE),
        )
        return self._with_state(new)

    def _with_state(self, key: SigningKey) -> SigningKey:
        state, now = self._state(key), whole_seconds(self._clock.now())
        times = SigningKeyTimes(active=now) if state == ACTIVE else SigningKeyTimes(verifying=now)
        changed = replace(
            key,
            spec=replace(key.spec, state=state),
            status=replace(key.status, times=times),
        )
        return with_conditions(changed, (OF_FILES,), now)

    async def _commit(self, old: Entry[SigningKey] | None, new: SigningKey) -> None:
        store_key = self._cache.kind.key("", new.name)
        revision = old.revision if old else ABSENT
        try:
            await self._store.commit([Change(store_key, stored_form(new), revision)])
        except RevisionConflict:
            log.debug("tokens.files_shown_elsewhere")  # another server was faster: next time


def _shows(one: SigningKey, key: VerificationKey) -> bool:
    return one.key_id == key.kid and not one.group
