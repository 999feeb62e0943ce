"""The server's own certificates while it runs: renewed, recorded, and no connection is cut."""

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.certificates.own_certificates import OwnCertificates
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.struct import replace
from tests.unit.features.beside import Beside, beside

REQUEST = b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"


async def serials(world: Beside) -> set[str]:
    return {one.name async for one in world.admin.scan(ListSelection(IssuedCertificate))}


class Connection:
    """A client that verifies nothing and looks at the certificate of the server."""

    @classmethod
    async def to(cls, port: int) -> "Connection":
        made = cls()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        made.reader, made.writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        return made

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def serial(self) -> int:
        der = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der).serial_number

    async def ask(self) -> bytes:
        self.writer.write(REQUEST)
        return await self.reader.readuntil(b"\r\n")


async def test_renewed_certificates_are_recorded_and_cut_no_connection(tmp_path: Path) -> None:
    """New connections get the new certificate; both new ones are in the inventory."""
    async with beside(tmp_path / "data") as world:
        own, listener = world.server.context.port(OwnCertificates), world.server.listener()
        await own.record(world.clock)
        before = await serials(world)
        await listener.start("127.0.0.1", 0)
        port = int(listener.addresses[0].rpartition(":")[2])
        old = await Connection.to(port)

        world.clock.ahead = timedelta(days=250)
        await own.renew(world.clock)
        async with asyncio.timeout(20):
            new = await Connection.to(port)
            while new.serial == old.serial:  # the listener checks its files once a second
                new.writer.close()
                await asyncio.sleep(0.05)
                new = await Connection.to(port)
        answers = [await old.ask(), await new.ask()]
        for one in (old, new):
            one.writer.close()
        await listener.drain(1)
        after = await serials(world)

    assert answers == [b"HTTP/1.1 200 OK\r\n"] * 2
    assert len(before) == 2
    assert len(after - before) == 2
    assert f"{new.serial:x}" in after


async def test_a_failure_is_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server with a damaged authority keeps its certificate."""
    async with beside(tmp_path / "data") as world:
        own = world.server.context.port(OwnCertificates)
        key = await world.admin.get(SigningKey, "cluster-1")
        secret = await world.admin.get(Secret, key.secret_name, world.naming.system_namespace)
        world.clock.ahead = timedelta(days=250)
        await world.admin.update(replace(secret, data={**secret.data, "tls.key": b"nothing"}))
        for _ in range(3):
            await own.renew(world.clock)
        damaged = await world.admin.get(Secret, secret.name, secret.namespace)
        await world.admin.update(replace(damaged, data=secret.data))
        await own.renew(world.clock)
        recorded = await serials(world)

    assert caplog.text.count("own_certificates.not_renewed") == 1
    assert len(recorded) == 2
