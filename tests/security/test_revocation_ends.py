"""The attack: to wait until a revocation has ended, and use the credential that has not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.accounts.token_lifetimes import NAME, rounded
from orchid.features.certificates.client_pools import ClientPools
from orchid.kernel.store.interface import Change, Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.text import timestamp
from tests.api.world import Api, api
from tests.security import test_revocations
from tests.security.certified import cluster_authority, issued
from tests.security.test_revocations import (
    ISSUED,
    REVOCATIONS,
    jti_of,
    known,
    on_record,
    revoke,
    revoked,
)
from tests.unit.features.beside import MovingClock

ROBOT = {"namespace": "default", "name": "robot"}
LIFETIMES = f"/api/v1/namespaces/{ORCH.system_namespace}/configmaps/{NAME}"
DAY = 86_400


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


class Lasting(MemoryStore):
    """A store that outlives a server."""

    async def close(self) -> None:
        pass


@asynccontextmanager
async def serving(directory: Path, store: MemoryStore, hours: int) -> AsyncIterator[Api]:
    """A server that issues tokens for so many hours at most."""
    limit = {"service_account_max_token_expiration": f"{hours}h"}
    async with api(directory, store=store, **limit) as server:
        yield server


async def test_a_token_issued_under_a_longer_maximum_stays_revoked(tmp_path: Path) -> None:
    """Its revocation ends no earlier than the token, whatever the maximum is today."""
    store, clock = Lasting(), MovingClock()
    async with serving(tmp_path, store, 48) as server:
        await server.account("robot")
        token = await server.token("robot", expirationSeconds=2 * DAY)
    async with serving(tmp_path, store, 1) as server:
        server.server.clock.now = clock.now  # type: ignore[method-assign]  # moved below
        made = await revoked(server, "all", account=ROBOT)
        clock.ahead = timedelta(hours=47)
        early = await server.call("DELETE", f"{REVOCATIONS}/all")
        still = await known(server, token=token)
        clock.ahead = timedelta(hours=49)
        late = await server.call("DELETE", f"{REVOCATIONS}/all")

        assert moment(made["status"]["expires"]) >= datetime.now(UTC) + timedelta(hours=47)
        assert (early.status, still, late.status) == (403, 401, 200)
        assert await known(server, token=token) == 401


@pytest.mark.parametrize(
    "change",
    [
        {"immutable": True},
        {"data": {"longestSeconds": "1", "x": "x" * ((1 << 20) - 3), "since": None}},
    ],
)
async def test_nobody_stops_the_issuing_of_tokens_by_the_record_of_lifetimes(
    server: Api, change: dict[str, Any]
) -> None:
    """The ConfigMap cannot be changed any more, or is full: no end is known then."""
    await server.account("robot")
    headers = {"content-type": "application/merge-patch+json"}
    patched = await server.call("PATCH", LIFETIMES, change, headers=headers)

    token = await server.token("robot", expirationSeconds=2 * DAY)

    assert patched.status == 200, patched.text
    assert await known(server, token=token) == 201
    made = await revoked(server, "all", account=ROBOT)
    assert "expires" not in made["status"]
    assert await known(server, token=token) == 401


async def test_revocations_of_tokens_have_an_end_without_a_maximum(server: Api) -> None:
    """By the longest lifetime that any token was issued with, or by the token itself."""
    await server.account("robot")
    await server.token("robot", expirationSeconds=3600)
    account = await revoked(server, "account", account=ROBOT)
    token = await revoked(server, "token", token={"jti": "a", **ROBOT})
    end = "2126-11-15T10:00:00Z"
    claimed = await revoked(server, "claimed", token={"jti": "b", **ROBOT, "expires": end})

    until = moment(account["spec"]["account"]["issuedBefore"])
    assert moment(account["status"]["expires"]) == until + timedelta(hours=1)
    assert moment(token["status"]["expires"]) <= datetime.now(UTC) + timedelta(hours=1)
    assert claimed["status"]["expires"] == end


async def test_the_revocation_of_a_token_stays_for_the_leeway_of_its_expiry(
    server: Api, clock: MovingClock
) -> None:
    """A token is accepted for a minute after its expiry, by servers whose clocks differ."""
    await server.account("robot")
    stolen, other = [await server.token("robot", expirationSeconds=600) for _ in "ab"]
    end = timestamp(clock.now() + timedelta(seconds=600))
    await revoked(server, "lost", token={"jti": jti_of(stolen), **ROBOT, "expires": end})

    clock.ahead += timedelta(seconds=630)
    early = await server.call("DELETE", f"{REVOCATIONS}/lost")
    accepted = await known(server, token=other), await known(server, token=stolen)
    clock.ahead += timedelta(seconds=40)
    late = await server.call("DELETE", f"{REVOCATIONS}/lost")

    assert accepted == (201, 401)
    assert (early.status, late.status) == (403, 200)
    assert await known(server, token=stolen) == 401


async def test_the_longest_lifetime_never_becomes_shorter(server: Api) -> None:
    """It is stored before the token is returned, rounded up, and kept across shorter ones."""
    await server.account("robot")
    stored = []
    for seconds in (3600, 5 * DAY, 600):
        await server.token("robot", expirationSeconds=seconds)
        stored.append((await server.call("GET", LIFETIMES)).json["data"]["longestSeconds"])

    assert stored == ["3600", str(rounded(5 * DAY)), str(rounded(5 * DAY))]


@pytest.mark.parametrize("written", [None, {}, {"longestSeconds": "x", "since": "y"}])
async def test_an_account_that_is_older_than_the_record_has_no_known_end(
    server: Api, written: dict[str, str] | None
) -> None:
    """Nobody noted what was issued before an upgrade, or before somebody removed the record."""
    await server.account("robot")
    found = (await server.call("GET", LIFETIMES)).json
    if written is None:
        await server.call("DELETE", LIFETIMES)
    else:
        await server.call("PUT", LIFETIMES, {**found, "data": written})
    await server.token("robot")

    made = await revoked(server, "all", account=ROBOT)
    any_token = await revoked(server, "any", token={"jti": "x"})

    assert "expires" not in made["status"]
    assert "expires" not in any_token["status"]


async def test_an_account_with_a_token_in_a_secret_has_no_known_end(server: Api) -> None:
    """Such a token never ends by itself; another account's has no part in it."""
    await server.account("robot")
    await server.account("other")
    secret = {
        "metadata": {"name": "s", "annotations": {ORCH.account_name_annotation: "robot"}},
        "type": ORCH.token_secret_type,
    }
    await server.make("/api/v1/namespaces/default/secrets", secret)

    mine = await revoked(server, "mine", account=ROBOT)
    others = await revoked(server, "others", account={**ROBOT, "name": "other"})

    assert "expires" not in mine["status"]
    assert "expires" in others["status"]


async def test_a_signers_revocation_ends_with_its_last_certificate(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever was issued first, and not with the certificates of others."""
    ends = []
    for name, hours in (("first", 1), ("last", 3), ("second", 2)):
        lifetime = timedelta(hours=hours)
        with monkeypatch.context() as patched:
            patched.setattr(
                test_revocations,
                "issued",
                lambda authority, user, lifetime=lifetime: issued(
                    authority, user, lifetime=lifetime
                ),
            )
            serial, _ = await on_record(server, name, name)
        record = (await server.call("GET", f"{ISSUED}/{serial}")).json
        ends.append(record["spec"]["notAfter"])

    made = await revoked(server, "all", authority={"signerName": ORCH.client_signer})

    assert made["status"]["expires"] == max(ends) == ends[1]


async def test_a_signers_revocation_stays_although_the_records_are_gone(server: Api) -> None:
    """A backup may not know them; what it knew when it was made is in the revocation."""
    serial, _ = await on_record(server, "jane")
    made = await revoked(server, "all", authority={"signerName": ORCH.client_signer})
    key = f"identity/issuedcertificates/{serial}"
    [record] = (await server.server.store.read(Span.key(key))).records
    await server.server.store.commit([Change(key, None, record.revision)])

    answer = await server.call("DELETE", f"{REVOCATIONS}/all")

    assert answer.status == 403, answer.text
    assert f"it stays until {made['status']['expires']}" in answer.json["message"]


async def test_the_end_of_an_account_is_counted_from_the_moment_that_is_named(server: Api) -> None:
    """Tokens that were issued later are not revoked, so nobody waits for them to end."""
    await server.account("robot")
    early = (datetime.now(UTC) - timedelta(hours=2)).replace(microsecond=0)

    made = await revoked(server, "old", account={**ROBOT, "issuedBefore": early.isoformat()})

    assert moment(made["status"]["expires"]) == early + timedelta(hours=1)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("signerName", ORCH.node_client_signer),
        ("sha256", "0" * 64),
        ("requestName", "other"),
        ("serialNumber", "7"),
    ],
)
async def test_a_certificate_that_is_named_in_two_ways_must_be_one(
    server: Api, field: str, wrong: str
) -> None:
    """Otherwise somebody revokes another one than they mean, or by a right on another signer."""
    serial, peer = await on_record(server, "jane")
    record = (await server.call("GET", f"{ISSUED}/{serial}")).json["spec"]
    named: dict[str, Any] = {
        "sha256": record["sha256"],
        "serialNumber": serial,
        "signerName": ORCH.client_signer,
        "requestName": "asked",
    }

    answer = await revoke(server, "wrong", {"certificate": {**named, field: wrong}})

    assert answer.status == 422, answer.text
    assert await known(server, peer=peer) == 201


async def test_a_fingerprint_stays_revoked_when_another_authority_is_trusted(
    server: Api, clock: MovingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of an authority that ends later than all that were known at the revocation."""
    jane = issued(cluster_authority(server.server.files.path), "jane")
    made = await revoked(
        server, "unseen", certificate={"sha256": test_revocations.fingerprint(jane)}
    )
    end = moment(made["status"]["expires"])
    pools = server.server.context.port(ClientPools)

    class Later:
        end = moment(made["status"]["expires"]) + timedelta(days=1)

    clock.ahead = end - datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(pools, "proxies", lambda: Later)
    early = await server.call("DELETE", f"{REVOCATIONS}/unseen")
    clock.ahead += timedelta(days=1)
    late = await server.call("DELETE", f"{REVOCATIONS}/unseen")

    assert (early.status, late.status) == (403, 200)
