"""Records of an attacker: nobody hides in the audit log, and nobody writes lines into the log.

The attackers chose their own names: in a certificate, or in the directory of users that names come
from.
"""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchid.kernel.base.telemetry import TextFormatter
from tests.api.world import api
from tests.security.certified import cluster_authority, issued

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
LIKE_A_TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJyb290In0.c2lnbmF0dXJl"
POLICY = """
apiVersion: audit.orch.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""
FORGED = "12:00:01 info    request.answered user=system:admin"


async def test_nobody_hides_behind_a_name_that_looks_like_a_token(
    server_files: Path, tmp_path: Path
) -> None:
    """Users, objects and paths are in the audit log unchanged."""
    policy, record = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(POLICY)
    mallory = issued(cluster_authority(server_files), LIKE_A_TOKEN, LIKE_A_TOKEN)
    target = f"{ACCOUNTS}/{LIKE_A_TOKEN}"
    async with api(
        server_files, audit_policy_file=str(policy), audit_log_path=str(record)
    ) as server:
        answer = await server.call("DELETE", target, token=None, peer=mallory.peer)

    (event,) = map(json.loads, record.read_text().splitlines())
    assert answer.status == 403
    assert event["user"]["username"] == LIKE_A_TOKEN
    assert LIKE_A_TOKEN in event["user"]["groups"]
    assert event["requestURI"] == target
    assert event["objectRef"]["name"] == LIKE_A_TOKEN


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The output of a server with text logs at the level debug."""
    log, text = logging.getLogger("orchid"), io.StringIO()
    handler, before = logging.StreamHandler(text), log.level
    handler.setFormatter(TextFormatter())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield text
    log.removeHandler(handler)
    log.setLevel(before)


@pytest.mark.parametrize("sign", ["\n", "\r", "\x85", "\u2028", "\x1b[2K\x1b[1G"])
async def test_nobody_writes_a_line_of_their_own(
    written: io.StringIO, server_files: Path, tmp_path: Path, sign: str
) -> None:
    """A user whose name breaks the line, or wipes it from a terminal, stays within the line."""
    users = tmp_path / "users.csv"
    users.write_bytes(f'mallory-token,"mallory{sign}{FORGED}",1\n'.encode())
    async with api(server_files, token_auth_file=str(users)) as server:
        answer = await server.call("GET", ACCOUNTS, token="mallory-token")

    lines = written.getvalue().splitlines()
    (line,) = [line for line in lines if "user=mallory" in line]
    assert answer.status == 403
    assert FORGED in line
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith(FORGED)]
