"""Index of revocations: one dictionary lookup in every request.

Authenticators check it last, also for cached verifications: a valid signature does not mean that
the credential is still accepted. The index follows the cache of CredentialRevocation
(kernel/access/cache_index.py), so it is as new as the feed. Revocations of credentials of clusters
have an index of their own (features/clusters/revoked.py).

A certificate is looked up by the fingerprints of its whole chain, in every encoding
(kernel/credentials/x509/trust/verified_chain.py). It is also refused if the inventory has its
serial number for another certificate of the same issuer. The revocation of a signer applies to
certificates on record, and to those without a record that the signer may have issued.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.revocation.kinds.credential_revocation import (
    COMPROMISED,
    HOLD,
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.kinds.signing_key import revoked_identities
from orchid.kernel.access.cache_index import KeyedIndex, Row, Table
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.refusals import (
    CertificateRefused,
    NotPermitted,
    Refusal,
    library_errors_as,
)
from orchid.kernel.credentials.token_claims import ExchangeClaims
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.trust.verified_chain import VerifiedChain, has_issued
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.user import UserInfo, account_of

REVOKED_CERTIFICATE = "the certificate has been revoked"
OTHER_CERTIFICATE = "another certificate was issued with this serial number"
REVOKED_TOKEN = "the token has been revoked"  # noqa: S105 - a message, not a token
REVOKED_USER = "the credentials of this user have been revoked"

Account = tuple[str, str]  # namespace and name
EVERY_ACCOUNT: Account = ("", "")
_NO_TIMES: Final[dict[str, int]] = {}
_NONE: Final[dict[str, tuple[str, datetime]]] = {}


class SignerProfiles(NamedTuple):
    """The profiles of the platform signers, by signer."""

    profiles: Mapping[str, Profile]


class Revocations:
    """All current revocations."""

    def __init__(self, feed: Feed, profiles: Mapping[str, Profile] = MappingProxyType({})) -> None:
        """`profiles`: the profiles of the platform signers, which may share one key."""
        self.fresh = feed.fresh_for_request  # waits until every earlier revocation is in the index
        self._profiles = profiles
        self.cache = cache = feed.of(CredentialRevocation)
        self._decode = cache.kind.decoder.stored
        self._records = feed.of(IssuedCertificate)
        # By credential; there may be several revocations of one credential.
        self._certificates: Table[str, None] = {}
        self._compromised: Table[str, None] = {}  # SHA-256 of public keys
        self._tokens: Table[str, tuple[Account, str]] = {}  # account and issuer
        self._accounts: Table[Account, int] = {}
        self._authorities: Table[str, datetime] = {}
        self._users: Table[str, int] = {}  # the last second of issue
        self._signing_keys: Table[str, tuple[str, datetime]] = {}
        self._keys: Table[str, None] = {}  # by id and public key of a signing key
        self._public_keys: Table[str, None] = {}  # by SHA-256
        self._index = KeyedIndex(cache, self._rows)
        self._generation = -1  # of the revocations in the index

    def refuse_user(self, username: str, issued_at: float | None) -> None:
        """Raise Rejected if credentials of the user that were issued then are revoked.

        None: the credential has no time of issue, so that any revocation of the user applies.
        """
        until = self.user_until(username)
        if until >= 0 and (issued_at is None or issued_at < until + 1):
            raise Rejected(REVOKED_USER)

    def user_until(self, username: str) -> int:
        """The last second whose credentials of a user, or of an account, are revoked, or -1."""
        self._catch_up()
        until = max(self._users.get(username, _NO_TIMES).values(), default=-1)
        account = account_of(username) if self._accounts else None
        return max(until, self.account_until(account)) if account else until

    async def allows_user(self, username: str) -> bool:
        """Whether no credential of the user is revoked, as of every acknowledged revocation."""
        await self.fresh()
        return self.user_until(username) < 0

    def refuse_certificate(self, chain: VerifiedChain, username: str) -> None:
        """Raise Rejected if a certificate of the chain is revoked, or is not the one on record.

        `username`: the user that the certificate proves.
        """
        self._catch_up()
        if not self._certificates.keys().isdisjoint(chain.fingerprints):
            raise Rejected(REVOKED_CERTIFICATE)
        # Also by a cross certificate of the key, which the thief sends along.
        if self._public_keys and not self._public_keys.keys().isdisjoint(chain.issuer_keys):
            raise Rejected(REVOKED_CERTIFICATE)
        record = self.record(chain)
        if self._authorities:
            if record is not None:
                self._refuse_authority(record)
            else:
                self._refuse_unrecorded(chain)
        if self.user_until(username) >= 0:
            self.refuse_user(username, _time_of_issue(chain, record))

    def refuse_token(self, account: Account, jti: str, issued_at: int, issuer: str = "") -> None:
        """Raise Rejected if the token, or all tokens of its account of that time, are revoked."""
        self._catch_up()
        if jti in self._tokens and self._is_token_named(jti, account, issuer):
            raise Rejected(REVOKED_TOKEN)
        if account in self._accounts and issued_at <= self.account_until(account):
            raise Rejected(REVOKED_TOKEN)

    def refuse_outside_token(self, issuer: str, claims: Mapping[str, Any], username: str) -> None:
        """Raise Rejected if a token of an external issuer is revoked, by its id or its user."""
        self._catch_up()
        jti = claims.get("jti")
        if isinstance(jti, str) and jti in self._tokens:
            self._refuse_unnamed(jti, issuer)
        issued_at = claims.get("iat")
        is_time = isinstance(issued_at, int | float)  # a verified token always has one
        self.refuse_user(username, issued_at if is_time else None)

    def has_revoked(self, issuer: str, username: str, claims: Mapping[str, Any]) -> bool:
        """Whether a token of an external issuer is revoked, by its id or its user."""
        try:
            self.refuse_outside_token(issuer, claims, username)
        except Rejected:
            return True
        return False

    def refuse_origin(self, issuer: str, exchange: ExchangeClaims, issued_at: int) -> None:
        """Raise Rejected if the token of another issuer for which ours was exchanged is revoked.

        `issued_at`: when ours was issued, for clocks that differ.
        """
        claims = {"jti": exchange.jti, "iat": min(exchange.iat, issued_at)}
        self.refuse_outside_token(issuer, claims, exchange.user)

    def refuse_credential_ids(self, ids: Iterable[str]) -> None:
        """Raise Rejected if a credential with one of these ids is revoked; of tokens, those of
        another server, or of a token key.
        """
        self._catch_up()
        for name, _, value in (credential_id.partition("=") for credential_id in ids):
            if name == "X509SHA256" and value in self._certificates:
                raise Rejected(REVOKED_CERTIFICATE)
            if name == "JTI" and value in self._tokens:
                self._refuse_unnamed(value, "")
            if name == "KEY" and value in self._keys:
                raise Rejected(REVOKED_TOKEN)

    def refuse_action(self, user: UserInfo, ids: Sequence[str], moment: datetime) -> None:
        """Raise Rejected if the credential with which a user acted at a moment is revoked.

        `ids`: the ids of the credential, as in the audit log.
        """
        self.refuse_user(user.username, int(moment.timestamp()))
        if not ids:
            return
        self.refuse_credential_ids(ids)
        # Of a person also a token whose issuer is not known any more.
        owner = account_of(user.username) or EVERY_ACCOUNT
        for credential_id in ids:
            named = self._tokens.get(credential_id.removeprefix("JTI="))
            if named and any(account == owner for account, _ in named.values()):
                raise Rejected(REVOKED_TOKEN)

    def key_problem(self, sha256: str) -> str:
        """Why no signer may certify a public key, or "": a certificate of it was revoked as
        compromised, or it is a revoked SigningKey.
        """
        self._catch_up()
        for index in (self._compromised, self._public_keys):
            for name in index.get(sha256, ()):
                revocation = name.rpartition("/")[2]
                return f"the revocation {revocation} ended this key: create a new key"
        return ""

    def is_final(self, record: IssuedCertificate) -> bool:
        """Whether a certificate is revoked for good: by itself, its signer, user or account.

        A hold does not count, since it can be lifted.
        """
        self._catch_up()
        named = self._certificates.get(record.spec.sha256, {})
        entries = (self.cache.entries.get(key) for key in named)
        if any(entry and entry.object.spec.reason != HOLD for entry in entries):
            return True
        issued = record.metadata.creation_timestamp
        if issued is None:
            return False
        until = self.authority_until(record.spec.signer_name)
        if until is not None and issued <= until:
            return True
        try:
            self.refuse_user(record.username, issued.timestamp())
        except Rejected:
            return True
        return False

    def account_until(self, account: Account) -> int:
        """The last second whose tokens of an account are revoked; -1 for none."""
        self._catch_up()
        return max(self._accounts.get(account, {}).values(), default=-1)

    def revoked_until(self, signer_name: str, username: str) -> tuple[datetime | None, int]:
        """The last second whose certificates of a signer are revoked, and whose credentials of a
        user; None and -1 for none.
        """
        self._catch_up()
        signer = max(self._authorities.get(signer_name, {}).values(), default=None)
        return signer, max(self._users.get(username, {}).values(), default=-1)

    def authority_until(self, signer_name: str) -> datetime | None:
        """The last second whose certificates of a signer are revoked."""
        self._catch_up()
        if not self._authorities:
            return None
        return max(self._authorities.get(signer_name, {}).values(), default=None)

    def revoked_keys(self) -> Collection[str]:
        """The ids and public keys of the signing keys that are revoked."""
        self._catch_up()
        return self._keys

    def names(self, spec: CredentialRevocationSpec) -> list[str]:
        """The keys of our revocations of the same credential."""
        self._catch_up()
        entries: dict[str, Any] | None = None
        if spec.certificate:
            entries = self._certificates.get(spec.certificate.sha256)
        elif spec.token:
            entries = self._tokens.get(spec.token.jti)
        elif spec.account:
            entries = self._accounts.get((spec.account.namespace, spec.account.name))
        elif spec.authority:
            entries = self._authorities.get(spec.authority.signer_name)
        elif spec.user:
            entries = self._users.get(spec.user.username)
        elif spec.key:
            entries = self._keys.get(spec.key.key_id)
        return list(entries or ())

    def __len__(self) -> int:
        self._catch_up()
        return len(self._index)

    def _is_token_named(self, jti: str, account: Account, issuer: str) -> bool:
        named = self._tokens.get(jti)
        wanted = (account, ""), (EVERY_ACCOUNT, ""), (EVERY_ACCOUNT, issuer)
        return named is not None and any(one in wanted for one in named.values())

    def _refuse_unnamed(self, jti: str, issuer: str) -> None:
        """Refuse a token that belongs to no account of ours."""
        if self._is_token_named(jti, EVERY_ACCOUNT, issuer):
            raise Rejected(REVOKED_TOKEN)

    def record(self, chain: VerifiedChain) -> Entry[IssuedCertificate] | None:
        """The record of a certificate. Raises Rejected if its serial number is on record for
        another.
        """
        entry = self._records.get("", chain.serial)
        if entry is None or b'"sha256":"%b"' % chain.sha256.encode() in entry.tail:
            return entry  # quotes inside a value are escaped: this is a field
        try:
            with library_errors_as(CertificateRefused, "x509: certificate cannot be verified"):
                recorded = certificates.parse(entry.object.spec.certificate)
                is_same_issuer = has_issued(chain.issuer, recorded)
        except Refusal:
            return None
        if is_same_issuer:
            raise Rejected(OTHER_CERTIFICATE)
        return None

    def _refuse_authority(self, record: Entry[IssuedCertificate]) -> None:
        until = self.authority_until(record.object.spec.signer_name)
        issued = record.meta.creation_timestamp
        if until is not None and issued is not None and issued <= until:
            raise Rejected(REVOKED_CERTIFICATE)

    def _refuse_unrecorded(self, chain: VerifiedChain) -> None:
        """Refuse a certificate that a revoked signer may have issued, by key and time of issue.

        Its record is missing after a restore, or was never created. The notBefore of a certificate
        is not after its time of issue.
        """
        begins = chain.leaf.not_valid_before_utc
        for signer, until in self._signing_keys.get(chain.issuer_key, _NONE).values():
            if begins <= until and self._may_have_issued(signer, chain):
                raise Rejected(REVOKED_CERTIFICATE)

    def _may_have_issued(self, signer: str, chain: VerifiedChain) -> bool:
        """Whether the profile of a signer permits these names; several signers may share one
        key.
        """
        profile = self._profiles.get(signer)
        if profile is None:
            return True
        try:
            profile.check(chain.contents, profile.default_usages)
        except NotPermitted:
            return False
        return True

    # -- following the cache ------------------------------------------------------------------

    def _catch_up(self) -> None:
        generation = self.cache.generation
        if generation != self._generation:
            self._index.catch_up()
            self._generation = generation

    def _rows(self, _: str, entry: Entry[CredentialRevocation]) -> Iterator[Row]:
        spec = self._decode(entry.data).spec
        if spec.cluster:
            return  # a credential of that cluster: features/clusters/revoked.py
        if spec.certificate:
            yield self._certificates, spec.certificate.sha256, None
            if spec.reason in COMPROMISED and (sha256 := self._key_of(spec.certificate)):
                yield self._compromised, sha256, None
        elif spec.token:
            account = spec.token.namespace, spec.token.name
            yield self._tokens, spec.token.jti, (account, spec.token.issuer)
        elif spec.key:
            for identity in revoked_identities(spec.key):
                yield self._keys, identity, None
            yield self._public_keys, spec.key.sha256, None
        elif spec.account and spec.account.issued_before:
            account = spec.account.namespace, spec.account.name
            yield self._accounts, account, int(spec.account.issued_before.timestamp())
        elif spec.authority and spec.authority.issued_before:
            signer, moment = spec.authority.signer_name, spec.authority.issued_before
            yield self._authorities, signer, moment
            for signing_key in spec.authority.keys:
                yield self._signing_keys, signing_key, (signer, moment)
        elif spec.user and spec.user.issued_before:
            until = int(spec.user.issued_before.timestamp())
            yield self._users, spec.user.username, until

    def _key_of(self, named: RevokedCertificate) -> str:
        """SHA-256 of the public key of a certificate, or ""."""
        if named.key_sha256:
            return named.key_sha256
        record = self._records.get("", named.serial_number)  # a revocation of an earlier version
        return record.object.spec.key.sha256 if record else ""


def _time_of_issue(chain: VerifiedChain, record: Entry[IssuedCertificate] | None) -> float:
    """Time of issue of a certificate, from its record; without one, its notBefore."""
    recorded = record.meta.creation_timestamp if record is not None else None
    return (recorded or chain.leaf.not_valid_before_utc).timestamp()
