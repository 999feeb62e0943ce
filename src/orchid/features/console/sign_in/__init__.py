"""Signing in: by a link on a user's machine; by OpenID Connect or a certificate on a server."""
