"""Judging certificate requests by policies and by what signers permit; pure."""
