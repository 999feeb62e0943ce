"""Authentication of people and of servers: OpenID Connect, tokens in files, webhooks.

Kinds      SelfSubjectReview
Uses       objects, revocation
Read first oidc/authenticator.py
"""

from orchid.features.sign_in.controllers import clean_bootstrap_tokens
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="sign_in",
    controllers=(clean_bootstrap_tokens.CONTROLLER,),
    documentation="access.md",
)
