"""AcmeAccount: the key with which an ACME client acts as a service account.

The ACME server (acme/) creates it when a client presents an external account key of the service
account (features/acme/acme_accounts.py). It is a credential of that account, like a token: requests
that its key signs create certificate requests as the account. It ends with the account, with its
deletion, when it is deactivated, and by a revocation of the account.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import field

from orchid.kernel.credentials.jwk import read_jwk_text
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    immutable,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, at_most, describe, proto, replace

SPEC: Final = Path() / "spec"
VALID, DEACTIVATED = "valid", "deactivated"
MOST_CONTACTS: Final = 8
LONGEST_CONTACT: Final = 256

_is_contact = re.compile(r"[!-~]+").fullmatch


class AcmeAccountSpec(Wire):
    """The account, its authority and its key."""

    service_account_name: Annotated[
        str, proto(1), describe("The service account, in the same namespace.", required=True)
    ] = always(str)
    service_account_uid: Annotated[
        str, proto(2), describe("The uid of the service account.", required=True)
    ] = always(str, name="serviceAccountUID")
    authority: Annotated[
        str, proto(3), describe("The CertificateAuthority that it uses.", required=True)
    ] = always(str)
    jwk: Annotated[
        str, proto(4), describe("The public key: a JWK with its necessary members.", required=True)
    ] = always(str)
    thumbprint: Annotated[
        str, proto(5), describe("The thumbprint of the key (RFC 7638).", required=True)
    ] = always(str)
    contact: Annotated[
        tuple[str, ...],
        at_most(MOST_CONTACTS),
        proto(6),
        describe("Contact URLs, as the client gave them."),
    ] = ()
    external_key: Annotated[
        str, proto(7), describe("The identifier of the external account key that it used.")
    ] = ""
    state: Annotated[
        str,
        proto(8),
        describe("valid (default) or deactivated, which is final.", required=False),
    ] = always(str)
    last_change: Annotated[
        int,
        proto(9),
        describe("Nanoseconds since 1970: the nonce of the last change; an older one is refused."),
    ] = 0
    authority_uid: Annotated[
        str, proto(10), describe("The uid of the CertificateAuthority.", required=True)
    ] = field(default="", name="authorityUID")


class AcmeAccount(Object):
    """A key with which an ACME client acts as a service account."""

    spec: Annotated[
        AcmeAccountSpec, proto(2), describe("The account and its key.", required=True)
    ] = field(default_factory=AcmeAccountSpec)

    @property
    def is_valid(self) -> bool:
        return self.spec.state == VALID


class Rules(Strategy[AcmeAccount]):
    """Key, contact and state may change; the service account and the authority are fixed."""

    def validate(self, new: AcmeAccount) -> Iterator[FieldError]:
        spec = new.spec
        for name, text in (
            ("serviceAccountName", spec.service_account_name),
            ("serviceAccountUID", spec.service_account_uid),
            ("authority", spec.authority),
            ("authorityUID", spec.authority_uid),
        ):
            if not text:
                yield required(SPEC / name)
        yield from changeable_errors(spec)

    def validate_update(self, new: AcmeAccount, old: AcmeAccount) -> Iterator[FieldError]:
        for name, now, before in (
            ("serviceAccountName", new.spec.service_account_name, old.spec.service_account_name),
            ("serviceAccountUID", new.spec.service_account_uid, old.spec.service_account_uid),
            ("authority", new.spec.authority, old.spec.authority),
            ("externalKey", new.spec.external_key, old.spec.external_key),
        ):
            yield from immutable(SPEC / name, now, before)
        if old.spec.authority_uid:  # accounts of earlier versions have none
            now, before = new.spec.authority_uid, old.spec.authority_uid
            yield from immutable(SPEC / "authorityUID", now, before)
        if old.spec.state == DEACTIVATED and new.spec.state != DEACTIVATED:
            yield invalid(SPEC / "state", new.spec.state, "a deactivated account stays deactivated")
        if new.spec != old.spec:
            yield from changeable_errors(new.spec)


def changeable_errors(spec: AcmeAccountSpec) -> Iterator[FieldError]:
    """Check what an update may change."""
    yield from key_errors(spec)
    yield from contact_errors(spec.contact)
    if spec.state not in (VALID, DEACTIVATED):
        yield unsupported(SPEC / "state", spec.state, (VALID, DEACTIVATED))


def key_errors(spec: AcmeAccountSpec) -> Iterator[FieldError]:
    try:
        key = read_jwk_text(spec.jwk)
    except Refusal as refusal:
        yield invalid(SPEC / "jwk", spec.jwk[:LONGEST_CONTACT], str(refusal))
        return
    if spec.jwk != key.text:
        yield invalid(SPEC / "jwk", spec.jwk, f"must be in canonical form: {key.text}")
    if spec.thumbprint != key.thumbprint:
        yield invalid(SPEC / "thumbprint", spec.thumbprint, f"the key has {key.thumbprint}")


def contact_errors(contact: tuple[str, ...]) -> Iterator[FieldError]:
    path = SPEC / "contact"
    if len(contact) > MOST_CONTACTS:
        yield too_many(path, len(contact), MOST_CONTACTS)
    for index, url in enumerate(contact[:MOST_CONTACTS]):
        if len(url) > LONGEST_CONTACT:
            yield too_long(path[index], LONGEST_CONTACT, "character")
        elif not _is_contact(url) or ":" not in url:
            yield invalid(path[index], url, "must be a URL, such as mailto:team@example.com")


def with_defaults(new: AcmeAccount) -> AcmeAccount:
    return replace(new, spec=replace(new.spec, state=new.spec.state or VALID))


def declare(naming: Naming) -> Kind[AcmeAccount]:
    return Kind(
        type=AcmeAccount,
        group=naming.identity,
        version="v1alpha1",
        plural="acmeaccounts",
        scope=Scope.NAMESPACED,
        counts_generation=True,
        keeps_dependents=True,
        rules=Rules(),
        defaults=with_defaults,
        columns=COLUMNS,
        selectable={
            "spec.thumbprint": lambda account: account.spec.thumbprint,
            "spec.serviceAccountName": lambda account: account.spec.service_account_name,
        },
    )


COLUMNS: Final = (
    NAME,
    Column(
        "ServiceAccount",
        lambda one, now: one.spec.service_account_name,
        description="The service account.",
    ),
    Column("Authority", lambda one, now: one.spec.authority, description="The authority."),
    Column("State", lambda one, now: one.spec.state, description="valid or deactivated."),
    AGE,
)
