"""ACME (RFC 8555) for certificate authorities: accounts, orders and certificates below /acme/."""
