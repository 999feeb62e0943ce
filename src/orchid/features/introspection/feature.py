"""OAuth introspection, revocation and metadata for resource servers.

Pages      /oauth2/introspect, /oauth2/revoke, /.well-known/
Uses       rights, revocation, token_keys, accounts
Read first introspection.py
"""

from orchid.features.introspection import introspection, parts, revocation
from orchid.features.introspection.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="introspection",
    roles=roles,
    pages=parts.pages,
    pages_by_address=(introspection.PATH, revocation.PATH),
    documentation="introspection.md",
)
