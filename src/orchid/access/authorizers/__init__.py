"""Authorizers, one per file."""
