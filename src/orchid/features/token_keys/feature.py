"""Signing keys: their creation, import, states and rotation.

Kinds      SigningKey
Uses       sealing, ledger, objects, revocation, accounts, authorities, certificates, clusters
Read first kinds/signing_key.py
"""

from orchid.features.token_keys import parts
from orchid.features.token_keys.controllers import rotate_token_keys
from orchid.features.token_keys.key_rotation import key_rotation
from orchid.features.token_keys.kinds import signing_key
from orchid.features.token_keys.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="token_keys",
    kinds=(signing_key.declare,),
    controllers=(rotate_token_keys.CONTROLLER,),
    roles=roles,
    controller_parts=lambda settings, server: (key_rotation(settings),),
    provides=parts.PARTS,
    policies=parts.policies,
    metrics=parts.metrics,
    prepare=parts.prepare,
    background=parts.background,
    documentation="rotation.md",
)
