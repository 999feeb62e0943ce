"""Notices about endings and revocations, sent to receivers over HTTPS. Start with feature.py."""
