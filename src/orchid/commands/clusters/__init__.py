"""Kubernetes clusters whose credentials can be revoked here."""
