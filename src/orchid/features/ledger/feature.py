"""The transparency log of issued credentials and of decisions, which anybody can verify.

Pages      /ledger/
Read first sequencing.py
"""

from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="ledger",
    documentation="ledger.md",
)
