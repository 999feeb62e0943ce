"""Authenticators."""
