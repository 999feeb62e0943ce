"""The receiver of notices, from settings."""

import functools
from pathlib import Path
from urllib.parse import urlsplit

from orchid.features.notices.sending import NoticeMetrics, NoticeReceiver, NoticeSettings
from orchid.features.notices.settings import ReceiverSettings
from orchid.kernel.credentials.files import read_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused
from orchid.kernel.outbound.https_client import HttpsClient
from orchid.kernel.outbound.remote import Remote, trusting
from orchid.kernel.settings import trusted_files
from orchid.kernel.settings.checking import Settings

NOTICE_TIMEOUT = 10.0
LARGEST_NOTICE_ANSWER = 64 << 10
LARGEST_NOTICE_TOKEN = 16 << 10


def notice_settings(settings: Settings, metrics: NoticeMetrics) -> NoticeSettings | None:
    """None if there is no receiver; raises BadSettings if it cannot be used."""
    options = settings.given.of(ReceiverSettings)
    if not options.notice_url:
        return None
    bearer = None
    if options.notice_token_file:
        bearer = functools.partial(_token, Path(options.notice_token_file))
    tls = trusting(trusted_files.authorities("notice-ca-file", options.notice_ca_file))
    remote = Remote(options.notice_url, tls, bearer=bearer)
    client = HttpsClient(remote, max_answer=LARGEST_NOTICE_ANSWER, timeout=NOTICE_TIMEOUT)

    async def post(body: bytes, media: str) -> Answer:
        return await client.send("POST", body=body, media=media)

    receiver = NoticeReceiver(post, settings.issuers[0], _origin(options.notice_url))
    return NoticeSettings(receiver, options.notice_before.delta, metrics)


def _origin(url: str) -> str:
    """The audience of the notices: without the path, which may be a secret of the receiver."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _token(path: Path) -> SecretValue:
    """Read at each use, so that the file can be replaced."""
    try:
        text = read_private(path, LARGEST_NOTICE_TOKEN).decode("ascii").strip()
    except (Refusal, UnicodeDecodeError) as problem:
        why = str(problem) if isinstance(problem, Refusal) else "it is not ASCII"
        raise AnswerRefused(f"the token file cannot be used: {why}") from None
    if not text or not text.isprintable() or " " in text:
        raise AnswerRefused("the token file has no token")
    return SecretValue(text)
