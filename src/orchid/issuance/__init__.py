"""Issued and revoked credentials: tokens, records, revocation lists, explanations of policies."""
