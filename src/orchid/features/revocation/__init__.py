"""Revoked credentials: the kind, and the index that every authenticator asks.

Start with feature.py.
"""
