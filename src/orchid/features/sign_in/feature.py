"""Authentication of people and of servers: OpenID Connect, tokens in files, webhooks.

Kinds      SelfSubjectReview
Uses       objects, revocation
Read first oidc/authenticator.py
"""

from orchid.features.sign_in import parts
from orchid.features.sign_in.controllers import clean_bootstrap_tokens
from orchid.features.sign_in.kinds import self_subject_review
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="sign_in",
    controllers=(clean_bootstrap_tokens.CONTROLLER,),
    served_kinds=lambda context: (self_subject_review.declare(context.naming),),
    provides=parts.PARTS,
    token_authenticators=parts.token_authenticators,
    background=parts.background,
    documentation="access.md",
)
