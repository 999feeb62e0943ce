"""Service accounts and their tokens: issued, reviewed, bound to objects.

Kinds      ServiceAccount, TokenRequest, TokenReview, TokenReviewBatch
Uses       ledger, rights, objects, revocation, sign_in, token_keys, exchange
Read first token_issuer.py
"""

from orchid.features.accounts import parts
from orchid.features.accounts.controllers import (
    clean_token_secrets,
    create_default_accounts,
    fill_token_secrets,
)
from orchid.features.accounts.kinds import service_account
from orchid.features.accounts.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="accounts",
    kinds=(service_account.declare,),
    controllers=(
        clean_token_secrets.CONTROLLER,
        create_default_accounts.CONTROLLER,
        fill_token_secrets.CONTROLLER,
    ),
    roles=roles,
    permission_kinds=(service_account.ServiceAccount,),
    provides=parts.PARTS,
    token_authenticators=parts.token_authenticators,
    policies=parts.policies,
    served_kinds=parts.served_kinds,
    endpoints=parts.endpoints,
    prepare=parts.prepare,
    background=parts.background,
    documentation="concepts.md",
)
