"""What a node may do, and certificates for the Pods on it.

Uses       rights, objects, accounts, certificates
Read first authorizers/node.py
"""

from orchid.features.nodes.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="nodes",
    roles=roles,
    documentation="access.md",
)
