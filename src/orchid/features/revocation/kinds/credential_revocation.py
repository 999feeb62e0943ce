"""CredentialRevocation: revokes a credential, immediately.

    main      the credential and the reason; immutable         Rules
    status    the condition Effective and the time of expiry

Exactly one of `certificate`, `token`, `account`, `authority`, `key` and `user` is set. A server
refuses the credential from the next request after it received the change
(features/revocation/revocations.py). Permission and the fields that the server fills in are
admission (features/revoking/policies/revocation_permission.py). Deleting a revocation of a user, or
with the reason certificateHold, lifts it; all others stay until the credential has expired. A
second revocation of the same credential is only accepted if it revokes more or has a more serious
reason; it supersedes the first (`is_superseded_by`).

With `cluster` it revokes a credential of that Kubernetes cluster
(features/clusters/kinds/cluster.py), and none of this server; without it, the reverse. The rules
for those are in features/clusters/policies/cluster_revocation.py.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from msgspec import field

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.credentials.x509.revocation_list import LISTED_AFTER_END, REASONS, UNSPECIFIED
from orchid.kernel.engine.condition_rules import ConditionRules
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.engine.tombstones import Tombstone
from orchid.kernel.wire.conditions import Condition, is_true
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    forbidden,
    immutable,
    invalid,
    required,
    too_long,
    unsupported,
)
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.revoked_credentials import (
    RevokedAccount,
    RevokedAuthority,
    RevokedCertificate,
    RevokedKey,
    RevokedToken,
    RevokedUser,
    account_errors,
    certificate_errors,
    future_errors,
    token_errors,
    user_errors,
)
from orchid.kernel.wire.signing_key_status import key_tombstone
from orchid.kernel.wire.struct import Wire, describe, merge_key, proto, replace
from orchid.kernel.wire.user import ACCOUNT_PREFIX

EFFECTIVE: Final = "Effective"
HOLD: Final = "certificateHold"
COMPROMISED: Final = ("keyCompromise", "cACompromise", "aACompromise")
SPEC: Final = Path() / "spec"
LONGEST_MESSAGE: Final = 1024
JTI_PREFIX: Final = "JTI="  # of the id of a token in audit records and reviews


class CredentialRevocationSpec(Wire):
    """The revoked credential and the reason. Exactly one target is set. Immutable."""

    certificate: Annotated[RevokedCertificate | None, proto(1), describe("A certificate.")] = None
    token: Annotated[RevokedToken | None, proto(2), describe("A token.")] = None
    account: Annotated[
        RevokedAccount | None, proto(3), describe("All credentials of an account.")
    ] = None
    authority: Annotated[
        RevokedAuthority | None, proto(4), describe("All certificates of a signer.")
    ] = None
    reason: Annotated[
        str, proto(5), describe("The reason, as named in RFC 5280. certificateHold can be lifted.")
    ] = ""
    message: Annotated[str, proto(6), describe("The reason as a sentence.")] = ""
    cluster: Annotated[
        str,
        proto(9),
        describe("The Cluster whose credential it is; empty for a credential of this server."),
    ] = ""
    cluster_uid: Annotated[
        str, proto(11), describe("The uid of the Cluster; the server fills it in.")
    ] = field(default="", name="clusterUID")
    user: Annotated[
        RevokedUser | None,
        proto(10),
        describe("All credentials of a user."),
    ] = None
    key: Annotated[
        RevokedKey | None, proto(7), describe("A token key, and all tokens that it has signed.")
    ] = None

    @property
    def targets(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        members = {
            "certificate": self.certificate,
            "token": self.token,
            "account": self.account,
            "authority": self.authority,
            "user": self.user,
            "key": self.key,
        }
        return {name: value for name, value in members.items() if value is not None}

    @property
    def username(self) -> str:
        """The user, or the user name of the account, whose credentials are all revoked, or ""."""
        if self.user:
            return self.user.username
        account = self.account
        return f"{ACCOUNT_PREFIX}{account.namespace}:{account.name}" if account else ""


class CredentialRevocationStatus(Wire):
    """Progress and expiry of the revocation."""

    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(1),
        describe("Effective: every server refuses the credential."),
    ] = ()
    expires: Annotated[
        Time | None,
        proto(2),
        describe("When the revoked credential expires; unset if unknown."),
    ] = None
    author: Annotated[str, proto(3), describe("The user who created the revocation.")] = ""


class CredentialRevocation(Object):
    """Revokes a certificate, a token, all tokens of an account or all certificates of a signer."""

    spec: Annotated[
        CredentialRevocationSpec, proto(2), describe("The revoked credential.", required=True)
    ] = field(default_factory=CredentialRevocationSpec)
    status: Annotated[CredentialRevocationStatus, proto(3), describe("Progress and expiry.")] = (
        field(default_factory=CredentialRevocationStatus)
    )

    @property
    def is_effective(self) -> bool:
        return is_true(self.status.conditions, EFFECTIVE)

    @property
    def is_hold(self) -> bool:
        return self.spec.reason == HOLD

    @property
    def can_be_lifted(self) -> bool:
        """Whether it may be deleted before it has ended: a hold, or that of a user.

        In a cluster, that of an account, too: tokens have no time of issue there.
        """
        spec = self.spec
        return self.is_hold or spec.user is not None or bool(spec.cluster and spec.account)

    @property
    def reason(self) -> str:
        return self.spec.reason or UNSPECIFIED

    @property
    def gravity(self) -> int:
        return gravity_of(self.reason)

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of the account of this server whose tokens are revoked, or None."""
        named = None if self.spec.cluster else self.spec.account or self.spec.token
        return (named.namespace, named.name) if named and named.name else None

    def has_expired(self, now: Time) -> bool:
        """Whether it may be deleted. False if its expiry is unknown.

        A week after it: so long CRLs list a certificate; and while a clock is a day ahead, no
        revocation is deleted that is needed when the clock is right again.
        """
        return self.status.expires is not None and self.status.expires + LISTED_AFTER_END <= now

    @property
    def target(self) -> tuple[str, ...]:
        """Identity of the revoked credential, without the time of issue."""
        return self.spec.cluster, self.spec.cluster_uid, *_target(self.spec)

    def covers(self, other: "CredentialRevocation") -> bool:
        """Whether this revokes all that `other` revokes, for a reason at least as serious."""
        return (
            self.target == other.target
            and self.gravity >= other.gravity
            and _not_before(_issued_before(self.spec), _issued_before(other.spec))
            and _keys(self.spec) >= _keys(other.spec)
            and _encodings(self.spec) >= _encodings(other.spec)
            and (_is_listed(self.spec) or not _is_listed(other.spec))
            and _not_before(self._end_of_credential, other._end_of_credential)
        )

    def is_superseded_by(self, other: "CredentialRevocation") -> bool:
        """Whether this one can be removed without effect while `other` exists.

        Of two equal ones only the later is superseded, so never each by the other.
        """
        if not other.covers(self) or not _not_before(other.status.expires, self.status.expires):
            return False
        alike = self.covers(other) and _not_before(self.status.expires, other.status.expires)
        return not alike or _age(other) < _age(self)

    @property
    def _end_of_credential(self) -> Time | None:
        """Expiry of a single credential, if the revocation depends on it."""
        if self.spec.token:
            return self.spec.token.expires
        return self.status.expires if self.spec.certificate else None


class Rules(Strategy[CredentialRevocation]):
    """The main endpoint: the spec is immutable."""

    def prepare_for_create(
        self, new: CredentialRevocation, request: Request
    ) -> CredentialRevocation:
        status = replace(new.status, author=request.user.username)
        return replace(new, spec=completed(new.spec, request.now), status=status)

    def validate(self, new: CredentialRevocation) -> Iterator[FieldError]:
        spec, created = new.spec, new.metadata.creation_timestamp
        if len(spec.targets) != 1:
            text = (
                "exactly one of certificate, token, account, authority, key and user must be named"
            )
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
            yield from future_errors(spec.account.issued_before, SPEC / "account", created)
        if spec.key:
            yield from key_errors(spec, SPEC)
        if spec.authority:
            if not spec.authority.signer_name:
                yield required(SPEC / "authority" / "signerName")
            yield from future_errors(spec.authority.issued_before, SPEC / "authority", created)
        if spec.user:
            yield from user_errors(spec.user.username, SPEC / "user" / "username")
        yield from cluster_errors(spec, created)

    def validate_update(
        self, new: CredentialRevocation, old: CredentialRevocation
    ) -> Iterator[FieldError]:
        yield from immutable(SPEC, new.spec, old.spec)

    def warnings(
        self, new: CredentialRevocation, old: CredentialRevocation | None
    ) -> Iterator[str]:
        if old is None and new.spec.token and new.spec.token.jti.startswith(JTI_PREFIX):
            yield f"spec.token.jti: the id of a token is shown behind {JTI_PREFIX}, without it"


def gravity_of(reason: str) -> int:
    """Severity of a reason: a hold is least, no reason less than any other reason."""
    if reason == HOLD:
        return 0
    if reason == UNSPECIFIED:
        return 1
    return 3 if reason in COMPROMISED else 2


def completed(spec: CredentialRevocationSpec, now: Time) -> CredentialRevocationSpec:
    """The spec with its defaults: issued up to now."""
    now = whole_seconds(now)
    if spec.user and spec.user.issued_before is None:
        spec = replace(spec, user=replace(spec.user, issued_before=now))
    if spec.account and spec.account.issued_before is None and not spec.cluster:
        spec = replace(spec, account=replace(spec.account, issued_before=now))
    if spec.authority and spec.authority.issued_before is None:
        spec = replace(spec, authority=replace(spec.authority, issued_before=now))
    return spec


def cluster_errors(spec: CredentialRevocationSpec, created: Time | None) -> Iterator[FieldError]:
    """Errors for targets that cannot be revoked in a cluster, or not here."""
    if not spec.cluster:
        if spec.cluster_uid:
            yield forbidden(SPEC / "clusterUID", "only together with spec.cluster")
        return
    if spec.key:
        yield forbidden(SPEC / "key", "not in a cluster: its token keys are not known here")
    if spec.authority:
        text = "not in a cluster: its API server does not report who signed a certificate"
        yield forbidden(SPEC / "authority", text)
    if spec.account and spec.account.issued_before:
        text = "not in a cluster: its API server does not report when a token was issued"
        yield forbidden(SPEC / "account" / "issuedBefore", text)
    if spec.user:
        yield from future_errors(spec.user.issued_before, SPEC / "user", created)


def key_errors(spec: CredentialRevocationSpec, path: Path) -> Iterator[FieldError]:
    if spec.key and not spec.key.name:
        yield required(path / "key" / "name")
    if spec.reason == HOLD:
        yield invalid(path / "reason", spec.reason, "the revocation of a key cannot be lifted")


def declare(naming: Naming) -> Kind[CredentialRevocation]:
    return Kind(
        type=CredentialRevocation,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1",),
        plural="credentialrevocations",
        short_names=("crev",),
        scope=Scope.CLUSTER,
        counts_generation=True,
        rules=Rules(),
        refuses_owners=lambda _: True,
        writes=("metadata", "spec"),
        # The server always fills this in: see features/revoking/policies/revocation_permission.py.
        creates=("metadata", "spec", "status.expires"),
        columns=COLUMNS,
        selectable={
            "spec.certificate.sha256": lambda revocation: _certificate(revocation).sha256,
            "spec.cluster": lambda revocation: revocation.spec.cluster,
        },
        records=revocations,
        tombstones=revoked_keys,
        endpoints=(Endpoint("status", writes=("status.conditions",), rules=ConditionRules()),),
    )


def revocations(
    new: CredentialRevocation | None, old: CredentialRevocation | None, request: Request
) -> Iterator[Fact]:
    """For the ledger: each revocation and each lifted hold; account names are sealed."""
    if new is not None and old is not None:
        return
    revocation = new or old
    assert revocation is not None
    ended = revocation.status.expires is not None and revocation.status.expires <= request.now
    if new is None and (ended or not revocation.can_be_lifted):
        return  # expired; others cannot be deleted earlier
    yield _fact(revocation, "released" if new is None else "revoked", request.user.username)


def revoked_keys(
    new: CredentialRevocation | None, old: CredentialRevocation | None
) -> Iterator[Tombstone]:
    """A revoked key is remembered, so that no Secret, file or import brings it back."""
    about = new or old
    if about is not None and about.spec.key and about.spec.key.sha256:
        yield Tombstone(key_tombstone(about.spec.key.sha256), about.spec.key.name)


def restored(found: CredentialRevocation) -> Fact:
    """For the ledger: a revocation that was missing in a restored backup and was added again."""
    return _fact(found, "revoked", "", restored=True)


def _fact(revocation: CredentialRevocation, event: str, by: str, **more: Any) -> Fact:
    spec, clear, sealed = revocation.spec, {}, {}
    if spec.certificate:
        named = spec.certificate
        clear = {"sha256": named.sha256, "signer": named.signer_name, "serial": named.serial_number}
    elif spec.authority:
        clear = {"signer": spec.authority.signer_name}
    elif spec.key:
        clear = {"key": spec.key.key_id}
    elif spec.token:
        sealed = {"jti": spec.token.jti}
    elif spec.account:
        sealed = {"account": f"{spec.account.namespace}/{spec.account.name}"}
    elif spec.user:
        sealed = {"user": spec.user.username}
    if spec.cluster:
        clear["cluster"] = spec.cluster
    return Fact(
        f"{''.join(spec.targets)}.{event}",
        {**clear, **more, "reason": spec.reason or "unspecified"},
        {**sealed, "name": revocation.name, "by": by},
    )


def shown(spec: CredentialRevocationSpec) -> str:
    """The revoked credential, for a table cell."""
    return f"{_shown(spec)} in {spec.cluster}" if spec.cluster else _shown(spec)


def _shown(spec: CredentialRevocationSpec) -> str:
    if spec.certificate:
        certificate = spec.certificate
        return f"cert/{certificate.serial_number or certificate.sha256}"
    if spec.token:
        return f"token/{spec.token.jti}"
    if spec.account:
        return f"account/{spec.account.namespace}/{spec.account.name}"
    if spec.user:
        return f"user/{spec.user.username}"
    if spec.key:
        return f"key/{spec.key.name}"
    return f"authority/{spec.authority.signer_name}" if spec.authority else ""


def _target(spec: CredentialRevocationSpec) -> tuple[str, ...]:
    if spec.certificate:
        return "certificate", spec.certificate.sha256
    if spec.token:
        named = spec.token
        return "token", named.jti, named.namespace, named.name, named.issuer
    if spec.account:
        return "account", spec.account.namespace, spec.account.name
    if spec.user:
        return "user", spec.user.username
    if spec.key:
        return "key", spec.key.key_id
    return "authority", spec.authority.signer_name if spec.authority else ""


def _issued_before(spec: CredentialRevocationSpec) -> Time | None:
    named = spec.account or spec.authority or spec.user
    return named.issued_before if named else None


def _keys(spec: CredentialRevocationSpec) -> frozenset[str]:
    return frozenset(spec.authority.keys if spec.authority else ())


def _encodings(spec: CredentialRevocationSpec) -> frozenset[str]:
    return frozenset(spec.certificate.other_sha256 if spec.certificate else ())


def _is_listed(spec: CredentialRevocationSpec) -> bool:
    """Whether a CRL can list the certificate, which needs its serial number."""
    return spec.certificate is not None and bool(spec.certificate.serial_number)


def _not_before(one: Time | None, other: Time | None) -> bool:
    """Whether a time is not earlier than another; None is later than all."""
    return one is None or (other is not None and one >= other)


def _age(one: CredentialRevocation) -> tuple[str, str]:
    made = one.metadata.creation_timestamp
    return made.isoformat() if made else "", one.name


def _certificate(one: CredentialRevocation) -> RevokedCertificate:
    return one.spec.certificate or RevokedCertificate()


COLUMNS: Final = (
    NAME,
    Column("Revokes", lambda one, now: shown(one.spec), description="The revoked credential."),
    Column("Reason", lambda one, now: one.spec.reason or "unspecified", description="The reason."),
    Column(
        "Effective",
        lambda one, now: str(one.is_effective),
        description="Whether every server refuses it.",
    ),
    AGE,
)
