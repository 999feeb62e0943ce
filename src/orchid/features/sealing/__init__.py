"""Secrets in the store are encrypted; the keys for it, and their rotation.

Start with feature.py.
"""
