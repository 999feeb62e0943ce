"""A case: a certificate request with its requester and time, as policies evaluate it.

Start with `case_of`. Policies evaluate the certificate that would be signed
(kernel/credentials/x509/requested_certificate.py): subject, names, usages and key as the signer
writes them, and the resulting lifetime. A signer without a local profile is assumed to sign the
request as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

import msgspec

from orchid.features.approval.spiffe_requests import refuse_other_identity
from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.refusals import NotPermitted
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.credentials.x509.names import SUBJECT_LISTS, SUBJECT_PARTS, SUBJECT_TEXTS
from orchid.kernel.credentials.x509.requested_certificate import (
    RequestedCertificate,
    hidden_parts,
    requested_certificate,
)
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.expressions.cel import NOW, REQUEST, USER, ExpressionInput
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import first_few
from orchid.kernel.wire.user import UserInfo

NAME_LISTS: Final = ("dnsNames", "ipAddresses", "uris", "emailAddresses")
# The variables of an expression, with a value of the right type.
REQUEST_SAMPLE: Final[Mapping[str, Any]] = {
    "signerName": "",
    **dict.fromkeys(SUBJECT_TEXTS, ""),
    **{name: [""] for name in (*SUBJECT_LISTS, *NAME_LISTS, "usages")},
    "key": "",
    "durationSeconds": 0.0,
}


class SignerTerms(msgspec.Struct, frozen=True):
    """The profile of a signer of ours, and its maximum lifetime."""

    profile: Profile
    longest: timedelta


TermsOf = Callable[[str], SignerTerms | None]  # by the name of a signer; None: not ours


@dataclass(frozen=True)
class Case:
    """A request, as policies evaluate it."""

    signer_name: str
    certificate: RequestedCertificate
    user: UserInfo
    now: datetime
    obstacles: tuple[str, ...] = ()  # reasons why no policy can allow it
    texts: dict[str, tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        certificate = self.certificate
        subject: dict[str, tuple[str, ...]] = {}
        for part in certificate.subject.attributes:
            if part.value is not None:
                subject[part.oid] = (*subject.get(part.oid, ()), part.value)
        texts = {
            **{name: subject.get(oid, ()) for name, oid in SUBJECT_PARTS.items()},
            "dnsNames": certificate.dns_names,
            "ipAddresses": tuple(map(str, certificate.ip_addresses)),
            "uris": certificate.uris,
            "emailAddresses": certificate.email_addresses,
            "usages": certificate.usages,
            "keys": (certificate.key,),
        }
        object.__setattr__(self, "texts", texts)

    @cached_property
    def given(self) -> ExpressionInput:
        """The variables of expressions."""
        user, lifetime = self.user, self.certificate.lifetime
        request: dict[str, Any] = {
            name: values for name, values in self.texts.items() if name != "keys"
        }
        request |= {name: next(iter(self.texts[name]), "") for name in SUBJECT_TEXTS}
        request |= {"signerName": self.signer_name, "key": self.certificate.key}
        if lifetime is not None:
            request["durationSeconds"] = lifetime.total_seconds()
        return ExpressionInput(
            {
                REQUEST: request,
                USER: {
                    "username": user.username,
                    "uid": user.uid,
                    "groups": user.groups,
                    "extra": user.extra,
                },
                NOW: self.now,
            }
        )


def case_of(
    request: bytes,
    *,
    signer_name: str,
    usages: tuple[str, ...],
    expiration_seconds: int | None,
    user: UserInfo,
    now: datetime,
    terms_of: TermsOf,
) -> Case:
    """Parse a request as its signer would; raises Refusal if it is malformed."""
    read = signing_request.parse_once(request)
    terms = terms_of(signer_name)
    if terms is not None:
        lifetime: timedelta | None = terms.profile.lifetime(expiration_seconds, terms.longest)
    else:
        lifetime = timedelta(seconds=expiration_seconds) if expiration_seconds else None
    profile = terms.profile if terms else _unknown(signer_name)
    usages = tuple(profile.usages(usages))
    refusals = _refusals(profile, read, usages, user.username)
    certified = usages if refusals else profile.certified_usages(usages, read.key_algorithm)
    return Case(
        signer_name,
        requested_certificate(read, certified, lifetime),
        user,
        now,
        (*first_few(hidden_parts(read, usages)), *refusals),
    )


def _unknown(signer_name: str) -> Profile:
    """The profile of a signer that is not ours: only the rules for every certificate."""
    return replace(profiles.legacy(signer_name, ()), default_usages=())


def _refusals(
    profile: Profile, read: SigningRequest, usages: tuple[str, ...], username: str
) -> tuple[str, ...]:
    if not usages:
        return ("it names no usages, and which ones its signer would give is not known",)
    try:
        profile.check(read, usages)
        refuse_other_identity(profile, read, username)
        profile.certified_usages(usages, read.key_algorithm)
    except NotPermitted as refusal:
        return (f"the signer would refuse it: {refusal}",)
    return ()
