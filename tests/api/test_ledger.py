"""The ledger over the API: rights, formats and entries."""

import base64
import json

import pytest

from orchid.features.ledger.own_log import ledger_keys, origin
from orchid.features.ledger.sequencing import Sequencer
from orchid.features.ledger.signing_keys import LedgerKeys
from orchid.features.ledger.token_counts import TokenCounts
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.kernel.tlog.audit import audit, entries
from orchid.kernel.tlog.notes import NoteVerifier
from orchid.kernel.tlog.tiles import Tile
from tests.api.world import ADMIN, ALICE, Api
from tests.unit.kernel.credentials import samples

CSRS = "/apis/certificates.orch.io/v1/certificatesigningrequests"


class ApiLog:
    """The log as a client reads it."""

    def __init__(self, server: Api) -> None:
        self._server = server

    async def checkpoint(self) -> bytes | None:
        return await self._get("checkpoint")

    async def tile(self, tile: Tile) -> bytes | None:
        return await self._get(tile.path)

    async def _get(self, name: str) -> bytes | None:
        answer = await self._server.call("GET", f"/ledger/{name}", token=ADMIN)
        return answer.body if answer.status == 200 else None


async def sequenced(server: Api) -> None:
    """Give all pending entries their places, as the server's own sequencer does."""
    made = server.server
    await made.context.port(TokenCounts).write()
    await Sequencer(
        made.store, LedgerKeys(ledger_keys(made.settings)), origin(made.settings)
    ).drain()


async def approved_request(server: Api) -> None:
    body = {
        "apiVersion": "certificates.orch.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "alice"},
        "spec": {
            "request": base64.b64encode(samples.request()).decode(),
            "signerName": "example.com/custom",
            "usages": ["client auth"],
        },
    }
    created = await server.call("POST", CSRS, body, token=ADMIN)
    assert created.status == 201, created.text
    decided = created.json | {
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}
    }
    answer = await server.call("PUT", f"{CSRS}/alice/approval", decided, token=ADMIN)
    assert answer.status == 200, answer.text


async def test_a_client_checks_the_whole_log(server: Api) -> None:
    """With the key that the server names, every entry is found to be in the signed log."""
    await approved_request(server)
    await sequenced(server)

    key = (await server.call("GET", "/ledger/key", token=ADMIN)).text
    head = await audit(ApiLog(server), NoteVerifier.parse(key))

    found = [json.loads(entry) async for entry in entries(ApiLog(server), head.size)]
    assert "request.approved" in [entry["type"] for entry in found]
    assert "token-key.made" in [entry["type"] for entry in found]


async def test_tokens_are_counted_by_key_and_account(server: Api) -> None:
    """Requests for tokens leave numbers: which key, whose, until when."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    account = await server.call("POST", accounts, {"metadata": {"name": "builder"}}, token=ADMIN)
    for _ in range(3):
        await server.call("POST", f"{accounts}/builder/token", {}, token=ADMIN)

    await sequenced(server)

    head = await audit(ApiLog(server), await _verifier(server))
    found = [json.loads(entry) async for entry in entries(ApiLog(server), head.size)]
    [counted] = [entry for entry in found if entry["type"] == "tokens.counted"]
    rows = counted["tokens"]
    assert {row[0] for row in rows} == {account.json["metadata"]["uid"]}
    assert sum(row[2] for row in rows) == 3
    assert counted["key"] == server.server.context.port(FollowedKeys).keys.signer().kid


async def _verifier(server: Api) -> NoteVerifier:
    return NoteVerifier.parse((await server.call("GET", "/ledger/key", token=ADMIN)).text)


async def test_tiles_may_be_cached_and_checkpoints_may_not(server: Api) -> None:
    """Tiles never change and say so; the checkpoint is always requested again."""
    await approved_request(server)
    await sequenced(server)
    size = (await audit(ApiLog(server), await _verifier(server))).size

    checkpoint = await server.call("GET", "/ledger/checkpoint", token=ADMIN)
    tile = await server.call("GET", f"/ledger/tile/0/000.p/{size}", token=ADMIN)
    bundle = await server.call("GET", f"/ledger/tile/entries/000.p/{size}", token=ADMIN)

    assert checkpoint.header("cache-control") == "no-cache, private"
    assert checkpoint.header("content-type") == "text/plain; charset=utf-8"
    for fixed in (tile, bundle):
        assert fixed.header("cache-control") == "private, max-age=31536000, immutable"
        assert fixed.header("content-type") == "application/octet-stream"
    assert len(tile.body) == size * 32


async def test_the_ledger_is_for_those_whom_rbac_lets(server: Api) -> None:
    """Nobody reads it by default but administrators; a role opens it by its path."""
    await approved_request(server)
    await sequenced(server)
    assert (await server.call("GET", "/ledger/checkpoint", token=ALICE)).status == 403
    assert (await server.call("GET", "/ledger/checkpoint", token=None)).status == 401
    rbac = "/apis/rbac.authorization.orch.io/v1"
    role = {
        "metadata": {"name": "ledger-reader"},
        "rules": [{"nonResourceURLs": ["/ledger/*"], "verbs": ["get"]}],
    }
    binding = {
        "metadata": {"name": "ledger-readers"},
        "roleRef": {
            "apiGroup": "rbac.authorization.orch.io",
            "kind": "ClusterRole",
            "name": "ledger-reader",
        },
        "subjects": [{"apiGroup": "rbac.authorization.orch.io", "kind": "User", "name": "alice"}],
    }
    assert (await server.call("POST", f"{rbac}/clusterroles", role, token=ADMIN)).status == 201
    made = await server.call("POST", f"{rbac}/clusterrolebindings", binding, token=ADMIN)
    assert made.status == 201

    assert (await server.call("GET", "/ledger/checkpoint", token=ALICE)).status == 200


@pytest.mark.parametrize(
    "path", ["", "tile/0/000.p/200", "tile/0/00", "tile/0/001", "tile/99/000", "nothing", "tile/"]
)
async def test_what_is_not_there_is_not_found(server: Api, path: str) -> None:
    """Bad paths, and tiles that the log has not reached, are 404."""
    await approved_request(server)
    await sequenced(server)

    assert (await server.call("GET", f"/ledger/{path}", token=ADMIN)).status == 404


async def test_the_ledger_cannot_be_written_to(server: Api) -> None:
    """Entries come from what happens, never from a caller."""
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = await server.call(method, "/ledger/checkpoint", {}, token=ADMIN)
        assert answer.status == 405


async def test_an_empty_ledger_has_no_checkpoint_yet(server: Api) -> None:
    """Before the first entry has its place there is nothing to sign."""
    assert (await server.call("GET", "/ledger/checkpoint", token=ADMIN)).status == 404
    assert (await server.call("GET", "/ledger/key", token=ADMIN)).status == 200
