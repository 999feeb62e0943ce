"""The profiles of the platform's signers, by their names in a naming."""

from datetime import timedelta

from orchid.features.approval.case import SignerTerms, TermsOf
from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import ACCOUNT_PREFIX, MASTERS, NODE_PREFIX, NODES, groups_of_accounts


def platform_profiles(naming: Naming) -> dict[str, Profile]:
    """The profile of every platform signer of CertificateSigningRequests, by its name."""
    node = {"nodes_group": NODES, "node_user_prefix": NODE_PREFIX}
    all_profiles = (
        profiles.client(naming.client_signer, (MASTERS,)),
        profiles.node_client(naming.node_client_signer, **node),
        profiles.node_serving(naming.node_serving_signer, **node),
        profiles.legacy(naming.legacy_signer, (MASTERS,)),
    )
    return {profile.signer_name: profile for profile in all_profiles}


def pod_profiles(naming: Naming) -> dict[str, Profile]:
    """The profile of the platform signer of PodCertificateRequests, by its name."""
    signer = naming.pod_client_signer
    made = profiles.pods(signer, account_prefix=ACCOUNT_PREFIX, groups_of=groups_of_accounts)
    return {signer: made}


def signer_terms(naming: Naming, longest: timedelta) -> TermsOf:
    """The terms of each signer of ours, for checks before the signing."""
    terms = {
        name: SignerTerms(profile, longest) for name, profile in platform_profiles(naming).items()
    }
    return terms.get
