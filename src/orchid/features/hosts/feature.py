"""Hosts join with a token, and an agent keeps their credentials fresh in files.

Uses       rights, certificates, revoking
Read first agent/agent.py
"""

from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="hosts",
    documentation="hosts.md",
)
