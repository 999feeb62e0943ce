"""Token exchange (RFC 8693): tokens of outside issuers for tokens of accounts.

Kinds      TokenExchangePolicy, TokenExchangeReview
Pages      /oauth2/token
Uses       rights, revocation, sign_in, approval, accounts, introspection
Read first exchanger.py
"""

from orchid.features.exchange.kinds import token_exchange_policy
from orchid.features.exchange.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="exchange",
    kinds=(token_exchange_policy.declare,),
    roles=roles,
    documentation="ci.md",
)
