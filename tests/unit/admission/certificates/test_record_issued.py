"""Records of issued certificates: a serial number identifies one certificate."""

from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from orchid.admission.certificates.record_issued import Issuers, RecordIssued
from orchid.engine.request import Target
from orchid.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.wire.errors import Invalid
from orchid.wire.meta import ObjectMeta
from orchid.wire.naming import ORCH
from tests.unit.admission.asking import SIGNING_REQUESTS, a_request
from tests.unit.credentials import chains

OLD = CertificateSigningRequest(
    metadata=ObjectMeta(name="r"), spec=CertificateSigningRequestSpec(signer_name="a.com/b")
)
PEM = chains.make().public_bytes(serialization.Encoding.PEM)
TARGET = Target(
    verb="update",
    is_resource=True,
    group=ORCH.certificates,
    resource="certificatesigningrequests",
    subresource="status",
    name="r",
)


class OtherRecord:
    """An inventory that has another certificate with every number."""

    def get(self, _namespace: str, _serial: str) -> Any:
        return SimpleNamespace(object=SimpleNamespace(spec=SimpleNamespace(sha256="0" * 64)))


async def test_a_number_that_another_certificate_has_is_refused() -> None:
    """Also of a signer for which another program may sign: who revokes by number must hit one."""
    other: Any = OtherRecord()
    none: Any = None
    issuers = Issuers((), True)
    pods = {"pod_requests": none, "account_until": none, "names": ORCH}
    policy = RecordIssued(other, none, lambda _signer: issuers, none, none, **pods)

    with pytest.raises(Invalid, match="another certificate has the serial number 7"):
        await policy.companions(a_request(TARGET), SIGNING_REQUESTS, OLD.with_certificate(PEM), OLD)
