"""Certificate authorities for custom signers: keys, chains, rotation.

Kinds      CertificateAuthority
Uses       sealing, ledger, rights, objects, revocation, sign_in, token_keys, approval, accounts,
           trust_bundles, certificates
Read first controllers/keep_authorities.py
"""

from orchid.features.authorities import parts
from orchid.features.authorities.controllers import keep_authorities, rotate_authority_keys
from orchid.features.authorities.kinds import certificate_authority
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="authorities",
    kinds=(certificate_authority.declare,),
    controllers=(keep_authorities.CONTROLLER, rotate_authority_keys.CONTROLLER),
    provides=parts.PARTS,
    authorizers=parts.authorizers,
    policies=parts.policies,
    metrics=parts.metrics,
    background=parts.background,
    documentation="mtls.md",
)
