"""Notices about endings and revocations, sent to receivers over HTTPS.

Uses       objects, revocation, token_keys, authorities, certificates, clusters
Read first controllers/send_notices.py
"""

from collections.abc import Iterable

from orchid.features.notices.controllers import send_notices
from orchid.features.notices.receiver import notice_settings
from orchid.features.notices.sending import NoticeMetrics, NoticeSettings
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.feature import Feature
from orchid.kernel.settings.checking import Settings


def _controller_parts(settings: Settings, server: Context | None) -> Iterable[NoticeSettings]:
    metrics = server.port(NoticeMetrics) if server is not None else NoticeMetrics()
    notices = notice_settings(settings, metrics)
    if notices is not None:
        yield notices


FEATURE = Feature(
    name="notices",
    controllers=(send_notices.CONTROLLER,),
    controller_parts=_controller_parts,
    provides=(ServerPart(NoticeMetrics, lambda context: NoticeMetrics()),),
    metrics=lambda context: context.port(NoticeMetrics).all,
    checks="orchid.features.notices.checks",
    documentation="notices.md",
)
