"""The attack: to go on as an account whose credentials were revoked, without a token."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchid.kernel.http.messages import Peer
from tests.api.callers import authority, certificate, front_proxy_settings
from tests.api.world import Api, api
from tests.security.certified import cluster_authority, issued
from tests.security.test_revocations import REVOCATIONS, known, on_record, revoke, revoked
from tests.unit.features.beside import MovingClock

ROBOT = {"namespace": "default", "name": "robot"}
USER = "system:serviceaccount:default:robot"
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/robot"
MONTH = timedelta(days=30)


async def test_a_certificate_that_names_a_revoked_account_is_refused(
    server: Api, clock: MovingClock
) -> None:
    """Without a uid it is no certificate of a Pod: issued for a request, or by another program."""
    await server.account("robot")
    _, recorded = await on_record(server, USER, "first")
    unrecorded = issued(cluster_authority(server.server.files.path), USER).peer
    _, other = await on_record(server, f"{USER}-2", "other")
    before = [await known(server, peer=peer) for peer in (recorded, unrecorded, other)]
    await revoked(server, "stolen", account=ROBOT)
    clock.ahead += timedelta(seconds=1)
    _, new = await on_record(server, USER, "second")

    assert before == [201, 201, 201]
    assert await known(server, peer=recorded) == 401
    assert await known(server, peer=unrecorded) == 401
    assert await known(server, peer=other) == 201
    assert await known(server, peer=new) == 201


async def test_an_account_is_revoked_after_its_deletion(server: Api, clock: MovingClock) -> None:
    """Its client certificate outlives it; and so it is refused, also when the account is back."""
    await server.account("robot")
    _, peer = await on_record(server, USER, "first", MONTH)
    await server.call("DELETE", ACCOUNT)
    before = await known(server, peer=peer)
    made = await revoked(server, "stolen", account=ROBOT)
    deleted = await known(server, peer=peer)
    await server.account("robot")

    assert (before, deleted, await known(server, peer=peer)) == (201, 401, 401)
    assert "expires" not in made["status"]


async def test_a_front_proxy_says_a_revoked_account_in_vain(
    server_files: Path, tmp_path: Path
) -> None:
    """Its headers have no time of issue, as for a user."""
    proxies = authority()
    async with api(server_files, **front_proxy_settings(tmp_path, proxies)) as server:
        await server.account("robot")
        proxy, headers = (
            Peer("127.0.0.1:1", certificate(proxies, "front-proxy")),
            {"x-remote-user": USER},
        )
        before = await known(server, peer=proxy, headers=headers)
        await revoked(server, "stolen", account=ROBOT)

        assert (before, await known(server, peer=proxy, headers=headers)) == (201, 401)


async def test_the_revocation_of_an_account_lasts_as_long_as_its_certificates(
    server: Api, clock: MovingClock
) -> None:
    """Its tokens end after an hour, the certificate after a month; also if the account is new."""
    await server.account("robot")
    await server.token("robot", expirationSeconds=600)
    _, peer = await on_record(server, USER, "first", MONTH)
    made = await revoked(server, "stolen", account=ROBOT)
    clock.ahead += timedelta(hours=2)
    await on_record(server, USER, "second", 2 * MONTH)  # not revoked, so it does not count
    early = await server.call("DELETE", f"{REVOCATIONS}/stolen")
    await server.call("DELETE", ACCOUNT)
    await server.account("robot")
    new = await server.call("DELETE", f"{REVOCATIONS}/stolen")
    refused = await known(server, peer=peer)
    clock.ahead += MONTH
    late = await server.call("DELETE", f"{REVOCATIONS}/stolen")

    expires = datetime.fromisoformat(made["status"]["expires"])
    assert expires - datetime.fromisoformat(made["metadata"]["creationTimestamp"]) > MONTH / 2
    assert (early.status, new.status, refused, late.status) == (403, 403, 401, 200)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (USER, 422),  # an account: its revocation takes another right
        ("system:serviceaccount:robot", 201),
        ("system:serviceaccount:", 201),
    ],
)
async def test_a_name_that_only_looks_like_an_account_is_that_of_a_user(
    server: Api, name: str, status: int
) -> None:
    """Otherwise nothing could revoke all credentials with this name."""
    peer = issued(cluster_authority(server.server.files.path), name).peer
    before = await known(server, peer=peer)

    answer = await revoke(server, "stolen", {"user": {"username": name}})

    assert (before, answer.status) == (201, status), answer.text
    assert await known(server, peer=peer) == (401 if status == 201 else 201)
