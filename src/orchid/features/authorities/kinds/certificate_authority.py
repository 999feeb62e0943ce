"""CertificateAuthority: a custom signer.

    main      signer name, source of its key, what it issues                 Rules
    status    conditions, certificate, keys, trust bundle                    StatusRules

Requests select it by `signerName` and take the normal path: created, approved, then signed under
the profile that `issues` describes (`profile`). The server creates the key, or the user stores it
in a Secret; this object never holds it: see features/authorities/controllers/keep_authorities.py.
Each key of an authority is a SigningKey (features/token_keys/kinds/signing_key.py); the status has
the certificate of the one that signs. The spec is in features/authorities/authority_spec.py. That a
signer has one authority, and who may create it, is an admission question:
features/authorities/policies/own_signers.py.

The server itself creates the authority `cluster` (features/authorities/platform_key_import.py): it
has the signers of the platform, whose profiles are fixed, and issues the server's own certificates.
If the CAs of these signers are files, authorities without a key only show them
(features/authorities/file_authorities.py).
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import field

from orchid.features.approval.issuing_terms import (
    duration_of,
    pod_profile_of,
    profile_of,
    with_default_acme,
    with_default_terms,
)
from orchid.features.authorities.authority_spec import (
    AUTOMATIC,
    DURATION,
    ISSUES,
    LONGEST_NAME,
    MANUAL,
    SHORTEST_AUTHORITY,
    SPEC,
    AuthoritySubject,
    CertificateAuthoritySpec,
    issued_errors,
    source_errors,
)
from orchid.kernel.credentials.authorities.authority_keys import ECDSA_P256
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.spiffe_ids import domain_id
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.names import DistinguishedName, subject
from orchid.kernel.engine.condition_rules import ConditionRules
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.authority_status import AuthorityParentReference, CertificateAuthorityStatus
from orchid.kernel.wire.conditions import READY, is_true
from orchid.kernel.wire.fields import FieldError, Path, forbidden, immutable, invalid
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import SETS, Naming
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.rules.key_names import CLUSTERS, TOKENS, is_key_name
from orchid.kernel.wire.rules.signer_names import custom_signer_errors
from orchid.kernel.wire.struct import describe, proto, replace
from orchid.kernel.wire.text import human_duration

SHOWS_FILES: Final = "it shows a CA of the servers' files: change the files"
UNSEALED_STORE: Final = "Secrets are not encrypted in the store"
EXPIRING: Final = "Expiring"
SIGNS_LISTS: Final = "SignsRevocationLists"

CLUSTER: Final = "cluster"  # the authority of the platform
RESERVED_NAMES: Final = frozenset(
    # Each authority publishes its revocation list under its name: see docs/revocation.md.
    {CLUSTER}
    | {one.partition("/")[2] for naming in SETS.values() for one in naming.issuing_signers}
)


class CertificateAuthority(Object):
    """Issues certificates for a custom signer name."""

    spec: Annotated[
        CertificateAuthoritySpec, proto(2), describe("The desired authority.", required=True)
    ] = field(default_factory=CertificateAuthoritySpec)
    status: Annotated[CertificateAuthorityStatus, proto(3), describe("The observed authority.")] = (
        field(default_factory=CertificateAuthorityStatus)
    )

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, READY)

    @property
    def is_platform(self) -> bool:
        """Whether it is the authority of the platform, which the server creates."""
        return bool(self.spec.signer_names)

    @property
    def is_file(self) -> bool:
        """Whether it only shows a CA of the servers' files."""
        return self.is_platform and self.spec.key is None

    @property
    def signers(self) -> tuple[str, ...]:
        """The names of its signers: one, or those of the platform."""
        return self.spec.signer_names or (self.spec.signer_name,)

    @property
    def seniority(self) -> tuple[datetime, str]:
        """Sort key: the oldest authority for a signer wins."""
        meta = self.metadata
        return meta.creation_timestamp or datetime.max.replace(tzinfo=UTC), meta.uid

    @property
    def is_automatic(self) -> bool:
        """Whether the server creates and activates successors of its key."""
        is_made = self.spec.key is not None and self.spec.key.is_made
        return (self.spec.rotation or (AUTOMATIC if is_made else MANUAL)) == AUTOMATIC

    @property
    def lifetime(self) -> timedelta:
        """The lifetime of an authority that the server creates."""
        return duration_of(self.spec.duration) or SHORTEST_AUTHORITY

    @property
    def approval_kept(self) -> timedelta:
        """Validity of a person's approval of an ACME request."""
        acme = self.spec.acme
        return (duration_of(acme.approval_kept) if acme else None) or timedelta()

    @property
    def uris(self) -> tuple[str, ...]:
        """The alternative names of its own certificates."""
        domain = self.spec.trust_domain
        return (domain_id(domain),) if domain else ()

    @property
    def distinguished_name(self) -> DistinguishedName:
        return self.name_of_key(1)

    def name_of_key(self, number: int) -> DistinguishedName:
        """The subject of a key that the server creates; each successor has a name of its own."""
        base = self.spec.subject or AuthoritySubject()
        suffix = f" {number}" if number > 1 else ""
        common_name = base.common_name[: LONGEST_NAME - len(suffix)] + suffix
        return subject(common_name, base.organizations)


class Rules(Strategy[CertificateAuthority]):
    """The main endpoint: signer, key and subject are immutable; the issuing terms may change."""

    def validate(self, new: CertificateAuthority) -> Iterator[FieldError]:
        if new.name in RESERVED_NAMES:
            text = "reserved: the platform's authority has a revocation list of this name"
            yield invalid(Path() / "metadata" / "name", new.name, text)
        elif new.name == TOKENS or is_key_name(new.name):
            text = "reserved: keys of this name sign tokens"
            yield invalid(Path() / "metadata" / "name", new.name, text)
        elif new.name.startswith(CLUSTERS):
            text = "reserved: keys of this name are of a cluster"
            yield invalid(Path() / "metadata" / "name", new.name, text)
        if new.is_platform:
            yield forbidden(SPEC / "signerNames", "only the authority of the platform has it")
        yield from custom_signer_errors(SPEC / "signerName", new.spec.signer_name)
        yield from source_errors(new.spec)
        yield from issued_errors(new.spec)

    def validate_update(
        self, new: CertificateAuthority, old: CertificateAuthority
    ) -> Iterator[FieldError]:
        if old.is_file:
            yield forbidden(SPEC, SHOWS_FILES)
            return
        for name, now, before in (
            ("signerName", new.spec.signer_name, old.spec.signer_name),
            ("key", new.spec.key, old.spec.key),
            ("subject", new.spec.subject, old.spec.subject),
            ("duration", new.spec.duration, old.spec.duration),
            ("parent", new.spec.parent, old.spec.parent),
            ("trustDomain", new.spec.trust_domain, old.spec.trust_domain),
            ("signerNames", new.spec.signer_names, old.spec.signer_names),
        ):
            yield from immutable(SPEC / name, now, before)
        if new.spec == old.spec:
            return
        yield from source_errors(new.spec)
        if old.is_platform:
            yield from immutable(ISSUES, new.spec.issues, old.spec.issues)
            yield from immutable(SPEC / "acme", new.spec.acme, old.spec.acme)
        else:
            yield from issued_errors(new.spec)


class StatusRules(ConditionRules[CertificateAuthority]):
    """The `status` endpoint."""

    def validate_status(
        self, new: CertificateAuthority, old: CertificateAuthority
    ) -> Iterator[FieldError]:
        if old.status.parent is not None:
            path = Path() / "status" / "parent"
            yield from immutable(path, new.status.parent, old.status.parent)
        if new.status.certificate and new.status.certificate != old.status.certificate:
            try:
                certificates.parse_blocks(new.status.certificate)
            except Refusal as refusal:
                at = Path() / "status" / "certificate"
                yield invalid(at, "<certificate data>", str(refusal))


def declare(naming: Naming) -> Kind[CertificateAuthority]:
    return Kind(
        type=CertificateAuthority,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1beta1",),
        plural="certificateauthorities",
        short_names=("ca",),
        scope=Scope.CLUSTER,
        counts_generation=True,
        keeps_dependents=True,
        rules=Rules(),
        defaults=with_defaults,
        writes=("metadata", "spec"),
        # The server fills in the parent: see features/authorities/policies/own_signers.py.
        creates=("metadata", "spec", "status.parent"),
        columns=COLUMNS,
        selectable={"spec.signerName": lambda authority: authority.spec.signer_name},
        records=certificate_changes,
        endpoints=(Endpoint("status", writes=("metadata", "status"), rules=StatusRules()),),
    )


def with_defaults(new: CertificateAuthority) -> CertificateAuthority:
    """Defaults: server certificates for 90 days, from an authority for ten years."""
    spec = new.spec
    is_made = spec.key is not None and spec.secret_ref is None
    key = spec.key
    if key is not None and key.is_made:
        key = replace(key, algorithm=key.algorithm or ECDSA_P256)
    duration = spec.duration or (DURATION if is_made else "")
    issues = spec.issues
    if not new.is_platform:
        issues = with_default_terms(issues, duration, is_spiffe=bool(spec.trust_domain))
    made_spec = replace(
        spec, key=key, duration=duration, issues=issues, acme=with_default_acme(spec.acme)
    )
    return replace(new, spec=made_spec)


def parent_reference(parent: CertificateAuthority) -> AuthorityParentReference:
    """What an intermediate authority remembers of its parent."""
    return AuthorityParentReference(uid=parent.metadata.uid, signer_name=parent.spec.signer_name)


def parent_problem(below: CertificateAuthority, named: CertificateAuthority) -> str:
    """Why an authority that has the name of the parent is not the parent; empty if it is."""
    parent = below.status.parent
    if parent is not None:
        is_parent = parent == parent_reference(named)
    else:  # of an earlier version: the parent was there before
        is_parent = named.seniority[0] <= below.seniority[0]
    if is_parent:
        return ""
    return (
        f"the authority {named.name} is another one than the parent of {below.name}, which was "
        f"deleted: it certifies no key. Create {below.name} again, below the new one"
    )


def secret_location(authority: CertificateAuthority, naming: Naming) -> SecretReference:
    """The Secret that holds, or will hold, the key of an authority."""
    return authority.spec.secret_ref or SecretReference(
        name=f"authority-{authority.metadata.uid}", namespace=naming.system_namespace
    )


def profile(authority: CertificateAuthority) -> Profile:
    """The signing profile of the authority."""
    spec, chain = authority.spec, authority.status.certificate
    return profile_of(spec.signer_name, spec.issues, chain, spec.trust_domain)


def pod_profile(authority: CertificateAuthority) -> Profile | None:
    """The profile of an authority for certificates of Pods; None if it issues none."""
    spec, chain = authority.spec, authority.status.certificate
    return pod_profile_of(spec.signer_name, spec.issues, chain, spec.trust_domain)


def certificate_changes(
    new: CertificateAuthority | None, old: CertificateAuthority | None, request: Request
) -> Iterator[Fact]:
    """For the ledger: the first certificate of an authority. Its SigningKeys record the others."""
    if new is not None and (after := _fingerprint(new)) and not _fingerprint(old):
        yield Fact("authority.made", {"key": after, "signers": list(new.signers)})


def _fingerprint(authority: CertificateAuthority | None) -> str:
    """SHA-256 of the issuing certificate, or "" if there is none."""
    if authority is None or not authority.status.certificate:
        return ""
    return certificates.fingerprint(certificates.parse_blocks(authority.status.certificate)[0])


# --- tables -----------------------------------------------------------------------------------


def _signer_cell(authority: CertificateAuthority, now: datetime) -> str:
    if authority.name != CLUSTER and authority.is_platform:
        return ",".join(authority.signers)
    return "platform signers" if authority.is_platform else authority.spec.signer_name


def _key_cell(authority: CertificateAuthority, now: datetime) -> str:
    spec = authority.spec
    if spec.secret_ref is not None:
        return f"secret {spec.secret_ref.namespace}/{spec.secret_ref.name}"
    if spec.key is not None and spec.key.pkcs11 is not None:
        return f"hsm {spec.key.pkcs11.label}"
    return spec.key.algorithm if spec.key else "files"


def _end_cell(authority: CertificateAuthority, now: datetime) -> str:
    end = authority.status.not_after
    if end is None:
        return "<unknown>"
    return human_duration((end - now).total_seconds()) if end > now else "expired"


COLUMNS: Final = (
    NAME,
    Column("Signer", _signer_cell, description="The signer name."),
    Column("Key", _key_cell, description="The key algorithm, the Secret, or files."),
    Column("Ready", lambda one, now: str(one.is_ready), description="Whether it issues."),
    Column("Expires", _end_cell, description="Time until it expires."),
    AGE,
)
