"""Nobody asks the client signer for system:masters, in whatever spelling."""

from collections.abc import Iterator

import pytest

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.certificates.policies.subject_restriction import SubjectRestriction
from orchid.kernel.credentials.x509 import names as subject_names
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.asking import SIGNING_REQUESTS, a_request
from tests.unit.features.rights.policy_world import ask
from tests.unit.kernel.credentials.samples import (
    as_pem,
    attribute,
    name,
    raw_request,
    request,
    utf8,
)

ORGANIZATION, COMMON_NAME = subject_names.ORGANIZATION, subject_names.COMMON_NAME
POLICY = SubjectRestriction(ORCH)


def spellings() -> Iterator[tuple[str, bytes]]:
    user = (utf8(COMMON_NAME, "eve"),)
    for label, tag, content in (
        ("utf8", 0x0C, b"system:masters"),
        ("printable", 0x13, b"system:masters"),
        ("teletex", 0x14, b"system:masters"),
        ("bmp", 0x1E, "system:masters".encode("utf-16-be")),
        ("universal", 0x1C, "system:masters".encode("utf-32-be")),
        ("trailing-nul", 0x0C, b"system:masters\x00"),
        ("upper", 0x0C, b"SYSTEM:masters"),
        ("wide", 0x0C, "system\uff1amasters".encode()),
    ):
        group = attribute(ORGANIZATION, tag, content)
        yield label, as_pem(raw_request(name((group,), user)))
    plain, other = utf8(ORGANIZATION, "system:masters"), utf8(ORGANIZATION, "dev")
    yield "second", as_pem(raw_request(name((other,), (plain,), user)))
    yield "same-set", as_pem(raw_request(name((other, plain), user)))


def asked(text: bytes | None, signer: str = ORCH.client_signer) -> CertificateSigningRequest:
    return CertificateSigningRequest(
        metadata=ObjectMeta(name="csr1"),
        spec=CertificateSigningRequestSpec(request=text, signer_name=signer),
    )


CREATE = a_request(ask("create", "certificatesigningrequests", group=ORCH.certificates))


@pytest.mark.parametrize("text", [pytest.param(text, id=label) for label, text in spellings()])
async def test_masters_are_refused_in_every_spelling(text: bytes) -> None:
    """Any string type, among several, in one set, and what only looks the same."""
    with pytest.raises(Forbidden) as caught:
        await POLICY.review(CREATE, SIGNING_REQUESTS, asked(text), None)

    assert caught.value.message == (
        'certificatesigningrequests.certificates.orch.io "csr1" is forbidden: '
        "use of orch.io/orch-apiserver-client signer with system:masters group is not allowed"
    )


async def test_others_pass() -> None:
    """Other groups, other signers, later writes and deletions are not checked."""
    masters = request("eve", ("system:masters",))

    await POLICY.review(CREATE, SIGNING_REQUESTS, asked(request("eve", ("dev",))), None)
    await POLICY.review(CREATE, SIGNING_REQUESTS, asked(masters, "example.com/x"), None)
    await POLICY.review(CREATE, SIGNING_REQUESTS, asked(masters), asked(masters))
    await POLICY.review(CREATE, SIGNING_REQUESTS, None, asked(masters))
    new = asked(masters)
    assert await POLICY.admit(CREATE, SIGNING_REQUESTS, new, None) is new


@pytest.mark.parametrize("text", [None, b"", b"nonsense"])
async def test_what_cannot_be_read_is_refused(text: bytes | None) -> None:
    """An unreadable request never passes for a harmless one."""
    with pytest.raises(Forbidden, match="failed to parse CSR: "):
        await POLICY.review(CREATE, SIGNING_REQUESTS, asked(text), None)
