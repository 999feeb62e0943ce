"""Accounts of ACME clients: look-ups in the cache, and whether an account may still act.

`AcmeAccounts` finds accounts by name and by key, and returns the service account that they act as.
`ExternalKeys` finds the keys with which clients create accounts: Secrets that name a service
account. Nothing is cached here: each look-up sees every acknowledged change, after `fresh`.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.acme.kinds.acme_account import AcmeAccount
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.authenticators.bootstrap_token import is_expired
from orchid.kernel.access.cache_index import KeyedIndex, Row, Table
from orchid.kernel.base.clock import Clock
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import label_errors, subdomain_errors
from orchid.kernel.wire.user import ACCOUNT_PREFIX, UserInfo, groups_of_accounts

KEY, EXPIRATION = "key", "expiration"  # data of a Secret
NONCE_SECRET: Final = "acme-nonces"  # noqa: S105 - a name
NONCE_KEY_BYTES: Final = 32
SHORTEST_KEY: Final = 16  # bytes
LONGEST_KID: Final = 63 + 1 + 253


class ExternalKey(msgspec.Struct, frozen=True):
    """A key with which a client binds an account to a service account."""

    kid: str
    namespace: str
    account: str
    account_uid: str
    secret: bytes

    __repr__ = object.__repr__  # shows no field: the key is in it


class AcmeAccounts:
    """All accounts, by key, and the service accounts that they act as."""

    def __init__(self, feed: Feed, revocations: Revocations, naming: Naming) -> None:
        self.fresh = feed.fresh
        self._cache = cache = feed.of(AcmeAccount)
        self._decode = cache.kind.decoder.stored
        self._service_accounts = feed.of(ServiceAccount)
        self._account_until = revocations.account_until
        self._credential_id = naming.credential_id
        self._keys: Table[tuple[str, str], None] = {}  # by authority and thumbprint
        self._external: Table[str, None] = {}  # by external key
        self._index = KeyedIndex(cache, self._rows)

    def find(self, namespace: str, name: str) -> AcmeAccount | None:
        entry = self._cache.get(namespace, name)
        return entry.object if entry is not None and not _is_ending(entry.meta) else None

    def of_key(self, authority: CertificateAuthority, thumbprint: str) -> AcmeAccount | None:
        """The account of an authority with this key; of several, the oldest."""
        self._index.catch_up()
        keys = self._keys.get((authority.name, thumbprint), ())
        entries = (self._cache.entries.get(key) for key in keys)
        accounts = [entry.object for entry in entries if entry and not _is_ending(entry.meta)]
        own = (account for account in accounts if is_account_of(account, authority))
        return min(own, key=_age, default=None)

    def count_of(self, kid: str) -> int:
        """Number of accounts that were created with an external key."""
        self._index.catch_up()
        return len(self._external.get(kid, ()))

    def user_of(self, account: AcmeAccount) -> UserInfo | None:
        """The user that an account acts as; None if it may not act any more."""
        namespace, spec = account.namespace, account.spec
        entry = self._service_accounts.get(namespace, spec.service_account_name)
        if not account.is_valid or entry is None or entry.meta.uid != spec.service_account_uid:
            return None
        if _is_ending(entry.meta) or self._is_revoked(account):
            return None
        return UserInfo(
            username=f"{ACCOUNT_PREFIX}{namespace}:{spec.service_account_name}",
            uid=spec.service_account_uid,
            groups=groups_of_accounts(namespace),
            extra={self._credential_id: (f"ACME={spec.thumbprint}",)},
        )

    def _is_revoked(self, account: AcmeAccount) -> bool:
        """Whether the credentials of its service account are revoked that existed then."""
        until = self._account_until((account.namespace, account.spec.service_account_name))
        return _is_issued_until(account.metadata, until)

    def _rows(self, _: str, entry: Entry[AcmeAccount]) -> Iterator[Row]:
        spec = self._decode(entry.data).spec
        yield self._keys, (spec.authority, spec.thumbprint), None
        yield self._external, spec.external_key, None


class ExternalKeys:
    """Secrets with the keys of external account bindings, and the key of nonces."""

    def __init__(self, feed: Feed, revocations: Revocations, naming: Naming, clock: Clock) -> None:
        self._secrets = feed.of(Secret)
        self._accounts = feed.of(ServiceAccount)
        self._account_until = revocations.account_until
        self._clock = clock
        self._type = key_type(naming)
        self._name_annotation = naming.account_name_annotation
        self._uid_annotation = naming.account_uid_annotation
        self._home = naming.system_namespace

    def find(self, kid: str) -> ExternalKey | None:
        """The key of an identifier, `<namespace>.<name of the Secret>`; None if it is invalid."""
        namespace, _, name = kid[: LONGEST_KID + 1].partition(".")
        if label_errors(namespace) or subdomain_errors(name):
            return None
        entry = self._secrets.get(namespace, name)
        if entry is None or _is_ending(entry.meta) or entry.object.type != self._type:
            return None
        data, notes = entry.object.data, entry.meta.annotations
        account, uid = notes.get(self._name_annotation, ""), notes.get(self._uid_annotation, "")
        owner = self._accounts.get(namespace, account)
        if not uid or owner is None or owner.meta.uid != uid or _is_ending(owner.meta):
            return None
        if len(data.get(KEY, b"")) < SHORTEST_KEY or not data.get(EXPIRATION):
            return None
        if is_expired(data[EXPIRATION], self._clock.now()):
            return None
        if _is_issued_until(entry.meta, self._account_until((namespace, account))):
            return None  # revoked
        return ExternalKey(kid, namespace, account, uid, data[KEY])

    def nonce_secret(self) -> Secret | None:
        """The Secret with the key of nonces, whatever it contains."""
        entry = self._secrets.get(self._home, NONCE_SECRET)
        return entry.object if entry is not None else None

    def nonce_key(self) -> bytes | None:
        """The key of nonces; None while no Secret has one of the right length."""
        found = self.nonce_secret()
        key = found.data.get(KEY, b"") if found is not None else b""
        return key if len(key) == NONCE_KEY_BYTES else None


def is_account_of(account: AcmeAccount, authority: CertificateAuthority) -> bool:
    """Whether an account is one of an authority, and not of an earlier one of its name.

    An account that an earlier version of Orchid stored has no uid of its authority. Its name is
    derived from this uid and from the key with which it was created.
    """
    spec, uid = account.spec, authority.metadata.uid
    if spec.authority_uid:
        return bool(uid) and (spec.authority, spec.authority_uid) == (authority.name, uid)
    return spec.authority == authority.name and account.name == account_name(
        authority, spec.thumbprint
    )


def account_name(authority: CertificateAuthority, thumbprint: str) -> str:
    """The name follows from authority and key: of two requests at once, one creates it."""
    return hashlib.sha256(f"{authority.metadata.uid}\0{thumbprint}".encode()).hexdigest()[:24]


def key_type(naming: Naming) -> str:
    """The type of the Secrets."""
    return f"{naming.identity}/acme-key"


def _is_ending(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is not None


def _is_issued_until(meta: ObjectMeta, second: int) -> bool:
    """Whether an object was created up to a second, which counts as a whole."""
    created = meta.creation_timestamp
    return created is None or created.timestamp() < second + 1


def _age(account: AcmeAccount) -> tuple[str, str]:
    made = account.metadata.creation_timestamp
    return made.isoformat() if made else "", account.metadata.uid
