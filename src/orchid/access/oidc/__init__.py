"""Tokens of external OpenID Connect issuers: configuration, keys, mapping of claims to users."""
