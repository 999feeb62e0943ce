"""The attack: keep a token that its holder revoked while its account was deleted.

A restored backup brings the account back with its uid, and a bound object, too. The answer of
/oauth2/revoke was 200, but nothing was stored for a token that was not accepted at that moment.
"""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.memory import MemoryStore
from tests.api.world import ALICE, Answer, Api, api
from tests.e2e.https import Https
from tests.e2e.person import Person
from tests.e2e.serving import running_server
from tests.security.test_revocations import FUTURE, REVOCATIONS, jti_of, known, revoke, revoked

CORE = "/api/v1/namespaces/default"
ACCOUNT = f"{CORE}/serviceaccounts/robot"
FORM = {"content-type": "application/x-www-form-urlencoded"}
SENT = {"Content-Type": "application/x-www-form-urlencoded"}
NO_CONTROLLERS = ("--controllers", "")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def server(server_files: Path, store: MemoryStore) -> AsyncIterator[Api]:
    async with api(server_files, store=store) as made:
        await made.account("robot")
        yield made


async def returned(server: Api, token: str) -> int:
    body = urlencode({"token": token}).encode()
    return (await server.call("POST", "/oauth2/revoke", body, token=None, headers=FORM)).status


async def revocations(server: Api) -> list[dict[str, Any]]:
    return [one["spec"] for one in (await server.call("GET", REVOCATIONS)).json["items"]]


async def stored(store: MemoryStore, key: str) -> bytes:
    (found,) = (await store.read(Span.key(key))).records
    return bytes(found.value)


async def test_the_token_of_a_deleted_account_stays_revoked_when_it_comes_back(
    server: Api, store: MemoryStore
) -> None:
    """With the uid that it had; another token of the account is accepted again."""
    key = "core/serviceaccounts/default/robot"
    stolen, other = await server.token("robot"), await server.token("robot")
    account = await stored(store, key)
    await server.call("DELETE", ACCOUNT)

    answer = await returned(server, stolen)
    await store.commit([Change(key, account, ABSENT)])
    await server.server.feed.fresh()

    assert answer == 200
    assert await known(server, token=stolen) == 401
    assert await known(server, token=other) == 201


async def test_a_token_whose_bound_object_is_gone_is_revoked(server: Api) -> None:
    """The object comes back with the backup, too."""
    made = await server.make(f"{CORE}/secrets", {"metadata": {"name": "s"}})
    bound = {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": made["metadata"]["uid"]}
    stolen = await server.token("robot", boundObjectRef=bound)
    await server.call("DELETE", f"{CORE}/secrets/s")

    assert await returned(server, stolen) == 200

    assert [one["token"]["jti"] for one in await revocations(server)] == [jti_of(stolen)]


async def test_the_token_of_an_account_that_was_created_again_is_revoked(server: Api) -> None:
    """The token is of the account before, which a backup may have."""
    stolen = await server.token("robot")
    await server.call("DELETE", ACCOUNT)
    await server.account("robot")

    assert await returned(server, stolen) == 200

    assert [one["token"]["jti"] for one in await revocations(server)] == [jti_of(stolen)]


async def test_an_administrator_revokes_the_token_of_a_deleted_account(server: Api) -> None:
    """With a warning; of all tokens of the account, nobody knows when the last one expires."""
    stolen = await server.token("robot")
    await server.call("DELETE", ACCOUNT)
    named = {"namespace": "default", "name": "robot"}

    token = await revoke(server, "a", {"token": {**named, "jti": jti_of(stolen)}})
    ends = await revoke(server, "b", {"token": {**named, "jti": "other", "expires": FUTURE}})
    account = await revoke(server, "c", {"account": named})
    foreign = await revoke(server, "d", {"token": {**named, "jti": "third"}}, token=ALICE)

    assert (token.status, ends.status, account.status, foreign.status) == (201, 201, 201, 403)
    for answer, field in ((token, "token"), (account, "account")):
        says = f'spec.{field}.name: there is no account \\"default/robot\\" now'
        assert says in (answer.header("warning") or "")
    assert "expires" not in account.json.get("status", {})
    assert token.json["status"]["expires"] > token.json["metadata"]["creationTimestamp"]
    assert ends.json["status"]["expires"] == FUTURE


def forged(token: str, part: str) -> str:
    """The token with another subject or another signature."""
    head, payload, signature = token.split(".")
    if part == "signature":
        return f"{head}.{payload}.{signature[:-8]}AAAAAAAA"
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["jti"], claims["exp"] = "another", claims["exp"] + 3600
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"{head}.{text}.{signature}"


@pytest.mark.parametrize("part", ["signature", "claims"])
@pytest.mark.parametrize("state", ["live", "held", "deleted"])
async def test_of_a_forged_token_nothing_is_learned_or_stored(
    server: Api, part: str, state: str
) -> None:
    """Its subject is an account that exists, is under a hold, or is gone: the answer is one."""
    token = forged(await server.token("robot"), part)
    if state == "held":
        account = {"namespace": "default", "name": "robot"}
        await revoked(server, "held", account=account, reason="certificateHold")
    elif state == "deleted":
        await server.call("DELETE", ACCOUNT)
    before = await revocations(server)

    answers = [await introspected(server, token), await introspected(server, "nonsense")]
    statuses = [await returned(server, token) for _ in range(25)]  # more than a holder may

    assert {(one.status, one.body) for one in answers} == {(200, b'{"active":false}')}
    assert set(statuses) == {200}
    assert await revocations(server) == before


async def introspected(server: Api, token: str) -> Answer:
    body = urlencode({"token": token}).encode()
    return await server.call("POST", "/oauth2/introspect", body, headers=FORM)


def test_it_stays_revoked_after_the_restore_of_a_backup(tmp_path: Path) -> None:
    """By its holder, and by the command, which reads a token from standard input."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    with running_server(data, *NO_CONTROLLERS) as server:
        person.types("account", "new", "ci/builder")
        by_holder, by_command, other = (person.types("token", "ci/builder").stdout for _ in "abc")
        person.types("backup", str(copy), "--data-dir", str(data))
        person.types("account", "delete", "--yes", "ci/builder")
        form = urlencode({"token": by_holder}).encode()
        with closing(Https(server.port)) as holder:
            assert holder.send("POST", "/oauth2/revoke", form, headers=SENT).status == 200
        person.types("revoke", "token", "--yes", given=by_command)
        server.stop()

    person.types("restore", str(copy), "--data-dir", str(data))
    with running_server(data, *NO_CONTROLLERS, port=server.port):
        codes = {by_holder: 1, by_command: 1, other: 0}
        shown = {
            token: person.gets("token", "show", "--verify", given=token, code=code)["verified"]
            for token, code in codes.items()
        }

    assert shown == {by_holder: False, by_command: False, other: True}
