"""OAuth 2.0 endpoints: token exchange, introspection, revocation and metadata."""
