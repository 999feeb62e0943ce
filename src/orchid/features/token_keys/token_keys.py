"""The token keys of one process: which key signs, and which keys verify.

    StoredKeys   the keys of SigningKey objects, as features/token_keys/kinds/signing_key.py selects
                 them
    FileKeys     the keys of files, read again when a file changes

Signer, verifier, JWKS document and OpenID document use the same instance. StoredKeys follows the
feed: each use compares the generations of the caches, so that a removed key is refused as soon as
its removal can be read. A private key is loaded from its Secret, and only if it belongs to the key
id. If the Secret is lost, the process signs with the key that it has in memory.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.key_selection import select
from orchid.features.token_keys.kinds.signing_key import (
    PUBLIC_ONLY_TEXT,
    VERIFYING,
    SigningKey,
    private_key_of,
)
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.files import Reloading
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.tokens import KeySet, TokenSigner
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache, ObjectChange
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.key_names import TOKENS

log = logging.getLogger(__name__)

NO_KEY: Final = "invalid signature, no keys found"


class FileKeys:
    """The keys of files: one that signs, several that verify."""

    def __init__(
        self, signing: Path, verifying: Sequence[Path], issuer: str, naming: Naming
    ) -> None:
        def signers() -> tuple[TokenSigner, TokenSigner]:
            key = keys.load_signing_key(signing)
            return (
                TokenSigner(key, issuer, naming.private_claim),
                TokenSigner(key, naming.legacy_issuer, naming.private_claim),
            )

        def key_set() -> KeySet:
            return KeySet([key for path in verifying for key in keys.load_verification_keys(path)])

        self._signers = Reloading([signing], signers)
        self._verifying = Reloading(verifying, key_set)
        self._current = self._signers.current()
        self.verifying = self._verifying.current()

    def signer(self) -> TokenSigner:
        return self._current[0]

    def legacy_signer(self) -> TokenSigner:
        """The signer of tokens in Secrets."""
        return self._current[1]

    @property
    def usable(self) -> list[str]:
        """The ids of the keys that this process can use."""
        return [key.kid for key in self.verifying.keys]

    @property
    def signs(self) -> str:
        """The id of the key that signs."""
        return self._current[0].kid

    def reload(self) -> bool:
        """Read changed files again; return whether other keys verify now."""
        self._current = self._signers.current()
        before, self.verifying = self.verifying, self._verifying.current()
        return self.verifying is not before


class StoredKeys:
    """The keys of SigningKey objects."""

    def __init__(
        self,
        feed: Feed,
        revocations: Revocations,
        issuer: str,
        naming: Naming,
        changed: Callable[[KeySet], None],
        *,
        publish_seconds: float,
    ) -> None:
        """`changed` is called with the verification keys whenever they are others.
        `publish_seconds`: the publish time of a key that signs before it was ever Active.
        """
        self._cache: KindCache[SigningKey] = feed.of(SigningKey)
        self._secrets = feed.of(Secret)
        self._revocations = revocations
        self._issuer = issuer
        self._naming = naming
        self._changed = changed
        self._publish_seconds = publish_seconds
        self._seen = (-1, -1)  # generations of the keys and of the revocations
        self._revoked: frozenset[str] = frozenset()  # as of the last selection
        self._stale = False  # whether a Secret with a private key has changed
        self._public: dict[str, keys.VerificationKey] = {}
        self._private: dict[str, keys.TokenKey] = {}
        self._entries: dict[str, Entry[SigningKey]] = {}  # of verification keys, by key id
        self._signer: TokenSigner | None = None
        self._legacy: TokenSigner | None = None
        self._verifying = KeySet(())
        self._prefix = self._cache.kind.key("", f"{TOKENS}-")
        self._secret_prefix = self._secrets.kind.key(naming.system_namespace, "signing-key-")
        self._secrets.listen(self, self._on_secrets, self._on_lost)
        for cache in (self._cache, revocations.cache):
            cache.listen(self, lambda _changes: self.catch_up(), self._on_lost)

    @property
    def verifying(self) -> KeySet:
        self.catch_up()
        return self._verifying

    @property
    def usable(self) -> list[str]:
        """The ids of the keys that this process can use: all that verify, but of those that may
        sign only the ones whose private key is loaded."""
        self.catch_up()
        signing_keys = {kid: entry.object for kid, entry in self._entries.items()}
        return [
            kid
            for kid, key in signing_keys.items()
            if key.state == VERIFYING or kid in self._private
        ]

    @property
    def signs(self) -> str:
        """The id of the key that signs; empty if none can."""
        self.catch_up()
        return self._signer.kid if self._signer else ""

    def signer(self) -> TokenSigner:
        """The signer of tokens; to be called after the feed is fresh."""
        seen = self._seen
        if (
            seen[0] != self._cache.generation
            or seen[1] != self._revocations.cache.generation
            or self._stale
        ):
            self.catch_up()
        if self._signer is None:
            raise Unavailable("no token key can sign")
        return self._signer

    def legacy_signer(self) -> TokenSigner:
        """The signer of tokens in Secrets."""
        self.signer()
        assert self._legacy is not None
        return self._legacy

    def require(self, kid: str) -> tuple[KindCache[Any], Entry[Any]]:
        """The object of a verification key, for the conditions of a cached acceptance."""
        self.catch_up()
        entry = self._entries.get(kid)
        if entry is None:
            raise Rejected(NO_KEY)
        return self._cache, entry

    def catch_up(self) -> None:
        """Select again if a key or its Secret has changed, or a key was revoked."""
        seen = self._cache.generation, self._revocations.cache.generation
        if seen == self._seen and not self._stale:
            return
        revoked = frozenset(self._revocations.revoked_keys())
        is_same = seen[0] == self._seen[0] and revoked == self._revoked and not self._stale
        self._seen, self._revoked, self._stale = seen, revoked, False
        if is_same:
            return  # another credential was revoked: no key has to be hashed again
        entries = {
            key: entry for key, entry in self._cache.entries.items() if key.startswith(self._prefix)
        }
        objects = {entry.object.metadata.uid: entry for entry in entries.values()}
        selection = select([entry.object for entry in entries.values()], revoked)
        usable = [key for key in selection.verifying if self._load_public(key)]
        self._entries = {key.key_id: objects[key.metadata.uid] for key in usable}
        self._load_private(usable)
        self._choose_signer(selection.signers)
        self._publish(usable)

    def _load_public(self, key: SigningKey) -> bool:
        if key.key_id in self._public:
            return True
        try:
            (public,) = keys.read_verification_keys(key.status.public_key.encode(), key.name)
        except (Refusal, ValueError):
            public = None
        if public is None or public.kid != key.key_id:
            log.error("tokens.key_unreadable", extra={"key": key.name})
            return False
        self._public[public.kid] = public
        return True

    def _load_private(self, usable: Iterable[SigningKey]) -> None:
        loaded: dict[str, keys.TokenKey] = {}
        for key in usable:
            kid = key.key_id
            secret = self._secrets.get(self._naming.system_namespace, key.secret_name)
            private_key = self._private.get(kid)
            if secret is None:
                if private_key is not None and key.state != VERIFYING:
                    loaded[kid] = private_key  # the Secret is lost; the controller reports it
            elif private_key is not None:
                loaded[kid] = private_key
            else:
                try:
                    loaded[kid] = private_key_of(key, secret.object.data)
                except Refusal as refusal:
                    log.error("tokens.private_key_unusable", extra={"why": str(refusal)})
        self._private = loaded

    def _choose_signer(self, signers: Iterable[SigningKey]) -> None:
        key = next((signer for signer in signers if signer.key_id in self._private), None)
        if key is None:
            self._signer = self._legacy = None
            return
        long_after = key.publish_seconds or self._publish_seconds
        before = self._signer
        if before is None or (before.kid, before.long_after) != (key.key_id, long_after):
            private, claim = self._private[key.key_id], self._naming.private_claim
            self._signer = TokenSigner(private, self._issuer, claim, long_after=long_after)
            self._legacy = TokenSigner(private, self._naming.legacy_issuer, claim)
            level = logging.INFO if before else logging.DEBUG  # at the start, no news
            log.log(level, "tokens.signer", extra={"key": key.name})

    def _publish(self, usable: Iterable[SigningKey]) -> None:
        ids = [key.key_id for key in usable]
        before = [key.kid for key in self._verifying.keys]
        if ids != before:
            for key in usable:
                if key.is_public_only and key.key_id not in before:
                    extra = {"key": key.name, "why": PUBLIC_ONLY_TEXT + key.name}
                    log.warning("tokens.public_key_only", extra=extra)
            self._verifying = KeySet([self._public[kid] for kid in ids])
            self._public = {kid: self._public[kid] for kid in ids}
            self._changed(self._verifying)

    def _on_secrets(self, changes: list[ObjectChange[Secret]]) -> None:
        if any(change.key.startswith(self._secret_prefix) for change in changes):
            self._on_lost()

    def _on_lost(self) -> None:
        self._stale = True
        self.catch_up()


TokenKeys = StoredKeys | FileKeys
