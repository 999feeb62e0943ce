"""Accounts of clients: creation with an external key, changes, new keys, deactivation.

Each write is idempotent: a repeated request finds what the first one did. A change of the contacts
is refused if a later request has changed the account.
"""

import re
from typing import Any, Final

import msgspec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.acme.acme_accounts import (
    AcmeAccounts,
    ExternalKey,
    ExternalKeys,
    account_name,
    is_account_of,
)
from orchid.features.acme.kinds.acme_account import (
    DEACTIVATED,
    MOST_CONTACTS,
    VALID,
    AcmeAccount,
    AcmeAccountSpec,
    contact_errors,
)
from orchid.features.acme.protocol import jws, links
from orchid.features.acme.protocol.binding import verify_binding
from orchid.features.acme.protocol.nonces import bad_nonce
from orchid.features.acme.protocol.problems import AcmeProblem, malformed, unauthorized, unknown
from orchid.features.acme.protocol.replies import Reply
from orchid.features.acme.protocol.requests import (
    RequestTarget,
    VerifiedRequest,
    require_account,
    require_key,
)
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.jwk import AccountKey, Jwk, read_jwk
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.wire.errors import AlreadyExists, Conflict
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.struct import replace

LONGEST_SHOWN: Final = 64  # characters of a URL in an error
MOST_PER_KEY: Final = 1000  # accounts of one external key
CREATED, CONFLICT = 201, 409

_is_address = re.compile(r"[^@,;?%\s]+@[^@,;?%\s]+").fullmatch


class NewAccount(msgspec.Struct, frozen=True, rename="camel"):
    """The payload of a new account; other members are ignored."""

    contact: tuple[str, ...] = ()
    only_return_existing: bool = False
    external_account_binding: jws.Flattened | None = None


class AccountUpdate(msgspec.Struct, frozen=True):
    """The payload of a change."""

    contact: tuple[str, ...] | None = None
    status: str | None = None


class KeyChange(msgspec.Struct, frozen=True, rename="camel"):
    """The inner payload of a new key (RFC 8555, section 7.3.5)."""

    account: str
    old_key: Jwk


class AccountPages:
    """new-account, account and key-change."""

    def __init__(self, accounts: AcmeAccounts, keys: ExternalKeys, client: Client) -> None:
        self._accounts = accounts
        self._keys = keys
        self._client = client

    async def new(self, request: VerifiedRequest) -> Reply:
        key, payload, target = require_key(request), request.read(NewAccount), request.target
        await self._accounts.fresh()
        account = self._accounts.of_key(target.authority, key.thumbprint)
        if account is not None:
            if self._accounts.user_of(account) is None:
                raise unauthorized("the account is deactivated or revoked, or its owner is gone")
            return _reply(target, account)
        if payload.only_return_existing:
            raise AcmeProblem("accountDoesNotExist", "there is no account with this key")
        refuse_contacts(payload.contact)
        external = verify_binding(payload.external_account_binding, self._keys, key, target.url)
        if self._accounts.count_of(external.kid) >= MOST_PER_KEY:
            text = f"an external account key is used for at most {MOST_PER_KEY} accounts"
            raise AcmeProblem("rateLimited", text, headers=b"Retry-After: 86400\r\n")
        return await self._create(request, key, external, payload.contact)

    async def _create(
        self,
        request: VerifiedRequest,
        key: AccountKey,
        external: ExternalKey,
        contact: tuple[str, ...],
    ) -> Reply:
        authority = request.target.authority
        owner = self._client.catalog.of(ServiceAccount)
        new = AcmeAccount(
            metadata=ObjectMeta(
                name=account_name(authority, key.thumbprint),
                namespace=external.namespace,
                owner_references=(
                    OwnerReference(
                        api_version=owner.api_version,
                        kind=owner.name,
                        name=external.account,
                        uid=external.account_uid,
                    ),
                ),
            ),
            spec=AcmeAccountSpec(
                service_account_name=external.account,
                service_account_uid=external.account_uid,
                authority=authority.name,
                authority_uid=authority.metadata.uid,
                jwk=key.text,
                thumbprint=key.thumbprint,
                contact=contact,
                external_key=external.kid,
                state=VALID,
                last_change=request.moment,
            ),
        )
        try:
            return _reply(request.target, await self._client.create(new), CREATED)
        except AlreadyExists:
            await self._accounts.fresh()
            account = self._accounts.find(new.namespace, new.name)
            if (
                account is None
                or not is_account_of(account, authority)
                or _identity(account.spec) != _identity(new.spec)
            ):  # its key was changed since, or another service account was faster
                raise _in_use() from None
            return _reply(request.target, account)

    async def show(self, request: VerifiedRequest) -> Reply:
        """The account, or a change of it."""
        account, _ = require_account(request)
        if request.target.rest != (account.namespace, account.name):
            raise unknown("account")
        if not request.payload:
            return _reply(request.target, account)
        change = request.read(AccountUpdate)
        if change.status == DEACTIVATED:
            return await self._changed(request, account, state=DEACTIVATED)
        if change.status not in (None, VALID):
            raise malformed("the status can only be changed to deactivated")
        if change.contact is None or change.contact == account.spec.contact:
            return _reply(request.target, account)
        refuse_contacts(change.contact)
        return await self._changed(request, account, contact=change.contact)

    async def change_key(self, request: VerifiedRequest) -> Reply:
        account, _ = require_account(request)
        inner = jws.parse(request.payload)
        header = inner.header
        if header.url != request.target.url or header.jwk is None or header.kid is not None:
            raise malformed("the inner header must have the same url, and the new key as jwk")
        if header.nonce:
            raise malformed("the inner header must not have a nonce")
        key = inner.key()
        inner.verify(key)
        payload = jws.payload_of(inner.payload, KeyChange)
        if payload.account != _url(request.target, account):
            raise malformed("the inner payload names another account")
        try:
            old = read_jwk(payload.old_key)
        except Refusal as refusal:
            raise malformed(f"oldKey: {refusal}") from None
        if old.thumbprint != request.key.thumbprint:
            raise malformed("oldKey is not the key of the account")
        other = self._accounts.of_key(request.target.authority, key.thumbprint)
        if other is not None:
            raise _in_use(_url(request.target, other))
        return await self._changed(request, account, jwk=key.text, thumbprint=key.thumbprint)

    async def _changed(
        self, request: VerifiedRequest, account: AcmeAccount, **change: Any
    ) -> Reply:
        """Write a change, unless a later request has changed the account."""
        if request.moment <= account.spec.last_change:
            raise bad_nonce()
        # An account of an earlier version has no uid of its authority, and a name by its first key.
        uid = request.target.authority.metadata.uid
        spec = replace(account.spec, last_change=request.moment, authority_uid=uid, **change)
        changed = replace(account, spec=spec)
        try:
            await self._client.update(changed)
        except Conflict:
            raise bad_nonce() from None  # somebody else changed it: the client tries again
        return _reply(request.target, changed)


def refuse_contacts(contact: tuple[str, ...]) -> None:
    """Accept mailto: URLs with one address and no header fields (RFC 8555, section 7.3)."""
    for url in contact[:MOST_CONTACTS]:
        scheme, colon, address = url.partition(":")
        if colon and scheme.lower() != "mailto":
            raise AcmeProblem("unsupportedContact", f"{url[:LONGEST_SHOWN]}: only mailto: URLs")
        if colon and not _is_address(address):
            detail = f"{url[:LONGEST_SHOWN]}: a mailto: URL has one address and nothing else"
            raise AcmeProblem("invalidContact", detail)
    for problem in contact_errors(contact):
        raise AcmeProblem("invalidContact", str(problem))


def _in_use(url: str = "") -> AcmeProblem:
    headers = f"Location: {url}\r\n".encode() if url else b""
    return malformed("this key belongs to an account already", code=CONFLICT, headers=headers)


def _url(target: RequestTarget, account: AcmeAccount) -> str:
    return target.links.to(links.ACCOUNT, account.namespace, account.name)


def _reply(target: RequestTarget, account: AcmeAccount, code: int = 200) -> Reply:
    spec = account.spec
    document: dict[str, Any] = {"status": spec.state, "contact": list(spec.contact)}
    return Reply(code, document, location=_url(target, account))


def _identity(spec: AcmeAccountSpec) -> tuple[str, ...]:
    return spec.thumbprint, spec.service_account_name, spec.service_account_uid
