"""What the controllers need beside the API, made by the assembly."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec

from orchid.approval.case import SignerTerms, TermsOf
from orchid.approval.platform_signers import platform_profiles
from orchid.clock import Clock
from orchid.credentials.authorities.authority import Authority
from orchid.credentials.authorities.profiles import Profile
from orchid.credentials.tokens import TokenSigner
from orchid.wire.naming import Naming


class Signer(msgspec.Struct, frozen=True):
    """A platform signer: its rules, and its authority as it is now."""

    profile: Profile
    authority: Callable[[], Authority]
    list_name: str = "cluster"  # of its authority's revocation list
    crl_url: str = ""  # where that list is, as certificates are to say; "" to say nothing


class ControllerContext(msgspec.Struct, frozen=True):
    """What the controllers need beside the API."""

    names: Naming
    clock: Clock
    signers: Mapping[str, Signer]  # those that have an authority
    signing_duration: timedelta
    crl_url: str  # where others reach the revocation lists; "" if certificates are not to say
    issued_retention: timedelta  # how long the record of a certificate outlives it
    token_issuer: Callable[[], TokenSigner] | None  # of the tokens of Secrets
    root_ca: Callable[[], str]  # by which clients verify this server; "" if nobody knows
    identity: str  # of this process among the candidates for leader


def list_url(base: str, authority: str) -> str:
    """Where the revocation list of an authority is, as certificates are to say."""
    return f"{base.rstrip('/')}/crl/{authority}.crl" if base else ""


def signer_terms(names: Naming, longest: timedelta) -> TermsOf:
    """What each signer of ours permits, for those who judge requests before they are signed."""
    known = {
        name: SignerTerms(profile, longest) for name, profile in platform_profiles(names).items()
    }
    return known.get
