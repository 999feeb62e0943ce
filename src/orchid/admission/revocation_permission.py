"""Revoking a credential needs the verb `revoke`, which no other verb implies.

what is taken back      the right is `revoke` on
certificate, authority  `signers`, named as the signer or as every signer of its domain; of a
                        certificate that nobody here has seen: on every signer
token, account          `serviceaccounts`, in that namespace and of that name; of a token without
                        its account: on every account

Before that is asked, what the revocation names is looked up (`admit`): a number or a request that
never led to a certificate is refused, a fingerprint that was never seen is warned about. Only a
hold is lifted by deleting it, by those who may revoke; all others stay until `status.expires`.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.engine.kind import Kind
from orchid.engine.request import Request, Target
from orchid.kinds.credential_revocation import (
    SPEC,
    CredentialRevocation,
    CredentialRevocationSpec,
    RevokedCertificate,
)
from orchid.kinds.issued_certificate import IssuedCertificate
from orchid.kinds.secret import Secret
from orchid.kinds.service_account import ServiceAccount
from orchid.wire.errors import Forbidden, Invalid
from orchid.wire.fields import FieldError, invalid, not_found
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.struct import replace
from orchid.wire.text import quote, timestamp, whole_seconds

REVOKE = "revoke"
CERTIFICATE = SPEC / "certificate"


class RevocationPermission(AdmissionPolicy):
    admits = (CredentialRevocation,)
    reviews = (CredentialRevocation,)

    def __init__(
        self,
        names: Naming,
        feed: Feed,
        authorizer: Authorizer,
        *,
        already: Callable[[CredentialRevocationSpec], list[str]],
        is_ours: Callable[[str], bool],
        longest_token: timedelta | None,
        clients_end: Callable[[], datetime],
    ) -> None:
        """`already`: the keys of the revocations there are of the same thing. `is_ours`: whether a
        signer, by its name, is this server's. `longest_token`: None if there is no limit.
        `clients_end`: when the last authority ends whose certificates prove clients.
        """
        self._feed = feed
        self._records = feed.of(IssuedCertificate)
        self._accounts = feed.of(ServiceAccount)
        self._secrets = feed.of(Secret)
        self._authorizer = authorizer
        self._already = already
        self._is_ours = is_ours
        self._longest_token = longest_token
        self._clients_end = clients_end
        self._certificates_group = names.certificates
        self._account_annotation = names.account_name_annotation

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Object:
        if old is not None:
            kept: Object = new
            return kept
        await self._feed.fresh()
        spec, expires = await self._looked_up(request, kind, new)
        for there in self._already(spec):
            request.warn(f"already revoked by {quote(there.rpartition('/')[2])}")
        done: Object = replace(new, spec=spec, status=replace(new.status, expires=expires))
        return done

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is not None and old is None:
            await self._require(request, kind, new)
        elif new is None:
            await self._review_deletion(request, kind, old)

    async def _review_deletion(
        self, request: Request, kind: Kind[Any], old: CredentialRevocation
    ) -> None:
        expires = old.status.expires
        if await self._has_ended(old, request.now):
            return
        if old.is_hold:
            await self._require(request, kind, old)
            return
        until = f"until {timestamp(expires)}, when" if expires else "until"
        text = f"it stays {until} what it revokes has ended; only certificateHold can be lifted"
        raise Forbidden(kind.about(old.name), text)

    async def _has_ended(self, old: CredentialRevocation, now: datetime) -> bool:
        """Whether what was revoked is refused without the revocation, too."""
        if old.spec.authority:
            # One that was issued in the same moment may end later than was known then.
            last = await self._last_end(old.spec.authority.signer_name)
            return last is None or last <= now
        if old.account is not None:
            await self._feed.fresh()
            there = self._accounts.get(*old.account)
            if old.outlives_account(there.meta.creation_timestamp if there else None):
                return True
        return old.status.expires is not None and old.status.expires <= now

    # -- what is meant ------------------------------------------------------------------------

    async def _looked_up(
        self, request: Request, kind: Kind[Any], new: CredentialRevocation
    ) -> tuple[CredentialRevocationSpec, datetime | None]:
        """The revocation with what is known of its credential, and when that ends."""
        spec = new.spec
        if len(spec.targets) != 1:
            return spec, None  # refused by the rules of the kind
        if spec.certificate:
            return await self._certificate(request, kind, new, spec.certificate)
        if spec.authority:
            signer = spec.authority.signer_name
            if signer and not self._is_ours(signer):
                _refuse(kind, new, not_found(SPEC / "authority" / "signerName", signer))
            return spec, await self._last_end(signer)
        named = spec.account or spec.token
        assert named is not None
        if named.name and named.namespace and not self._accounts.get(named.namespace, named.name):
            place = SPEC / "".join(spec.targets) / "name"
            _refuse(kind, new, not_found(place, f"{named.namespace}/{named.name}"))
        return spec, self._tokens_end(spec, request.now)

    async def _certificate(
        self,
        request: Request,
        kind: Kind[Any],
        new: CredentialRevocation,
        named: RevokedCertificate,
    ) -> tuple[CredentialRevocationSpec, datetime | None]:
        found = await self._find(kind, new, named)
        if found is None:
            if not named.sha256:
                return new.spec, None  # refused by the rules of the kind
            request.warn("no certificate with this fingerprint was issued here")
            # Nobody knows whose certificate it is, so a signer that was named is ignored; nor when
            # it ends, but an authority's end is the end of what it signed.
            unseen = RevokedCertificate(sha256=named.sha256)
            return replace(new.spec, certificate=unseen), self._clients_end()
        record = found.spec
        known = RevokedCertificate(
            sha256=record.sha256,
            signer_name=record.signer_name,
            serial_number=record.serial_number,
            request_name=record.request.name,
            authority_key=record.authority_key,
        )
        for field in named.__struct_fields__:
            given, actual = getattr(named, field), getattr(known, field)
            if given and given != actual:
                text = f"that certificate has {quote(actual)}"
                _refuse(kind, new, invalid(CERTIFICATE / field, given, text))
        return replace(new.spec, certificate=known), record.not_after

    async def _find(
        self, kind: Kind[Any], new: CredentialRevocation, named: RevokedCertificate
    ) -> IssuedCertificate | None:
        """The record of the certificate; only one given by its fingerprint may have none."""
        if named.serial_number:
            entry = self._records.get("", named.serial_number)
            if entry is None:
                _refuse(kind, new, not_found(CERTIFICATE / "serialNumber", named.serial_number))
            return entry.object if entry else None
        if named.sha256:
            found = await self._holding(b'"sha256":"%b"' % named.sha256.encode())
            matching = [one for one in found if one.spec.sha256 == named.sha256]
            return matching[0] if matching else None
        if not named.request_name:
            return None
        place = CERTIFICATE / "requestName"
        needle = b'"request":{"name":%b' % msgspec.json.encode(named.request_name)
        matching = [
            one
            for one in await self._holding(needle)
            if one.spec.request.name == named.request_name
        ]
        if not matching:
            _refuse(kind, new, not_found(place, named.request_name))
        if len(matching) > 1:
            numbers = ", ".join(one.name for one in matching[:10])
            text = f"several certificates were issued for requests of that name: {numbers}"
            _refuse(kind, new, invalid(place, named.request_name, text))
        return matching[0]

    async def _holding(self, needle: bytes) -> list[IssuedCertificate]:
        """The records with these bytes; found off the loop, since there may be very many."""
        entries = list(self._records.entries.values())

        def found() -> list[Entry[IssuedCertificate]]:
            return [entry for entry in entries if needle in entry.tail]

        return [entry.object for entry in await asyncio.to_thread(found)]

    # -- when it has ended --------------------------------------------------------------------

    async def _last_end(self, signer: str) -> datetime | None:
        """When the last certificate of a signer ends."""
        entries, decode = list(self._records.entries.values()), self._records.kind.decoder.stored

        def found() -> datetime | None:
            records = (decode(entry.data).spec for entry in entries)
            ends = (one.not_after for one in records if one.signer_name == signer)
            return max((end for end in ends if end is not None), default=None)

        return await asyncio.to_thread(found)

    def _tokens_end(self, spec: CredentialRevocationSpec, now: datetime) -> datetime | None:
        """When the last token has expired; tokens of Secrets never do."""
        if self._longest_token is None:
            return None
        account = spec.account
        if account and any(
            entry.meta.annotations.get(self._account_annotation) == account.name
            for entry in self._secrets.scan(account.namespace)
        ):
            return None
        return whole_seconds(now) + self._longest_token

    # -- who may ------------------------------------------------------------------------------

    async def _require(
        self, request: Request, kind: Kind[Any], revocation: CredentialRevocation
    ) -> None:
        spec = revocation.spec
        targets = self._account_targets(spec) or self._signer_targets(spec)
        for target in targets:
            if (await self._authorizer.authorize(request.user, target)).allowed:
                return
        first = targets[0]
        what = first.name and f" {quote(_place(first))}"
        raise Forbidden(
            kind.about(revocation.name),
            f"user not permitted to revoke credentials of {first.resource}"
            + (what or " that are not named"),
        )

    def _account_targets(self, spec: CredentialRevocationSpec) -> list[Target]:
        named = spec.account or spec.token
        if named is None:
            return []
        return [
            Target(
                verb=REVOKE,
                is_resource=True,
                version="*",
                resource="serviceaccounts",
                namespace=named.namespace,
                name=named.name,
            )
        ]

    def _signer_targets(self, spec: CredentialRevocationSpec) -> list[Target]:
        named = spec.certificate or spec.authority
        signer = named.signer_name if named else ""
        names = (signer, f"{signer.partition('/')[0]}/*") if signer else ("",)
        return [
            Target(
                verb=REVOKE,
                is_resource=True,
                group=self._certificates_group,
                version="*",
                resource="signers",
                name=name,
            )
            for name in names
        ]


def _place(target: Target) -> str:
    return "/".join(filter(None, (target.namespace, target.name)))


def _refuse(kind: Kind[Any], new: Object, problem: FieldError) -> None:
    raise Invalid(kind.about_kind(new.name), [problem])
