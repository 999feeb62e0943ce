"""Revocations: who may create and lift them, and how often."""
