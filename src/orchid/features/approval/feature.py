"""The language of approval policies: judges requests without input or output.

Read first deciding.py
"""

from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="approval",
    documentation="policies.md",
)
