"""The language of approval policies: judges requests without input or output.

Uses       revocation
Read first deciding.py
"""

from orchid.features.approval.platform_signers import platform_profiles, pod_profiles
from orchid.features.revocation.revocations import SignerProfiles
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.feature import Feature


def _profiles(context: Context) -> SignerProfiles:
    return SignerProfiles(platform_profiles(context.naming) | pod_profiles(context.naming))


FEATURE = Feature(
    name="approval",
    provides=(ServerPart(SignerProfiles, _profiles),),
    documentation="policies.md",
)
