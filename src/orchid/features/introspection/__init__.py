"""OAuth introspection, revocation and metadata for resource servers. Start with feature.py."""
