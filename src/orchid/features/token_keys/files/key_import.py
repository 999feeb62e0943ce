"""Token keys of files become SigningKey objects, and a new installation gets its first key.

Start with `TokenKeyImport.run`, once at each start of a server whose token keys are stored. The
first key becomes Active: the one of the signing file, so that an upgrade keeps its key id, or a new
one. Every other key of a file that no object has becomes Verifying. Object and Secret are one
commit: a crash leaves both or none, and of two servers that start together one is first. The file
that the server made itself remains until its key is Retired.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec

from orchid.features.ledger.known_keys import noted_keys
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    IMPORTED,
    MADE,
    PRIVATE_KEY,
    RETIRED,
    VERIFYING,
    SigningKey,
    by_name,
    status_of,
)
from orchid.features.token_keys.policies.key_companions import private_key_secret
from orchid.features.token_keys.policies.material import create_key
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.files import write_private
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.tombstones import read_tombstone
from orchid.kernel.store.interface import ABSENT, Change, RevisionConflict, Store
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.rules.key_names import next_name
from orchid.kernel.wire.signing_key_status import KeyDependents, SigningKeyTimes, key_tombstone
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)


class TokenKeyFiles(msgspec.Struct, frozen=True):
    """The key files of a server."""

    signing: Path
    others: tuple[Path, ...]  # keys that only verify
    is_configured: bool  # the administrator named the signing file; the server never deletes it
    is_shared: bool  # several servers have the store, each with files of its own


class TokenKeyImport:
    """Brings the token keys of one server's files into the store."""

    def __init__(
        self,
        naming: Naming,
        files: TokenKeyFiles,
        feed: Feed,
        store: Store,
        randomness: Randomness,
        *,
        clock: Clock,
        publish_time: str,
        unrecorded: Callable[[], timedelta],
    ) -> None:
        """`unrecorded`: the longest lifetime of tokens that were issued until now."""
        self._naming = naming
        self._publish_time = publish_time
        self._files = files
        self._feed = feed
        self._store = store
        self._random = randomness
        self._clock = clock
        self._unrecorded = unrecorded
        self._cache = feed.of(SigningKey)
        self._kind = self._cache.kind

    async def run(self) -> None:
        """Store each key that has no object; raises KeyRefused if a file has no usable key."""
        signing, others = self._file_keys()
        while True:
            await self._feed.fresh()
            stored = [entry.object for entry in self._cache.entries.values()]
            key_ids = {key.key_id for key in stored if not (key.is_file or key.group)}
            try:
                if not key_ids:
                    await self._store_first(stored, signing)
                elif missing := await self._missing(key_ids, signing, others):
                    await self._store_verifying(stored, missing)
                else:
                    break
            except RevisionConflict:
                continue  # another server was faster
        self._remove_retired(signing)

    def _file_keys(self) -> tuple[keys.TokenKey | None, list[keys.VerificationKey]]:
        """The private key of the signing file, and the keys of the other files."""
        path, is_needed = self._files.signing, self._files.is_configured
        signing = keys.load_signing_key(path) if is_needed or path.exists() else None
        others = [key for path in self._files.others for key in keys.load_verification_keys(path)]
        return signing, others

    async def _missing(
        self,
        key_ids: set[str],
        signing: keys.TokenKey | None,
        others: list[keys.VerificationKey],
    ) -> keys.VerificationKey | None:
        """A key of a file that no object has, and none had that was retired or revoked."""
        candidates = list(others)
        if signing is not None and (self._files.is_shared or self._files.is_configured):
            candidates.insert(0, signing.public)
        elif signing is not None and signing.kid not in key_ids:
            # One server has the store to itself: it is no key that ever signed for this store.
            log.warning("tokens.file_not_used", extra={"file": self._files.signing.name})
        for key in candidates:
            if key.kid not in key_ids and not await self._is_past(key):
                return key
        return None

    async def _is_past(self, key: keys.VerificationKey) -> bool:
        name = await read_tombstone(self._store, key_tombstone(keys.pem_sha256(key.pem())))
        if name is not None:
            log.warning("tokens.past_key_in_file", extra={"key": name})
        return name is not None

    async def _store_first(self, stored: list[SigningKey], signing: keys.TokenKey | None) -> None:
        private, source = signing, IMPORTED
        if private is None or await self._is_past(private.public):
            private, source = await create_key("ES256"), MADE
            if signing is None and not self._files.is_shared:
                write_private(self._files.signing, private.pem().reveal().encode())
        now, uid = whole_seconds(self._clock.now()), self._random.uid()
        key = self._object(stored, private.public, uid)
        home = self._naming.system_namespace
        unrecorded = self._unrecorded()
        key = replace(
            key,
            spec=SigningKeySpec(
                secret_ref=SecretReference(name=key.secret_name, namespace=home), state=ACTIVE
            ),
            status=replace(
                status_of(private.public, source),
                times=SigningKeyTimes(published=now, active=now),
                publish_time=self._publish_time,
                dependents=KeyDependents(unknown_until=now + unrecorded) if unrecorded else None,
            ),
        )
        data = {PRIVATE_KEY: private.pem().reveal().encode()}
        secret = private_key_secret(self._naming, self._kind, key, data, self._random.uid())
        await self._commit(key, secret, [Fact("token-key.activated", {"key": key.key_id})])
        if source == IMPORTED:
            log.info("tokens.key_imported", extra={"key": key.name, "state": key.state})

    async def _store_verifying(
        self, stored: list[SigningKey], public: keys.VerificationKey
    ) -> None:
        now = whole_seconds(self._clock.now())
        key = replace(
            self._object(stored, public, self._random.uid()),
            spec=SigningKeySpec(public_key=public.pem(), state=VERIFYING),
            status=replace(
                status_of(public, IMPORTED),
                times=SigningKeyTimes(verifying=now),
                publish_time=self._publish_time,
                dependents=KeyDependents(unknown_until=now + self._unrecorded()),
            ),
        )
        await self._commit(key, None, [])
        log.debug("tokens.key_imported", extra={"key": key.name, "state": key.state})

    def _object(
        self, stored: list[SigningKey], public: keys.VerificationKey, uid: str
    ) -> SigningKey:
        """The object of a key; one that showed it as a file's is replaced."""
        shown = next((key for key in stored if key.is_file and key.key_id == public.kid), None)
        meta = ObjectMeta(
            name=shown.name if shown else next_name(by_name(stored)),
            uid=shown.metadata.uid if shown else uid,
            creation_timestamp=whole_seconds(self._clock.now()),
            generation=1,
        )
        return SigningKey(kind=self._kind.name, api_version=self._kind.api_version, metadata=meta)

    async def _commit(self, key: SigningKey, secret: Secret | None, facts: list[Fact]) -> None:
        stored_key = self._kind.key("", key.name)
        entry: Entry[SigningKey] | None = self._cache.entries.get(stored_key)
        changes = [Change(stored_key, stored_form(key), entry.revision if entry else ABSENT)]
        if secret is not None:
            secret_key = self._feed.of(Secret).kind.key(secret.namespace, secret.name)
            changes.append(Change(secret_key, stored_form(secret), ABSENT))
        if key.key_id not in await noted_keys(self._store, "token-key"):
            details = {"key": key.key_id, "algorithm": key.status.algorithm}
            facts = [Fact("token-key.made", details), *facts]
        now = self._clock.now()
        await self._store.commit([*changes, *store_keys.pending(facts, key.metadata.uid, now)])

    def _remove_retired(self, signing: keys.TokenKey | None) -> None:
        """Delete the file that the server created, once its key is Retired."""
        states = {entry.object.key_id: entry.object.state for entry in self._cache.entries.values()}
        if self._files.is_configured or signing is None:
            return
        if states.get(signing.kid) == RETIRED:
            self._files.signing.unlink(missing_ok=True)
            log.info("tokens.file_removed", extra={"file": self._files.signing.name})
