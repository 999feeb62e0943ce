"""Issued and revoked credentials: tokens, records, revocation lists, and why policies decide."""
