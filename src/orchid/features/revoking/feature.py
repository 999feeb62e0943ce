"""What a revocation leads to: its rights, marks in the inventory, revocation lists.

Pages      /crl/
Uses       sealing, objects, revocation, sign_in, token_keys, accounts, authorities, certificates,
           exchange, clusters
Read first policies/revocation_permission.py
"""

from orchid.features.revoking import parts
from orchid.features.revoking.controllers import (
    clean_revocations,
    confirm_revocations,
    mark_revoked,
    publish_revocation_lists,
)
from orchid.features.revoking.revocation_file import FILE
from orchid.features.revoking.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="revoking",
    controllers=(
        clean_revocations.CONTROLLER,
        confirm_revocations.CONTROLLER,
        mark_revoked.CONTROLLER,
        publish_revocation_lists.CONTROLLER,
    ),
    roles=roles,
    provides=parts.PARTS,
    policies=parts.policies,
    pages=parts.pages,
    prepare=parts.prepare,
    background=parts.background,
    plain_http=parts.plain_http,
    data_files=(FILE,),
    documentation="revocation.md",
)
