"""Token exchange (RFC 8693): tokens of outside issuers for tokens of accounts.

Start with feature.py.
"""
