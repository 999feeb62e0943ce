"""Issuing terms of a custom authority: the API type, and its profile.

Start with `IssuingTerms`. `with_default_terms` fills in defaults, `issuing_errors` validates, and
`profile_of` makes the signing profile. An authority with a SPIFFE trust domain has fixed terms,
except for keys and lifetimes. The profiles of platform signers are in platform_signers.py.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final

from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.authorities.issuer_limits import limits_of
from orchid.kernel.credentials.authorities.profiles import (
    ALTERNATIVE_NAMES,
    MINIMUM_LIFETIME,
    Profile,
)
from orchid.kernel.credentials.authorities.validity import POD_SHORTEST
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.names import SUBJECT_PARTS
from orchid.kernel.credentials.x509.usages import ALL_USAGES
from orchid.kernel.wire.fields import FieldError, Path, duplicate, forbidden, invalid, unsupported
from orchid.kernel.wire.options import seconds_of
from orchid.kernel.wire.struct import Wire, at_most, describe, proto, replace
from orchid.kernel.wire.text import human_duration
from orchid.kernel.wire.user import ACCOUNT_PREFIX, MASTERS, groups_of_accounts

USAGES: Final = ("digital signature", "key encipherment", "server auth")
NAMES: Final = ("dns", "ip")
KEYS: Final = ("ECDSA-P256", "ECDSA-P384", "RSA-2048", "RSA-3072", "RSA-4096", "Ed25519")
ALL_KEYS: Final = (*KEYS, "ECDSA-P521", "ML-DSA-65")
MAX_DURATION: Final = "2160h"
DEFAULT_DURATION: Final = "720h"
SVID_NAMES: Final = ("uri",)
SVID_MAX_DURATION, SVID_DEFAULT_DURATION = "1h", "1h"
SVID_LONGEST: Final = timedelta(hours=24)
APPROVAL_KEPT: Final = "168h"
LONGEST_KEPT: Final = timedelta(days=30)

# Usages that would let a holder issue certificates or CRLs.
NOT_FOR_LEAVES: Final = ("cert sign", "crl sign")
NEEDS_DURATION: Final = "must be a duration like 720h or 90m"


class IssuingTerms(Wire):
    """The certificates that an authority issues. Anything that is not listed is refused."""

    usages: Annotated[
        tuple[str, ...],
        at_most(len(ALL_USAGES)),
        proto(1),
        describe("The allowed usages; a request without usages gets all of these."),
    ] = ()
    names: Annotated[
        tuple[str, ...],
        at_most(len(ALTERNATIVE_NAMES)),
        proto(2),
        describe("The allowed types of alternative names: dns, ip, uri, email."),
    ] = ()
    keys: Annotated[
        tuple[str, ...],
        at_most(len(ALL_KEYS)),
        proto(3),
        describe("The allowed keys, by algorithm and size: ECDSA-P256, RSA-2048, Ed25519."),
    ] = ()
    max_duration: Annotated[str, proto(4), describe("The maximum lifetime, like 2160h.")] = ""
    default_duration: Annotated[
        str, proto(5), describe("The lifetime if a request does not set one.")
    ] = ""
    wildcards: Annotated[
        bool, proto(6), describe("Whether DNS names may begin with a wildcard: *.example.com.")
    ] = False
    subject: Annotated[
        tuple[str, ...],
        at_most(len(SUBJECT_PARTS)),
        proto(7),
        describe("The allowed parts of a subject: commonName, ...; empty allows all."),
    ] = ()
    pods: Annotated[
        bool,
        proto(8),
        describe(
            "Whether PodCertificateRequests get certificates, without approval. The subject is the "
            "account of the Pod; usages, keys and maxDuration apply, names and subject do not."
        ),
    ] = False


class AcmeTerms(Wire):
    """ACME (RFC 8555) for requests of the authority."""

    approval_kept: Annotated[
        str,
        proto(1),
        describe(
            "How long a person's approval stays valid for the same account and names, until a "
            "certificate is fetched, 0s to 720h. Default: 168h."
        ),
    ] = ""


def with_default_terms(
    terms: IssuingTerms, duration: str, *, is_spiffe: bool = False
) -> IssuingTerms:
    """The terms with defaults: server certificates, for three months at most; or X.509-SVIDs.

    No certificate outlives its authority, so a shorter `duration` of the authority is used.
    """
    most, usual = MAX_DURATION, DEFAULT_DURATION
    if is_spiffe:
        most, usual = SVID_MAX_DURATION, SVID_DEFAULT_DURATION
    longest = terms.max_duration or shorter_of(most, duration)
    return replace(
        terms,
        usages=terms.usages or (profiles.SVID_USAGES if is_spiffe else USAGES),
        names=terms.names or (SVID_NAMES if is_spiffe else NAMES),
        keys=terms.keys or KEYS,
        max_duration=longest,
        default_duration=terms.default_duration or shorter_of(usual, longest),
    )


def with_default_acme(terms: AcmeTerms | None) -> AcmeTerms | None:
    return terms and replace(terms, approval_kept=terms.approval_kept or APPROVAL_KEPT)


def profile_of(
    signer_name: str, terms: IssuingTerms, chain: str = "", trust_domain: str = ""
) -> Profile:
    """The profile from the terms of a signer and the constraints of its certificate chain, in
    PEM.

    Approval and signing use the same profile, so that every approved request can be signed.
    """
    if trust_domain:
        return within_chain(_svid_profile(signer_name, terms, trust_domain), chain)
    profile = profiles.own_authority(
        signer_name,
        usages=terms.usages,
        names=terms.names,
        keys=terms.keys,
        subject=terms.subject,
        max_duration=duration_of(terms.max_duration) or MINIMUM_LIFETIME,
        default_duration=duration_of(terms.default_duration) or MINIMUM_LIFETIME,
        reserved_groups=(MASTERS,),
        wildcards=terms.wildcards,
    )
    return within_chain(profile, chain)


def pod_profile_of(
    signer_name: str, terms: IssuingTerms, chain: str = "", trust_domain: str = ""
) -> Profile | None:
    """The same for certificates of Pods; None if the authority issues none."""
    if trust_domain:
        return profile_of(signer_name, terms, chain, trust_domain)
    if not terms.pods:
        return None
    profile = profiles.pods(
        signer_name,
        account_prefix=ACCOUNT_PREFIX,
        groups_of=groups_of_accounts,
        usages=terms.usages,
        keys=terms.keys,
        max_duration=duration_of(terms.max_duration) or MINIMUM_LIFETIME,
    )
    return within_chain(profile, chain)


def _svid_profile(signer_name: str, terms: IssuingTerms, trust_domain: str) -> Profile:
    return profiles.svids(
        signer_name,
        trust_domain=trust_domain,
        keys=terms.keys,
        max_duration=duration_of(terms.max_duration) or MINIMUM_LIFETIME,
        default_duration=duration_of(terms.default_duration) or MINIMUM_LIFETIME,
    )


def within_chain(profile: Profile, chain: str) -> Profile:
    """The profile within the constraints of a certificate chain, in PEM."""
    try:
        return (
            profile.within(limits_of(certificates.parse_blocks(chain.encode())))
            if chain
            else profile
        )
    except Refusal:
        return profile  # the chain comes from a status; nothing is signed under a malformed one


def issuing_errors(
    terms: IssuingTerms, path: Path, life: timedelta | None, *, is_spiffe: bool
) -> Iterator[FieldError]:
    """Validate the terms of an authority; `life`: its lifetime, None if that is invalid."""
    yield from _listed_errors(terms, path)
    if life is not None:
        yield from _lifetime_errors(terms, path, life)
    if is_spiffe:
        yield from _svid_errors(terms, path)


def _listed_errors(terms: IssuingTerms, path: Path) -> Iterator[FieldError]:
    """Validate the lists: usages, names, keys and parts of the subject."""
    usages = tuple(usage for usage in ALL_USAGES if usage not in NOT_FOR_LEAVES)
    yield from choice_errors(path / "usages", terms.usages, usages)
    yield from choice_errors(path / "names", terms.names, tuple(ALTERNATIVE_NAMES))
    yield from choice_errors(path / "keys", terms.keys, ALL_KEYS)
    yield from choice_errors(path / "subject", terms.subject, tuple(SUBJECT_PARTS))


def _svid_errors(terms: IssuingTerms, path: Path) -> Iterator[FieldError]:
    """Validate the terms of an authority with a trust domain: the standard fixes most of them."""
    text = "fixed by spec.trustDomain"
    if sorted(terms.usages) != sorted(profiles.SVID_USAGES):
        yield invalid(path / "usages", list(terms.usages), text)
    if terms.names != SVID_NAMES:
        yield invalid(path / "names", list(terms.names), text)
    for name, is_set in (
        ("subject", terms.subject),
        ("wildcards", terms.wildcards),
        ("pods", terms.pods),
    ):
        if is_set:
            yield forbidden(path / name, text)
    yield from _lifetime_errors(terms, path, SVID_LONGEST, POD_SHORTEST)


def _lifetime_errors(
    terms: IssuingTerms,
    path: Path,
    life: timedelta,
    shortest_default: timedelta = MINIMUM_LIFETIME,
) -> Iterator[FieldError]:
    """Validate the lifetimes, given the lifetime of the authority."""
    longest = duration_of(terms.max_duration) or life
    shortest = max(POD_SHORTEST if terms.pods else MINIMUM_LIFETIME, shortest_default)
    yield from duration_errors(path / "maxDuration", terms.max_duration, shortest, life)
    if shortest_default <= longest <= life:
        yield from duration_errors(
            path / "defaultDuration", terms.default_duration, shortest_default, longest
        )


def acme_errors(terms: AcmeTerms, path: Path, *, is_spiffe: bool) -> Iterator[FieldError]:
    if is_spiffe:
        yield forbidden(path, "ACME has no identifiers for SPIFFE IDs")
    kept = path / "approvalKept"
    yield from duration_errors(kept, terms.approval_kept, timedelta(), LONGEST_KEPT)


def choice_errors(
    path: Path, selection: tuple[str, ...], choices: tuple[str, ...]
) -> Iterator[FieldError]:
    for index, choice in enumerate(selection):
        if choice not in choices:
            yield unsupported(path[index], choice, choices)
        elif choice in selection[:index]:
            yield duplicate(path[index], choice)


def duration_errors(
    path: Path, text: str, shortest: timedelta, longest: timedelta
) -> Iterator[FieldError]:
    duration = duration_of(text)
    if duration is None:
        yield invalid(path, text, NEEDS_DURATION)
    elif not shortest <= duration <= longest:
        least, most = (human_duration(limit.total_seconds()) for limit in (shortest, longest))
        yield invalid(path, text, f"must be between {least} and {most}")


def duration_of(text: str) -> timedelta | None:
    try:
        return timedelta(seconds=seconds_of(text)) if text else None
    except ValueError:
        return None


def shorter_of(usual: str, limit: str) -> str:
    return min(usual, limit, key=lambda text: duration_of(text) or timedelta.max)
