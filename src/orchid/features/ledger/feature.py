"""The transparency log of issued credentials and of decisions, which anybody can verify.

Pages      /ledger/
Read first sequencing.py
"""

from orchid.features.ledger.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="ledger",
    roles=roles,
    documentation="ledger.md",
)
