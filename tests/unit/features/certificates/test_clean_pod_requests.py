"""PodCertificateRequests are deleted a quarter of an hour after their creation."""

from datetime import timedelta

from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.kernel.runtime.expiring import Cleaner
from tests.unit.features.beside import Beside
from tests.unit.features.certificates.test_pod_certificate_request import requested


async def test_old_requests_go_whatever_became_of_them(world: Beside) -> None:
    """Up to a quarter of an hour a request stays."""
    await world.admin.create(requested())
    (controller,) = world.made("podcertificaterequestcleaner")
    assert isinstance(controller, Cleaner)
    found = []

    for minutes in (0, 14, 16):
        world.clock.ahead = timedelta(minutes=minutes)
        await controller.sweep()
        found.append(await world.admin.find(PodCertificateRequest, "req-1", "ci") is not None)

    assert found == [True, True, False]
