"""Signing keys: their creation, import, states and rotation. Start with feature.py."""
