"""Which certificates `orchid revoke` counts for a user or an account."""

from typing import Any

import pytest

from orchid.features.certificates.commands import issued
from orchid.features.revoking.commands import revocations
from orchid.kernel.wire.naming import ORCH

ROBOT = "system:serviceaccount:ci:robot"
END, PAST = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"


def record(serial: str = "a1", **spec: Any) -> dict[str, Any]:
    return {"spec": {"serialNumber": serial, "notAfter": END, **spec}}


@pytest.mark.parametrize(
    ("spec", "user", "concerns"),
    [
        ({"username": ROBOT}, ROBOT, True),
        ({"requester": {"username": ROBOT}}, ROBOT, True),
        ({"names": ["spiffe://example.org/ns/ci/sa/robot"]}, ROBOT, True),
        ({"names": ["web.example.com", "spiffe://other.example/ns/ci/sa/robot"]}, ROBOT, True),
        ({"names": ["spiffe://example.org/ns/ci/sa/robot-2"]}, ROBOT, False),
        ({"names": ["spiffe://example.org/x/ns/ci/sa/robot"]}, ROBOT, False),
        ({"names": ["https://example.org/ns/ci/sa/robot"]}, ROBOT, False),
        ({"names": ["spiffe://example.org/ns/ci/sa/robot"]}, "robot", False),
        ({"names": ["spiffe://example.org"]}, "jane", False),
        ({"username": "jane"}, ROBOT, False),
    ],
)
def test_a_certificate_concerns_who_it_names_and_who_requested_it(
    spec: dict[str, Any], user: str, concerns: bool
) -> None:
    """An account also by its SPIFFE ID, in any trust domain."""
    assert issued.concerns(record(**spec), user) is concerns
    assert issued.is_svid(record(**spec)) is ("spiffe://" in str(spec))


class Server:
    """Lists revocations."""

    naming = ORCH

    def __init__(self, *specs: dict[str, Any]) -> None:
        self._specs = specs

    def items(self, place: str) -> list[dict[str, Any]]:
        return [{"spec": spec} for spec in self._specs]


@pytest.mark.parametrize(
    ("revoked", "counts"),
    [
        ({"user": {"username": "jane"}}, True),
        ({"certificate": {"serialNumber": "b2"}}, True),
        ({"certificate": {"serialNumber": "a1"}}, False),
        ({"certificate": {"serialNumber": "a1"}, "reason": "certificateHold"}, True),
        ({"certificate": {"serialNumber": "a1"}, "cluster": "prod"}, True),
    ],
)
def test_only_its_own_final_revocation_puts_a_certificate_on_a_list(
    revoked: dict[str, Any], counts: bool
) -> None:
    """The inventory also marks those whose user is revoked; other programs accept them."""
    marked = {**record(), "status": {"revoked": {"reason": "keyCompromise"}}}
    server: Any = Server(revoked)

    assert revocations.without_own(server, [marked]) == ([marked] if counts else [])


@pytest.mark.parametrize("spec", [{"notAfter": PAST}, {"cluster": "prod"}])
def test_ended_certificates_and_those_of_clusters_do_not_count(spec: dict[str, Any]) -> None:
    server: Any = Server()

    assert revocations.without_own(server, [record(**spec)]) == []
