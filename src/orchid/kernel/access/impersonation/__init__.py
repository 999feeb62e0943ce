"""Impersonation: acting as another user, and the permissions that it needs."""
