"""OAuth introspection, revocation and metadata for resource servers.

Pages      /oauth2/introspect, /oauth2/revoke, /.well-known/
Uses       rights, revocation
Read first introspection.py
"""

from orchid.features.introspection.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="introspection",
    roles=roles,
    documentation="introspection.md",
)
