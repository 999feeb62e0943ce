"""Secrets in the store are encrypted; the keys for it, and their rotation.

Read first encryption.py
"""

from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="sealing",
    documentation="how-to/backup.md",
)
