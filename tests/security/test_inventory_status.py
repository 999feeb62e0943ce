"""The right to write the status of inventory records revokes nothing and lifts nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateStatus,
    Revoked,
)
from orchid.kernel.wire.struct import replace
from tests.unit.features.beside import Beside, beside
from tests.unit.features.certificates.test_issued_certificates import issued, record_of
from tests.unit.features.revoking.test_published_lists import list_of, revoke


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


PUBLISHER = "revocation-list-publisher"


async def test_revocation_lists_do_not_follow_the_status_of_records(world: Beside) -> None:
    """A mark without a revocation lists nothing, and a mark removed unlists nothing."""
    async with world.running("csrsigning"):
        marked, unmarked = await issued(world, "marked"), await issued(world, "unmarked")
    async with world.running("revocation-marker"):
        await revoke(world, "unmarked", "cessationOfOperation")
        serial = f"{unmarked.serial_number:x}"
        await world.until_like(
            IssuedCertificate, serial, condition=lambda one: bool(one.status.revoked)
        )

    async with world.running(PUBLISHER):
        await list_of(world, 1)
        await write(world, unmarked, None)
        await write(
            world,
            marked,
            Revoked(time=world.clock.now().replace(microsecond=0), reason="superseded"),
        )
        async with world.running("csrsigning"):
            last = await issued(world, "last")
        await revoke(world, "last", "superseded")
        found = await list_of(world, 2)

    listed = {one.serial_number for one in found}
    assert listed == {unmarked.serial_number, last.serial_number}


async def write(world: Beside, leaf: x509.Certificate, mark: Revoked | None) -> None:
    """Write the status of a record, as the verb `update` on issuedcertificates/status allows."""
    record = await record_of(world, leaf)
    await world.admin.update_status(replace(record, status=IssuedCertificateStatus(revoked=mark)))
