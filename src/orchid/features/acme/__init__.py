"""ACME (RFC 8555): certificates for clients such as certbot, by policy instead of challenges.

Start with feature.py.
"""
