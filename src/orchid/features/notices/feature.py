"""Notices about endings and revocations, sent to receivers over HTTPS.

Uses       objects, revocation, token_keys, authorities, certificates, clusters
Read first controllers/send_notices.py
"""

from orchid.features.notices.controllers import send_notices
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="notices",
    controllers=(send_notices.CONTROLLER,),
    documentation="notices.md",
)
