"""The spec of a CertificateAuthority: its types, and which specs are valid.

Start with `CertificateAuthoritySpec`. `source_errors` and `issued_errors` validate it; what may
change in an update is in kinds/certificate_authority.py.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final

from msgspec import field

from orchid.features.approval.issuing_terms import (
    AcmeTerms,
    IssuingTerms,
    acme_errors,
    duration_errors,
    duration_of,
    issuing_errors,
)
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS
from orchid.kernel.credentials.x509.names import has_control_characters
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from orchid.kernel.wire.references import (
    HsmKeyReference,
    SecretReference,
    hsm_key_errors,
    reference_errors,
)
from orchid.kernel.wire.rules.trust_domains import trust_domain_errors
from orchid.kernel.wire.struct import Wire, always, at_most, describe, proto

SPEC: Final = Path() / "spec"
ISSUES: Final = SPEC / "issues"
DURATION: Final = "87600h"
LONGEST_NAME: Final = 64  # RFC 5280, appendix A.1: ub-common-name and ub-organization-name
MOST_ORGANIZATIONS: Final = 8
SHORTEST_AUTHORITY: Final = timedelta(hours=1)
LONGEST_AUTHORITY: Final = timedelta(days=36525)  # a hundred years


class AuthorityKeySpec(Wire):
    """A key that the server creates, or one in its hardware security module."""

    algorithm: Annotated[
        str,
        proto(1),
        describe("ECDSA-P256, ECDSA-P384, RSA-3072, RSA-4096, Ed25519 or ML-DSA-65."),
    ] = always(str)
    pkcs11: Annotated[
        HsmKeyReference | None,
        proto(2),
        describe(
            "Instead of an algorithm: use the key of this label in the hardware security module "
            "of the server; see --pkcs11-module."
        ),
    ] = None

    @property
    def is_made(self) -> bool:
        """Whether the server creates it."""
        return self.pkcs11 is None


class AuthoritySubject(Wire):
    """The subject of an authority's certificate."""

    common_name: Annotated[str, proto(1), describe("The common name.")] = ""
    organizations: Annotated[
        tuple[str, ...], at_most(MOST_ORGANIZATIONS), proto(2), describe("The organizations.")
    ] = ()


class AuthorityParent(Wire):
    """The authority above an intermediate one."""

    authority: Annotated[
        str, proto(1), describe("A CertificateAuthority of this server, which signs its keys.")
    ] = ""
    external: Annotated[
        bool,
        proto(2),
        describe(
            "Another authority, for example an offline root, signs the request in the status. The "
            "signed chain goes into `chain` of the SigningKey."
        ),
    ] = False


AUTOMATIC, MANUAL = "Automatic", "Manual"


class CertificateAuthoritySpec(Wire):
    """The signer name, the key and the issuing terms."""

    signer_name: Annotated[
        str,
        proto(1),
        describe(
            "The signer name: example.com/web. Not a signer of the platform, not used by another "
            "authority, immutable. Empty only for the authority of the platform.",
            required=True,
        ),
    ] = always(str)
    key: Annotated[
        AuthorityKeySpec | None,
        proto(2),
        describe("A key that the server creates; or set secretRef. Immutable."),
    ] = None
    secret_ref: Annotated[
        SecretReference | None,
        proto(3),
        describe(
            "A Secret with an existing authority: tls.crt (its certificate and the chain above) "
            "and tls.key."
        ),
    ] = None
    subject: Annotated[
        AuthoritySubject | None,
        proto(4),
        describe("The subject, if the server creates the certificate. Immutable."),
    ] = None
    duration: Annotated[
        str,
        proto(5),
        describe("The lifetime, if the server creates the certificate. Default: 87600h."),
    ] = ""
    issues: Annotated[IssuingTerms, proto(6), describe("Profile of issued certificates.")] = field(
        default_factory=IssuingTerms
    )
    rotation: Annotated[
        str,
        proto(7),
        describe(
            "Automatic: the server creates and activates successors of the key in time. Manual: "
            "an operator does. Default: Automatic if the server creates the key."
        ),
    ] = ""
    parent: Annotated[
        AuthorityParent | None,
        proto(8),
        describe(
            "The authority above, if this one is an intermediate; only with `key`. Immutable."
        ),
    ] = None
    acme: Annotated[
        AcmeTerms | None,
        proto(12),
        describe("Serve ACME clients at /acme/NAME/directory; not set: no ACME."),
    ] = None
    trust_domain: Annotated[
        str,
        proto(13),
        describe(
            "A SPIFFE trust domain: the authority issues X.509-SVIDs to service accounts, each "
            "with its own ID, without approval. Immutable."
        ),
    ] = ""
    signer_names: Annotated[
        tuple[str, ...],
        proto(14),
        describe(
            "The signers of the platform, whose profiles are fixed. Only of the authority "
            "`cluster`, which the server creates, and of those that show files; immutable."
        ),
    ] = ()


def source_errors(spec: CertificateAuthoritySpec) -> Iterator[FieldError]:
    """Validate the key or the Secret, and the fields that depend on it."""
    if spec.rotation not in ("", AUTOMATIC, MANUAL):
        yield unsupported(SPEC / "rotation", spec.rotation, (AUTOMATIC, MANUAL))
    elif spec.rotation == AUTOMATIC and spec.secret_ref is not None:
        text = "the server does not create keys for it: add a SigningKey with another Secret"
        yield forbidden(SPEC / "rotation", text)
    elif spec.rotation == AUTOMATIC and spec.key is not None and not spec.key.is_made:
        text = "the server does not create keys in an HSM: add a SigningKey with another label"
        yield forbidden(SPEC / "rotation", text)
    if spec.parent is not None:
        yield from parent_errors(spec)
    if (spec.key is None) == (spec.secret_ref is None):
        yield required(SPEC, "exactly one of key and secretRef")
    elif spec.key is not None:
        yield from key_errors(spec.key)
        yield from subject_errors(spec.subject or AuthoritySubject())
        yield from duration_errors(
            SPEC / "duration", spec.duration, SHORTEST_AUTHORITY, LONGEST_AUTHORITY
        )
    else:
        assert spec.secret_ref is not None
        yield from reference_errors(spec.secret_ref, SPEC / "secretRef")
        text = "given by the certificate in the Secret"
        if spec.subject is not None:
            yield forbidden(SPEC / "subject", text)
        if spec.duration:
            yield forbidden(SPEC / "duration", text)


def key_errors(key: AuthorityKeySpec) -> Iterator[FieldError]:
    at = SPEC / "key"
    if key.pkcs11 is None:
        if key.algorithm not in ALGORITHMS:
            yield unsupported(at / "algorithm", key.algorithm, ALGORITHMS)
        return
    if key.algorithm:
        yield forbidden(at / "algorithm", "given by the key in the HSM")
    yield from hsm_key_errors(key.pkcs11, at / "pkcs11")


def parent_errors(spec: CertificateAuthoritySpec) -> Iterator[FieldError]:
    at, parent = SPEC / "parent", spec.parent or AuthorityParent()
    if spec.key is None:
        yield forbidden(at, "the chain is in the Secret")
    if bool(parent.authority) == parent.external:
        yield required(at, "exactly one of authority and external")


def subject_errors(named: AuthoritySubject) -> Iterator[FieldError]:
    at = SPEC / "subject"
    if not named.common_name:
        yield required(at / "commonName")
    texts = [(at / "commonName", named.common_name)]
    texts += [
        ((at / "organizations")[index], text) for index, text in enumerate(named.organizations)
    ]
    for path, text in texts:
        if len(text) > LONGEST_NAME:
            yield too_long(path, LONGEST_NAME, "character")
        elif has_control_characters(text):
            yield invalid(path, text, "must be printable")
    for path, text in texts[1:]:
        if not text:
            yield required(path)


def issued_errors(spec: CertificateAuthoritySpec) -> Iterator[FieldError]:
    life = duration_of(spec.duration) or LONGEST_AUTHORITY
    is_reported = life < SHORTEST_AUTHORITY
    is_spiffe = bool(spec.trust_domain)
    yield from issuing_errors(
        spec.issues, ISSUES, None if is_reported else life, is_spiffe=is_spiffe
    )
    if is_spiffe:
        yield from trust_domain_errors(SPEC / "trustDomain", spec.trust_domain)
    if spec.acme is not None:
        yield from acme_errors(spec.acme, SPEC / "acme", is_spiffe=is_spiffe)
