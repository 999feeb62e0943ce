"""CredentialRevocation: takes a credential back, at once.

    main      what is taken back, and why; it never changes     Rules
    status    the condition Effective, and until when it counts

Exactly one of `certificate`, `token`, `account` and `authority` is named. The credential is refused
from the next request on, wherever the change has arrived (access/revocations.py). Who may create
one, and what the server fills in, is an admission question (admission/revocation_permission.py).
One with the reason certificateHold is lifted by deleting it; any other stays until what it takes
back has ended by itself. One revocation of a credential is enough: a second one is created only if
it revokes more, or for a more serious reason, and supersedes the first (`is_superseded_by`).
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final

from msgspec import field

from orchid.credentials.x509.revocation_list import LISTED_AFTER_END, REASONS, UNSPECIFIED
from orchid.engine.kind import Column, Endpoint, Kind, Scope
from orchid.engine.request import Request
from orchid.engine.strategy import Strategy
from orchid.engine.tables import AGE, NAME
from orchid.ledger.entries import Fact
from orchid.wire.conditions import Condition, condition_errors, is_true
from orchid.wire.fields import (
    FieldError,
    Path,
    immutable,
    invalid,
    required,
    too_long,
    unsupported,
)
from orchid.wire.meta import Object, Time
from orchid.wire.naming import Naming
from orchid.wire.struct import Wire, describe, merge_key, proto, replace
from orchid.wire.text import whole_seconds

EFFECTIVE: Final = "Effective"
HOLD: Final = "certificateHold"
COMPROMISED: Final = ("keyCompromise", "cACompromise", "aACompromise")
SPEC: Final = Path() / "spec"
CONDITIONS: Final = Path() / "status" / "conditions"
LONGEST_MESSAGE: Final = 1024
LONGEST_ID: Final = 256

_is_sha256 = re.compile(r"[0-9a-f]{64}").fullmatch
_is_serial = re.compile(r"(?:0|[1-9a-f][0-9a-f]{0,39})").fullmatch


class RevokedCertificate(Wire):
    """One certificate: by fingerprint, by signer and number, or by the request it was issued for.

    The server adds what it knows of the certificate.
    """

    sha256: Annotated[str, proto(1), describe("SHA-256 of the certificate (DER), in hex.")] = ""
    signer_name: Annotated[str, proto(2), describe("Who signed it.")] = ""
    serial_number: Annotated[str, proto(3), describe("Its number, in hex.")] = ""
    request_name: Annotated[
        str, proto(4), describe("The request that it was issued for, if there is one such.")
    ] = ""
    authority_key: Annotated[
        str, proto(5), describe("The identifier of the key that signed it, in hex.")
    ] = ""


class RevokedToken(Wire):
    """One token of an account or of an issuer, by its id. With neither: any token with that id."""

    jti: Annotated[
        str, proto(1), describe("Its id, as audit records and reviews have it behind `JTI=`.")
    ] = ""
    namespace: Annotated[str, proto(2), describe("The namespace of its account.")] = ""
    name: Annotated[str, proto(3), describe("The name of its account.")] = ""
    expires: Annotated[
        Time | None,
        proto(4),
        describe("When the token ends, as its claim `exp` says; the revocation ends then, too."),
    ] = None
    issuer: Annotated[
        str,
        proto(5),
        describe(
            "The issuer of the token, as its claim `iss` says: one whose tokens this server "
            "accepts. Not together with an account."
        ),
    ] = ""


class RevokedAccount(Wire):
    """Every token of an account that was issued until some moment."""

    namespace: Annotated[str, proto(1), describe("The namespace of the account.")] = ""
    name: Annotated[str, proto(2), describe("The name of the account.")] = ""
    issued_before: Annotated[
        Time | None,
        proto(3),
        describe("Tokens issued until then, that second included. By default: until now."),
    ] = None


class RevokedAuthority(Wire):
    """Every certificate of a signer that was issued until some moment."""

    signer_name: Annotated[str, proto(1), describe("The signer.")] = ""
    issued_before: Annotated[
        Time | None,
        proto(2),
        describe("Certificates issued until then, that second included. By default: until now."),
    ] = None
    keys: Annotated[
        tuple[str, ...],
        proto(3),
        describe(
            "SHA-256 of the public keys (SPKI) that sign for it, in hex. The server fills it in, "
            "and refuses by it certificates that are not in the inventory."
        ),
    ] = ()


class CredentialRevocationSpec(Wire):
    """What is taken back, and why. Exactly one of the four; it never changes."""

    certificate: Annotated[RevokedCertificate | None, proto(1), describe("A certificate.")] = None
    token: Annotated[RevokedToken | None, proto(2), describe("A token.")] = None
    account: Annotated[RevokedAccount | None, proto(3), describe("All tokens of an account.")] = (
        None
    )
    authority: Annotated[
        RevokedAuthority | None, proto(4), describe("All certificates of a signer.")
    ] = None
    reason: Annotated[
        str, proto(5), describe("Why, by the names of RFC 5280. certificateHold can be lifted.")
    ] = ""
    message: Annotated[str, proto(6), describe("Why, in a sentence.")] = ""

    @property
    def targets(self) -> dict[str, Any]:
        """What is named, by the name of its field."""
        found = {
            "certificate": self.certificate,
            "token": self.token,
            "account": self.account,
            "authority": self.authority,
        }
        return {name: value for name, value in found.items() if value is not None}


class CredentialRevocationStatus(Wire):
    """How far the revocation has come, and when it has done its work."""

    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(1),
        describe("Effective: every server refuses the credential."),
    ] = ()
    expires: Annotated[
        Time | None,
        proto(2),
        describe("When what is revoked has ended by itself; unset if nobody knows."),
    ] = None


class CredentialRevocation(Object):
    """Takes a certificate, a token, or all of an account or signer back, at once."""

    spec: Annotated[
        CredentialRevocationSpec, proto(2), describe("What is taken back.", required=True)
    ] = field(default_factory=CredentialRevocationSpec)
    status: Annotated[CredentialRevocationStatus, proto(3), describe("How far it has come.")] = (
        field(default_factory=CredentialRevocationStatus)
    )

    @property
    def is_effective(self) -> bool:
        return is_true(self.status.conditions, EFFECTIVE)

    @property
    def is_hold(self) -> bool:
        return self.spec.reason == HOLD

    @property
    def reason(self) -> str:
        return self.spec.reason or UNSPECIFIED

    @property
    def gravity(self) -> int:
        return gravity_of(self.reason)

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of the account whose tokens are taken back, if one is named."""
        named = self.spec.account or self.spec.token
        return (named.namespace, named.name) if named and named.name else None

    def has_expired(self, now: Time) -> bool:
        """Whether nothing needs it any more; lists name a certificate for some days after its end.

        False if its end is not known.
        """
        is_listed = self.spec.certificate is not None or self.spec.authority is not None
        kept = LISTED_AFTER_END if is_listed else timedelta()
        return self.status.expires is not None and self.status.expires + kept <= now

    @property
    def target(self) -> tuple[str, ...]:
        """What is revoked, apart from the time of issue. One revocation of it is enough."""
        spec = self.spec
        if spec.certificate:
            return "certificate", spec.certificate.sha256
        if spec.token:
            named = spec.token
            return "token", named.jti, named.namespace, named.name, named.issuer
        if spec.account:
            return "account", spec.account.namespace, spec.account.name
        return "authority", spec.authority.signer_name if spec.authority else ""

    def covers(self, other: "CredentialRevocation") -> bool:
        """Whether all that `other` revokes is revoked by this one, for no lesser reason."""
        return (
            self.target == other.target
            and self.gravity >= other.gravity
            and _not_before(_issued_before(self.spec), _issued_before(other.spec))
            and _keys(self.spec) >= _keys(other.spec)
            and (_is_listed(self.spec) or not _is_listed(other.spec))
            and _not_before(self._end_of_credential, other._end_of_credential)
        )

    def is_superseded_by(self, other: "CredentialRevocation") -> bool:
        """Whether removing this one changes nothing as long as `other` is there.

        Of two that are alike, only the later one is superseded: never each by the other.
        """
        if not other.covers(self) or not _not_before(other.status.expires, self.status.expires):
            return False
        alike = self.covers(other) and _not_before(self.status.expires, other.status.expires)
        return not alike or _age(other) < _age(self)

    @property
    def _end_of_credential(self) -> Time | None:
        """When one credential ends, as far as the revocation depends on it."""
        if self.spec.token:
            return self.spec.token.expires
        return self.status.expires if self.spec.certificate else None

    def outlives_account(self, made: Time | None) -> bool:
        """Whether every token it means is refused anyway, by when the account of today was made.

        None: there is no such account. A token counts for the account it was issued to alone.
        """
        until = self.metadata.creation_timestamp
        if self.spec.account:
            until = self.spec.account.issued_before
        return self.account is not None and (made is None or (until is not None and made > until))


class Rules(Strategy[CredentialRevocation]):
    """The main endpoint: what is taken back is said once."""

    def prepare_for_create(
        self, new: CredentialRevocation, request: Request
    ) -> CredentialRevocation:
        return replace(new.with_meta(generation=1), spec=completed(new.spec, request.now))

    def validate(self, new: CredentialRevocation) -> Iterator[FieldError]:
        spec = new.spec
        if len(spec.targets) != 1:
            text = "exactly one of certificate, token, account and authority must be named"
            yield invalid(SPEC, sorted(spec.targets), text)
        if spec.reason and spec.reason not in REASONS:
            yield unsupported(SPEC / "reason", spec.reason, tuple(REASONS))
        if len(spec.message) > LONGEST_MESSAGE:
            yield too_long(SPEC / "message", LONGEST_MESSAGE, "character")
        if spec.certificate:
            yield from certificate_errors(spec.certificate, SPEC / "certificate")
        if spec.token:
            yield from token_errors(spec.token, SPEC / "token")
        if spec.account:
            yield from account_errors(spec.account, SPEC / "account")
            yield from future_errors(spec.account.issued_before, SPEC / "account", new)
        if spec.authority:
            if not spec.authority.signer_name:
                yield required(SPEC / "authority" / "signerName")
            yield from future_errors(spec.authority.issued_before, SPEC / "authority", new)

    def validate_update(
        self, new: CredentialRevocation, old: CredentialRevocation
    ) -> Iterator[FieldError]:
        yield from immutable(SPEC, new.spec, old.spec)


class StatusRules(Strategy[CredentialRevocation]):
    """The `status` endpoint."""

    def validate_update(
        self, new: CredentialRevocation, old: CredentialRevocation
    ) -> Iterator[FieldError]:
        if new.status != old.status:
            yield from condition_errors(new.status.conditions, CONDITIONS)


def gravity_of(reason: str) -> int:
    """How serious a reason is; one that is given counts more than none, a hold least."""
    if reason == HOLD:
        return 0
    if reason == UNSPECIFIED:
        return 1
    return 3 if reason in COMPROMISED else 2


def completed(spec: CredentialRevocationSpec, now: Time) -> CredentialRevocationSpec:
    """The spec with its defaults: what was issued until now."""
    now = whole_seconds(now)
    if spec.account and spec.account.issued_before is None:
        spec = replace(spec, account=replace(spec.account, issued_before=now))
    if spec.authority and spec.authority.issued_before is None:
        spec = replace(spec, authority=replace(spec.authority, issued_before=now))
    return spec


def certificate_errors(named: RevokedCertificate, path: Path) -> Iterator[FieldError]:
    if not (named.sha256 or named.serial_number or named.request_name):
        yield required(path, "say which: sha256, signerName and serialNumber, or requestName")
    if named.sha256 and not _is_sha256(named.sha256):
        yield invalid(path / "sha256", named.sha256, "must be 64 lower-case hexadecimal digits")
    if named.serial_number:
        if not _is_serial(named.serial_number):
            text = "must be up to 40 lower-case hexadecimal digits without leading zeros"
            yield invalid(path / "serialNumber", named.serial_number, text)
        if not named.signer_name:
            yield required(path / "signerName", "a number means something to its signer alone")


def token_errors(named: RevokedToken, path: Path) -> Iterator[FieldError]:
    if not named.jti:
        yield required(path / "jti")
    elif len(named.jti) > LONGEST_ID:
        yield too_long(path / "jti", LONGEST_ID)
    if bool(named.namespace) != bool(named.name):
        yield required(path / ("name" if named.namespace else "namespace"))
    if named.issuer and (named.namespace or named.name):
        yield invalid(path / "issuer", named.issuer, "must not be given together with an account")


def account_errors(named: RevokedAccount, path: Path) -> Iterator[FieldError]:
    for name, value in (("namespace", named.namespace), ("name", named.name)):
        if not value:
            yield required(path / name)


def future_errors(
    moment: Time | None, path: Path, new: CredentialRevocation
) -> Iterator[FieldError]:
    """What is yet to be issued cannot be taken back: creation is the present."""
    now = new.metadata.creation_timestamp
    if moment is not None and now is not None and moment > now:
        yield invalid(path / "issuedBefore", moment, "must not be in the future")


def declare(names: Naming) -> Kind[CredentialRevocation]:
    return Kind(
        type=CredentialRevocation,
        group=names.identity,
        version="v1alpha1",
        plural="credentialrevocations",
        scope=Scope.CLUSTER,
        rules=Rules(),
        writes=("metadata", "spec"),
        # Filled in by the server whatever was sent: see admission/revocation_permission.py.
        creates=("metadata", "spec", "status.expires"),
        columns=COLUMNS,
        selectable={"spec.certificate.sha256": lambda one: _certificate(one).sha256},
        records=revocations,
        endpoints=(Endpoint("status", writes=("status.conditions",), rules=StatusRules()),),
    )


def revocations(
    new: CredentialRevocation | None, old: CredentialRevocation | None, request: Request
) -> Iterator[Fact]:
    """For the ledger: what was taken back, and which hold was lifted; accounts are sealed."""
    if new is not None and old is not None:
        return
    told = new or old
    assert told is not None
    ended = told.status.expires is not None and told.status.expires <= request.now
    if new is None and (ended or not told.is_hold):
        return  # it has done its work: any other is not deleted before
    yield _fact(told, "released" if new is None else "revoked", request.user.username)


def restored(found: CredentialRevocation) -> Fact:
    """For the ledger: a revocation that a restored backup lacked and the server put back."""
    return _fact(found, "revoked", "", restored=True)


def _fact(found: CredentialRevocation, event: str, by: str, **more: Any) -> Fact:
    spec, clear, sealed = found.spec, {}, {}
    if spec.certificate:
        named = spec.certificate
        clear = {"sha256": named.sha256, "signer": named.signer_name, "serial": named.serial_number}
    elif spec.authority:
        clear = {"signer": spec.authority.signer_name}
    elif spec.token:
        sealed = {"jti": spec.token.jti}
    elif spec.account:
        sealed = {"account": f"{spec.account.namespace}/{spec.account.name}"}
    return Fact(
        f"{''.join(spec.targets)}.{event}",
        {**clear, **more, "reason": spec.reason or "unspecified"},
        {**sealed, "name": found.name, "by": by},
    )


def shown(spec: CredentialRevocationSpec) -> str:
    """What is taken back, for a table cell."""
    if spec.certificate:
        found = spec.certificate
        return f"cert/{found.serial_number or found.sha256}"
    if spec.token:
        return f"token/{spec.token.jti}"
    if spec.account:
        return f"account/{spec.account.namespace}/{spec.account.name}"
    return f"authority/{spec.authority.signer_name}" if spec.authority else ""


def _issued_before(spec: CredentialRevocationSpec) -> Time | None:
    named = spec.account or spec.authority
    return named.issued_before if named else None


def _keys(spec: CredentialRevocationSpec) -> frozenset[str]:
    return frozenset(spec.authority.keys if spec.authority else ())


def _is_listed(spec: CredentialRevocationSpec) -> bool:
    """Whether a revocation list can name the certificate, which takes its number."""
    return spec.certificate is not None and bool(spec.certificate.serial_number)


def _not_before(one: Time | None, other: Time | None) -> bool:
    """Whether a moment is no earlier than another; None is after all others."""
    return one is None or (other is not None and one >= other)


def _age(one: CredentialRevocation) -> tuple[str, str]:
    made = one.metadata.creation_timestamp
    return made.isoformat() if made else "", one.name


def _certificate(one: CredentialRevocation) -> RevokedCertificate:
    return one.spec.certificate or RevokedCertificate()


COLUMNS: Final = (
    NAME,
    Column("Revokes", lambda one, now: shown(one.spec), description="What is taken back."),
    Column("Reason", lambda one, now: one.spec.reason or "unspecified", description="Why it is."),
    Column(
        "Effective",
        lambda one, now: str(one.is_effective),
        description="Whether every server refuses it.",
    ),
    AGE,
)
