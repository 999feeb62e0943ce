"""Tokens of outside OpenID Connect issuers: configuration, keys, claims to users."""
