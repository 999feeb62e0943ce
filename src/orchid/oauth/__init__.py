"""OAuth 2.0 endpoints for services that receive tokens: introspection and metadata."""
