"""Authentication of people and of servers: OpenID Connect, tokens in files, webhooks.

Start with feature.py.
"""
