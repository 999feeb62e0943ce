"""Which objects lead to a notice, and what distinguishes two events of one object."""

from typing import Any

import pytest

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.notices.sources import (
    EffectiveRevocation,
    RotatedKey,
    WaitingRequest,
    watched_sources,
)
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.credentials.samples import HOUR, NOW

AT = "2026-03-01T13:00:00Z"


def request(*conditions: str, certificate: bytes = b"") -> CertificateSigningRequest:
    said = [{"type": type_, "status": "True"} for type_ in conditions]
    spec = {"username": "ali\nce", "signerName": "example.com/web"}
    found = {"metadata": {"name": "r", "uid": "u"}, "spec": spec, "status": {"conditions": said}}
    made = convert(found, CertificateSigningRequest).with_meta(creation_timestamp=NOW)
    return replace(made, status=replace(made.status, certificate=certificate))


@pytest.mark.parametrize(
    ("found", "waits"),
    [
        (request(), True),
        (request("Other"), True),
        (request("Approved"), False),
        (request("Denied"), False),
        (request("Failed"), False),
        (request(certificate=b"x"), False),
    ],
)
def test_a_request_waits_until_it_is_decided_issued_or_failed(found: Any, waits: bool) -> None:
    notice = WaitingRequest(ORCH).notice(found)

    assert (notice is not None) is waits


def test_the_notice_of_a_request_is_limited_by_its_requester() -> None:
    """By the name as it is; its text is printable."""
    notice = WaitingRequest(ORCH).notice(request())

    assert notice is not None
    assert (notice.limited_by, notice.occurred) == ("ali\nce", NOW)
    assert notice.fields["requester"] == "ali\ufffdce"


def revocation(**effective: Any) -> CredentialRevocation:
    said = [{"type": "Other", "status": "True"}, {"type": "Effective", **effective}]
    spec = {"user": {"username": "alice"}, "cluster": "prod", "reason": "keyCompromise"}
    found = {"metadata": {"name": "r"}, "spec": spec, "status": {"conditions": said}}
    return convert(found, CredentialRevocation).with_meta(creation_timestamp=NOW)


def test_a_revocation_is_announced_when_every_server_applies_it() -> None:
    source = EffectiveRevocation(ORCH)

    notice = source.notice(revocation(status="True", lastTransitionTime=AT))

    assert notice is not None
    assert notice.occurred == NOW + HOUR
    assert notice.fields["target"] == "user/alice in prod"
    assert source.notice(revocation(status="False")) is None
    without = source.notice(revocation(status="True"))
    assert without is not None
    assert without.occurred == NOW


def key(name: str = "web-2", state: str = "Active", **times: str) -> SigningKey:
    spec = {"state": state, "authority": name.rpartition("-")[0].removeprefix("tokens")}
    status = {"times": times or {"active": AT}}
    return convert({"metadata": {"name": name}, "spec": spec, "status": status}, SigningKey)


@pytest.mark.parametrize(
    ("found", "announced"),
    [
        (key(), True),
        (key("tokens-2"), True),
        (key("web-1"), False),
        (key("web-11"), True),
        (key("web"), True),
        (key(state="Verifying"), False),
        (key(published=AT), False),
    ],
)
def test_a_key_that_replaces_another_is_announced(found: SigningKey, announced: bool) -> None:
    """Not the first one, nor one that does not sign now."""
    assert (RotatedKey(ORCH).notice(found) is not None) is announced


def test_a_key_that_signs_again_is_another_notice() -> None:
    source = RotatedKey(ORCH)

    marks = {source.key(key(active=at)).jti for at in (AT, "2026-03-01T14:00:00Z")}

    assert len(marks) == 2
    assert source.mark(key(published=AT)) == ""


def test_only_requests_of_others_are_limited_and_announced_at_the_first_start() -> None:
    sources = watched_sources(ORCH)

    assert [one.is_limited for one in sources] == [True, False, False]
    assert [one.announces_existing for one in sources] == [True, False, False]
    assert "MODIFIED" not in sources[0].types
