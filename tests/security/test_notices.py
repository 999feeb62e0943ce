"""The attack: to use a notice as a credential, or the controller that sends it as a reader."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchid.features.notices.receiver import notice_settings
from orchid.features.notices.sending import NoticeMetrics
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.outbound.failures import AnswerRefused
from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import MASTERS, UserInfo
from tests.api.world import Api
from tests.settings import written

SELF = "/apis/authentication.orch.io/v1/selfsubjectreviews"
HOME = ORCH.system_namespace


async def test_a_notice_is_no_credential(server: Api) -> None:
    """Though the token key has signed it, even with all claims of a valid token."""
    await server.account("robot")
    valid = await server.token("robot")
    claims = json.loads(b64url_decode(valid.split(".")[1].encode()))
    signer = server.server.context.port(FollowedKeys).keys.signer()
    body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.orch.io/v1"}

    token = await server.call("POST", SELF, body, token=signer.sign_payload(claims).reveal())
    notice = await server.call("POST", SELF, body, token=signer.sign_event(claims))

    assert (token.status, notice.status) == (201, 401)


async def test_the_sender_of_notices_reads_no_secret(server: Api) -> None:
    """It may write one ConfigMap, and change nothing else."""
    client = server.server.clients("notice-sender")
    meta = ObjectMeta(name="other", namespace=HOME)
    admin = server.server.clients.of_user(UserInfo(username="admin", groups=(MASTERS,)))
    await admin.create(ConfigMap(metadata=meta))

    with pytest.raises(Forbidden):
        await client.find(Secret, "any", HOME)
    with pytest.raises(Forbidden):
        await client.find(ConfigMap, "other", HOME)
    assert await client.find(ConfigMap, "notices", HOME) is None


def settings(**given: Any) -> Any:
    return notice_settings(check(written(**given)), NoticeMetrics())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"notice_url": "http://hooks.example"}, "--notice-url"),
        ({"notice_url": "https://user:pass@hooks.example"}, "--notice-url"),
        ({"notice_url": "https://hooks.example", "notice_ca_file": "/none"}, "--notice-ca-file"),
        ({"notice_token_file": "/none"}, "--notice-token-file needs --notice-url"),
        ({"notice_url": "https://hooks.example", "notice_before": "soon"}, "--notice-before"),
    ],
)
def test_an_unusable_receiver_is_refused_at_the_start(given: dict[str, Any], text: str) -> None:
    """Neither plain HTTP nor a credential in the URL; the flag is named."""
    with pytest.raises(BadSettings, match=text):
        settings(**given)


@pytest.mark.parametrize(
    ("content", "mode"), [("", 0o600), ("a b", 0o600), ("ü", 0o600), ("secret-token", 0o644)]
)
async def test_an_unusable_token_file_is_reported_without_its_content(
    tmp_path: Path, content: str, mode: int
) -> None:
    """Empty, with a space, not ASCII, or readable by others."""
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    made = settings(notice_url="https://127.0.0.1:1", notice_token_file=str(file))

    with pytest.raises(AnswerRefused, match="token file") as refused:
        await made.receiver.post(b"", "application/secevent+jwt")

    assert "secret-token" not in str(refused.value)


def test_the_audience_is_the_url_without_its_path() -> None:
    """The path may be a secret of the receiver."""
    made = settings(notice_url="https://hooks.example:8443/services/s3cret?x=y")
    assert made.receiver.audience == "https://hooks.example:8443"
    assert "s3cret" not in repr(made)
