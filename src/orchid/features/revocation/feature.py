"""Revoked credentials: the kind, and the index that every authenticator asks.

Kinds      CredentialRevocation
Uses       token_keys, certificates
Read first revocations.py
"""

from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="revocation",
    kinds=(credential_revocation.declare,),
    roles=roles,
    documentation="revocation.md",
)
