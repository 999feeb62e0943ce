"""Authenticators, one per file."""
