"""Impersonation: acting as another user, and the rights that it needs."""
