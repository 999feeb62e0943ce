"""Revoking a credential of ours needs the verb `revoke`, which no other verb implies.

revoked credential      required permission: `revoke` on
certificate, authority  `signers`, named as the signer or as every signer of its domain; for a
                        certificate without its signer, or without a record: on every signer;
                        for the caller's own client certificate: none
token, account          `serviceaccounts`, of that namespace and name; for a token without its
                        account: on every account
user                    `users`, of that name
key                     `signingkeys`, of that name

The permission is checked before anything is looked up (`admit`): for a certificate that is named
without its signer, on every signer. certificate_targets.py looks up certificates: a serial number
or request without one is refused, an unknown fingerprint causes a warning. A revocation that
another one already covers is refused (409) with the name of the other. Only a hold and the
revocation of a user can be lifted by deleting them, by users who may revoke; all others stay until
`status.expires`, or until another one supersedes them.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.exchange.kinds.token_exchange_policy import LONGEST
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    SPEC,
    CredentialRevocation,
    CredentialRevocationSpec,
    completed,
)
from orchid.features.revoking.policies.certificate_targets import (
    CertificateTargets,
    holding,
    refuse,
)
from orchid.features.revoking.policies.certified_keys import CertifiedKeys
from orchid.features.revoking.policies.repeated_revocations import (
    Already,
    RepeatedRevocations,
    stays,
)
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.access.rights import CallerRights, signer_targets
from orchid.kernel.credentials.tokens import LEEWAY
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.fields import invalid, not_found
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.revoked_credentials import (
    RevokedAccount,
    RevokedKey,
    RevokedToken,
    RevokedUser,
)
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote

REVOKE = "revoke"


class RevocationPermission(AdmissionPolicy):
    admits = (CredentialRevocation,)
    reviews = (CredentialRevocation,)
    accompanies_new = (CredentialRevocation,)

    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        authorizer: Authorizer,
        *,
        already: Already,
        certified: CertifiedKeys,
        is_ours: Callable[[str], bool],
        listed_keys: Callable[[str], Collection[str]],
        tokens_end: Callable[[datetime, datetime | None], datetime | None],
        clients_end: Callable[[], datetime],
        users_end: Callable[[], datetime | None],
        issuers: Callable[[], Collection[str]],
        may_be_exchanged: Callable[[], bool],
        accepts_outside_tokens: bool,
    ) -> None:
        """`already`: the keys of all revocations of the same credential. `certified`: of keys that
        other keys certified. `is_ours`: whether a signer, by name, belongs to this server.
        `listed_keys`: the identifiers of a signer's keys: its CRL lists their certificates.
        `tokens_end`: the expiry of all tokens issued up to a time, of an account with that creation
        time, or of any; None if unknown. `clients_end`: the expiry of the last CA for client
        certificates. `users_end`: the expiry of the last credential of a user, or None. `issuers`:
        the accepted issuers of tokens, ours and others'. `may_be_exchanged`: whether a token of
        another issuer may have been exchanged for one of ours, which depends on it.
        `accepts_outside_tokens`: whether a token without an account may have an unknown expiry.
        """
        self._feed = feed
        self._records = feed.of(IssuedCertificate)
        self._accounts = feed.of(ServiceAccount)
        self._keys = feed.of(SigningKey)
        self._secrets = feed.of(Secret)
        self._rights = CallerRights(naming, authorizer)
        self._certificates = CertificateTargets(
            naming, feed, self._require, is_ours=is_ours, listed_keys=listed_keys, end=clients_end
        )
        self._repeated = RepeatedRevocations(feed.of(CredentialRevocation), already)
        self._certified = certified
        self._is_ours = is_ours
        self._all_ended = tokens_end
        self._clients_end = clients_end
        self._users_end = users_end
        self._issuers = issuers
        self._may_be_exchanged = may_be_exchanged
        self._accepts_outside_tokens = accepts_outside_tokens
        self._naming = naming
        self._account_annotation = naming.account_name_annotation

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Object:
        if old is not None or len(new.spec.targets) != 1 or new.spec.cluster:
            # Not ours (features/clusters/policies/cluster_revocation.py), or the rules of the kind
            # refuse it.
            unchanged: Object = new
            return unchanged
        await self._feed.fresh()
        spec = completed(new.spec, request.now)
        if spec.certificate:
            spec, expires = await self._certificates.completed(request, kind, new, spec.certificate)
        elif spec.key:
            await self._require(request, kind, new.name, spec)
            # Its tokens may never end, and copies of the key may be anywhere.
            spec, expires = replace(spec, key=self._token_key(kind, new, spec.key)), None
        else:
            await self._require(request, kind, new.name, spec)
            expires = await self._end(request, kind, new, spec)
        done: CredentialRevocation = replace(
            new, spec=spec, status=replace(new.status, expires=expires)
        )
        self._repeated.refuse_repeated(request, kind, done)
        return done

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is None and not old.spec.cluster:
            await self._review_deletion(request, kind, old)

    async def companions(
        self, request: Request, kind: Kind[Any], new: Any, old: Any
    ) -> tuple[Object, ...]:
        if new.spec.key is None:
            return ()
        return self._certified.revocations(request, new, new.spec.key.name)

    # -- deletion -----------------------------------------------------------------------------

    async def _review_deletion(
        self, request: Request, kind: Kind[Any], old: CredentialRevocation
    ) -> None:
        if await self._has_ended(old, request.now):
            return
        if old.can_be_lifted:
            await self._require(request, kind, old.name, old.spec)
            return
        if not self._repeated.is_superseded(old):
            raise stays(kind, old)

    async def _has_ended(self, old: CredentialRevocation, now: datetime) -> bool:
        """Whether the credential is refused without the revocation, too."""
        await self._feed.fresh()
        if old.spec.authority:
            # A certificate of the same second may expire later than was known; and records of
            # that time may be missing after a restore.
            last = await self._last_end(old.spec.authority.signer_name)
            return all(end is None or end <= now for end in (last, old.status.expires))
        if old.spec.key:
            return False  # a Secret, a file or an import may bring the key back
        last = await self._certificates_end(old.spec)
        if last is not None and last > now:
            return False
        # A deleted account is no end: a restore brings it back, with its tokens.
        expires = old.status.expires
        if expires is not None and old.spec.certificate and not old.spec.certificate.serial_number:
            # It may be from a CA that was added later and expires later.
            expires = max(expires, self._clients_end())
        return expires is not None and expires + timedelta(seconds=LEEWAY) <= now

    # -- the target ---------------------------------------------------------------------------

    async def _end(
        self,
        request: Request,
        kind: Kind[Any],
        new: CredentialRevocation,
        spec: CredentialRevocationSpec,
    ) -> datetime | None:
        """Expiry of the last credential of a signer, an account or a user, or of a token."""
        if spec.user:
            return self._end_of_user(spec.user)
        if spec.authority:
            signer = spec.authority.signer_name
            if signer and not self._is_ours(signer):
                refuse(kind, new, not_found(SPEC / "authority" / "signerName", signer))
            return await self._last_end(signer)
        if spec.token and spec.token.issuer and spec.token.issuer not in self._issuers():
            refuse(kind, new, not_found(SPEC / "token" / "issuer", spec.token.issuer))
        named = spec.account or spec.token
        assert named is not None
        if named.name and named.namespace and not self._accounts.get(named.namespace, named.name):
            # The restore of a backup brings it back, with its uid, and certificates may outlive it.
            field, name = "account" if spec.account else "token", f"{named.namespace}/{named.name}"
            request.warn(f"spec.{field}.name: there is no account {quote(name)} now")
        end, last = await self._tokens_end(spec, request.now), await self._certificates_end(spec)
        return max(end, last) if end and last else end

    def _end_of_user(self, user: RevokedUser) -> datetime | None:
        """When the last credential of a user ends that was issued in time; None if not known."""
        assert user.issued_before is not None
        last = self._users_end()
        return max(user.issued_before, last) if last else None

    def _token_key(
        self, kind: Kind[Any], new: CredentialRevocation, named: RevokedKey
    ) -> RevokedKey:
        """The key with its id."""
        entry = self._keys.get("", named.name) if named.name else None
        path = SPEC / "key" / "name"
        if entry is None:
            if named.name:
                refuse(kind, new, not_found(path, named.name))
            return named  # the rules of the kind refuse it
        if entry.object.is_file:
            text = "it is a key of the servers' files: replace the files"
            refuse(kind, new, invalid(path, named.name, text))
        key_id = entry.object.key_id
        if named.key_id not in ("", key_id):
            text = f"{named.name} has {quote(key_id)}"
            refuse(kind, new, invalid(SPEC / "key" / "keyID", named.key_id, text))
        return replace(named, key_id=key_id, sha256=entry.object.public_key_sha256)

    # -- expiry -------------------------------------------------------------------------------

    async def _last_end(self, signer: str) -> datetime | None:
        """Expiry of the last certificate of a signer."""
        entries, decode = list(self._records.entries.values()), self._records.kind.decoder.stored

        def found() -> datetime | None:
            records = (decode(entry.data).spec for entry in entries)
            ours = (one for one in records if one.signer_name == signer and not one.cluster)
            ends = (one.not_after for one in ours)
            return max((end for end in ends if end is not None), default=None)

        return await asyncio.to_thread(found)

    async def _tokens_end(self, spec: CredentialRevocationSpec, now: datetime) -> datetime | None:
        """Expiry of the last token that the revocation can affect; None if unknown."""
        named = spec.token or spec.account
        assert named is not None
        if spec.token and (spec.token.expires or self._may_be_outside(spec.token)):
            return self._end_of_token(spec.token)
        account = self._accounts.get(named.namespace, named.name)
        # Of an account that does not exist now, a backup may have Secrets.
        if spec.account and (account is None or await self._has_secrets(spec.account)):
            return None  # tokens of Secrets never expire
        created = account.meta.creation_timestamp if account else None
        until = spec.account.issued_before if spec.account else None
        return self._all_ended(until or now, created)

    async def _certificates_end(self, spec: CredentialRevocationSpec) -> datetime | None:
        """Expiry of the last recorded certificate that a revocation of its account affects."""
        until, user = spec.account.issued_before if spec.account else None, spec.username
        if until is None:
            return None
        entries = list(self._records.entries.values())

        def last() -> datetime | None:
            records = [entry.object for entry in entries if user.encode() in entry.tail]
            named = [one for one in records if one.username == user and not one.spec.cluster]
            issued = [one for one in named if (one.metadata.creation_timestamp or until) <= until]
            return max((end for one in issued if (end := one.spec.not_after)), default=None)

        return await asyncio.to_thread(last)

    def _end_of_token(self, token: RevokedToken) -> datetime | None:
        """Expiry of a token and, if it is not of an account of ours, of tokens exchanged for it."""
        if token.expires is None or token.name or not self._may_be_exchanged():
            return token.expires
        return token.expires + LONGEST

    def _may_be_outside(self, token: RevokedToken) -> bool:
        return not token.name and self._accepts_outside_tokens

    async def _has_secrets(self, account: RevokedAccount) -> bool:
        """Whether there are Secrets with tokens of an account."""
        key, value = self._account_annotation.encode(), msgspec.json.encode(account.name)
        entries = list(self._secrets.scan(account.namespace))
        return bool(await holding(entries, b'"%b":%b' % (key, value)))

    # -- permissions --------------------------------------------------------------------------

    async def _require(
        self, request: Request, kind: Kind[Any], name: str, spec: CredentialRevocationSpec
    ) -> None:
        targets = self._targets(spec)
        if await self._rights.include_any(request, targets):
            return
        first = targets[0]
        what = first.name and f" {quote(_full_name(first))}"
        raise Forbidden(
            kind.about(name),
            f"user not permitted to revoke credentials of {first.resource}"
            + (what or " that are not named"),
        )

    def _targets(self, spec: CredentialRevocationSpec) -> Sequence[Target]:
        """The targets of the verb: permission on any of these suffices."""
        if named := spec.certificate or spec.authority:
            return signer_targets(self._naming, REVOKE, named.signer_name)
        if spec.user:
            name = spec.user.username
            return [Target(verb=REVOKE, is_resource=True, version="*", resource="users", name=name)]
        if spec.key:
            return [
                Target(
                    verb=REVOKE,
                    is_resource=True,
                    group=self._naming.identity,
                    version="*",
                    resource="signingkeys",
                    name=spec.key.name,
                )
            ]
        account = spec.account or spec.token
        assert account is not None
        return [
            Target(
                verb=REVOKE,
                is_resource=True,
                version="*",
                resource="serviceaccounts",
                namespace=account.namespace,
                name=account.name,
            )
        ]


def _full_name(target: Target) -> str:
    return "/".join(filter(None, (target.namespace, target.name)))
