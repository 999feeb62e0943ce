"""The check of holds and revocations after faults: it finds what it is there to find."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orchid.features.revocation.revocations import Revocations
from orchid.features.revoking.controllers.mark_revoked import MarkRevoked
from orchid.kernel.credentials.x509 import pem
from tests.api.world import Api
from tests.faults import revoking as module
from tests.faults.issuing import REVOCATIONS, Issuing
from tests.faults.revoking import Revoking
from tests.faults.systems import CONTROLLERS
from tests.faults.test_issuing import ByCertificate, ByToken
from tests.faults.workload import Way
from tests.unit.features.beside import beside


@asynccontextmanager
async def revoking_on_a_server(directory: Path) -> AsyncIterator[tuple[Revoking, Api]]:
    """A client that has three certificates, two of them on hold."""
    controllers = CONTROLLERS.split(",")
    async with beside(directory / "data") as world, world.running(*controllers):
        server = Api(world.server)

        @asynccontextmanager
        async def certified(chain: bytes) -> AsyncIterator[Sequence[Way]]:
            block = pem.first(chain)
            assert block is not None
            yield [ByCertificate(server, block.data)]

        ways = [ByToken(server)]
        revoking = Revoking(ways, certified, Issuing(ways, certified), seed=1)
        await revoking.prepare()
        yield revoking, server


async def test_sound_server_passes(tmp_path: Path) -> None:
    """Holds, lifted holds and final revocations are everywhere the same, after each change."""
    async with revoking_on_a_server(tmp_path) as (revoking, _):
        for act in (revoking.change, revoking.change):
            await act()
            await revoking.agree()
        await revoking.since_backup(whole_signer=True)
        await revoking.agree()

    assert revoking.improper == []
    assert revoking.done["agreements"] == 3
    assert revoking.done["holds lifted"] > 1


async def test_revoked_certificate_that_is_accepted_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any wait, at every revocation."""
    monkeypatch.setattr(Revocations, "refuse_certificate", lambda *_given, **_named: None)

    async with revoking_on_a_server(tmp_path) as (revoking, _):
        pass

    assert revoking.improper == ["201 was answered to kept-1, whose certificate is revoked"]


async def test_marks_and_lists_that_do_not_follow_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there was time enough."""

    async def forever(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(MarkRevoked, "run", forever)
    monkeypatch.setattr(module, "SETTLED", 0.5)

    async with revoking_on_a_server(tmp_path) as (revoking, _):
        await revoking.agree()

    wrong = [text for text in revoking.improper if text.endswith("good in the inventory")]
    assert len(wrong) == 2


async def test_revocation_that_is_gone_or_back_is_found(tmp_path: Path) -> None:
    """Acknowledged revocations count."""
    async with revoking_on_a_server(tmp_path) as (revoking, server):
        held = revoking.subjects[1].holds[0]
        await server.call("DELETE", f"{REVOCATIONS}/{held}")
        await revoking.agree()
        await revoking.change()
        lifted = next(name for name, exists in revoking.promised.items() if exists is False)
        [subject] = [one for one in revoking.subjects if lifted.startswith(one.issued.name)]
        named = {"sha256": subject.issued.facts.sha256}
        spec = {"certificate": named, "reason": "certificateHold"}
        body = {"metadata": {"name": lifted}, "spec": spec}
        assert (await server.call("POST", REVOCATIONS, body)).status == 201
        await revoking.agree()

    assert revoking.improper == [
        f"the revocation {held} is missing",
        f"the revocation {lifted} was deleted and is back",
    ]
