"""Revocation in Kubernetes clusters: the webhook that their API servers ask in each request."""
