"""The receiver of notices, from the settings (controllers/send_notices.py)."""

import functools
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchid.controllers.runtime.context import NoticeMetrics, NoticeReceiver, NoticeSettings
from orchid.credentials.files import read_private
from orchid.credentials.refusals import Refusal
from orchid.credentials.secret import SecretValue
from orchid.outbound.answer import Answer
from orchid.outbound.failures import AnswerRefused
from orchid.outbound.https_client import HttpsClient
from orchid.outbound.remote import InvalidRemote, Remote, trusting
from orchid.settings.checking import Settings
from orchid.settings.errors import BadSettings

TIMEOUT: Final = 10.0  # seconds
LARGEST_ANSWER: Final = 64 << 10
LARGEST_TOKEN: Final = 16 << 10


def notice_settings(settings: Settings, metrics: NoticeMetrics) -> NoticeSettings | None:
    """None if there is no receiver; raises BadSettings if it cannot be used."""
    given = settings.given
    if not given.notice_url:
        return None
    bearer = None
    if given.notice_token_file:
        bearer = functools.partial(_token, Path(given.notice_token_file))
    try:
        authorities = Path(given.notice_ca_file).read_text() if given.notice_ca_file else ""
        remote = Remote(given.notice_url, trusting(authorities), bearer=bearer)
    except (InvalidRemote, UnicodeDecodeError) as problem:
        raise BadSettings(f"--notice-url: {problem}") from None
    except OSError as problem:
        raise BadSettings(f"--notice-ca-file: {problem.strerror}") from None
    client = HttpsClient(remote, max_answer=LARGEST_ANSWER, timeout=TIMEOUT)

    async def post(body: bytes, media: str) -> Answer:
        return await client.send("POST", body=body, media=media)

    receiver = NoticeReceiver(post, settings.issuers[0], _origin(given.notice_url))
    return NoticeSettings(receiver, timedelta(seconds=settings.notice_before), metrics)


def _origin(url: str) -> str:
    """The audience of the notices: without the path, which may be a secret of the receiver."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _token(path: Path) -> SecretValue:
    """Read at each use, so that the file can be replaced."""
    try:
        text = read_private(path, LARGEST_TOKEN).decode("ascii").strip()
    except (Refusal, UnicodeDecodeError) as problem:
        why = str(problem) if isinstance(problem, Refusal) else "it is not ASCII"
        raise AnswerRefused(f"the token file cannot be used: {why}") from None
    if not text or not text.isprintable() or " " in text:
        raise AnswerRefused("the token file has no token")
    return SecretValue(text)
