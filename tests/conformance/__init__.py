"""Exchanges recorded from the reference, replayed against a running server."""
