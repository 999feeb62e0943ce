"""Commands for certificate requests, policies, authorities, inventory and revocation."""
