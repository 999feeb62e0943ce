"""Certificates, certificate requests and revocation lists as values."""
