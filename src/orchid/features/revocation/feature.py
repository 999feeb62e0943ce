"""Revoked credentials: the kind, and the index that every authenticator asks.

Kinds      CredentialRevocation
Uses       token_keys, certificates
Read first revocations.py
"""

from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.revocations import Revocations, SignerProfiles
from orchid.features.revocation.roles import roles
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.feature import Feature


def _revocations(context: Context) -> Revocations:
    return Revocations(context.feed, context.port(SignerProfiles).profiles)


FEATURE = Feature(
    name="revocation",
    kinds=(credential_revocation.declare,),
    roles=roles,
    revoking_kinds=(credential_revocation.CredentialRevocation,),
    provides=(ServerPart(Revocations, _revocations),),
    documentation="revocation.md",
)
