"""The check of certificates after faults: it finds what it is there to find, and nothing else."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchid.features.certificates.policies.record_issued import RecordIssued
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.http.messages import Peer
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.memory import MemoryStore
from tests.api.world import Api
from tests.faults.decisions import STORED_REQUESTS
from tests.faults.issuing import STORED_RECORDS, Issuing, unrecorded
from tests.faults.workload import Way, read
from tests.security.certified import Certified, issued, other_authority
from tests.unit.features.beside import beside

ROUNDS = 3


class ByCertificate:
    """In-process calls to a server with a client certificate."""

    def __init__(self, server: Api, certificate: bytes) -> None:
        self._server = server
        self._peer = Peer("127.0.0.1:1", certificate)

    async def send(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        answer = await self._server.call(method, target, body, token=None, peer=self._peer)
        return answer.status, read(answer.body)

    async def watch(self, target: str) -> AsyncGenerator[Any, None]:
        raise AssertionError("nobody watches here")
        yield


class ByToken(ByCertificate):
    """The administrator's way."""

    def __init__(self, server: Api) -> None:
        self._server = server

    async def send(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        answer = await self._server.call(method, target, body)
        return answer.status, read(answer.body)


async def issuing_on_a_server(directory: Path) -> tuple[Issuing, list[str]]:
    """Observations of a server with a signing controller, and the entries that its store lacks."""
    async with beside(directory / "data") as world, world.running("csrsigning"):
        server = Api(world.server)

        @asynccontextmanager
        async def certified(chain: bytes) -> AsyncIterator[Sequence[Way]]:
            block = pem.first(chain)
            assert block is not None
            yield [ByCertificate(server, block.data)] * 2

        issuing = Issuing([ByToken(server)] * 2, certified)
        await issuing.run(asyncio.Event(), ROUNDS)
        return issuing, await unrecorded(world.server.store, issuing.issued)


async def test_sound_server_passes(tmp_path: Path) -> None:
    """Every certificate was handed out, on record, accepted, and then refused."""
    issuing, lacking = await issuing_on_a_server(tmp_path)

    assert (issuing.improper, lacking) == ([], [])
    assert issuing.accepted == len(issuing.issued) == len(issuing.revoked) == ROUNDS


async def test_certificate_without_a_record_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the request during the run, and in the store afterwards."""

    async def nothing(*_: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(RecordIssued, "companions", nothing)

    issuing, lacking = await issuing_on_a_server(tmp_path)

    said = [text.partition(" was ")[2] for text in issuing.improper]
    assert said.count("handed out and is not on record") == 2 * ROUNDS
    assert len(lacking) == ROUNDS
    assert all(text.endswith("has no record") for text in lacking)


async def test_revoked_certificate_that_is_accepted_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each way on which it was."""
    monkeypatch.setattr(Revocations, "refuse_certificate", lambda *_: None)

    issuing, _ = await issuing_on_a_server(tmp_path)

    said = [text.partition("after ")[2] for text in issuing.improper]
    assert said == ["its certificate was revoked"] * 2 * ROUNDS


def stored(key: str, made: Certified) -> Change:
    status = {"certificate": base64.b64encode(made.chain).decode()}
    return Change(STORED_REQUESTS.start + key, json.dumps({"status": status}).encode(), ABSENT)


async def test_the_store_is_asked_for_what_it_lacks() -> None:
    """A record of another certificate does not count, nor does a client's word for the store's."""
    authority = other_authority()
    store = MemoryStore()
    record = {"spec": {"sha256": "0" * 64}}
    await store.commit([Change(f"{STORED_RECORDS.start}7", json.dumps(record).encode(), ABSENT)])
    await store.commit([stored("a", issued(authority, "jane"))])

    lacking = await unrecorded(store, {"7"})

    assert lacking == [
        "CN=jane has no record",
        "the certificate 7 was handed out and is lost",
    ]
