"""The attack: wait until a clock is wrong for a while.

A server whose clock is a day ahead deletes for good what is over by then.
"""

from datetime import timedelta
from typing import Any

import pytest

from orchid.features.acme.protocol.nonces import Nonces
from orchid.features.revoking.controllers.clean_revocations import CleanRevocations
from tests.api.world import Api
from tests.security.test_revocations import REVOCATIONS, jti_of, known, on_record, revoked
from tests.unit.features.acme.protocol.test_acme_nonces import KEY, is_good, issued
from tests.unit.features.beside import MovingClock

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@pytest.mark.parametrize("kind", ["account", "user"])
async def test_a_token_of_a_server_that_is_ahead_ends_when_it_is_revoked_again(
    server: Api, clock: MovingClock, kind: str
) -> None:
    """Its time of issue is later than the revocation, by no more than the clocks differ. So
    several-servers.md says to revoke again a minute later.
    """
    await server.account("robot")
    targets: dict[str, dict[str, Any]] = {
        "account": {"account": {"namespace": "default", "name": "robot"}},
        "user": {"user": {"username": "jane"}},
    }
    clock.ahead = timedelta(seconds=50)
    token = await server.token("robot")
    _, peer = await on_record(server, "jane")
    how: dict[str, Any] = {"token": token} if kind == "account" else {"peer": peer}
    clock.ahead = timedelta()

    await revoked(server, "first", **targets[kind])
    first = await known(server, **how)
    clock.ahead = timedelta(minutes=1)
    await revoked(server, "second", **targets[kind])

    assert first == 201
    assert await known(server, **how) == 401


async def test_a_clock_that_was_ahead_makes_no_revoked_token_valid(
    server: Api, clock: MovingClock
) -> None:
    """It has expired by the wrong clock, and is valid by the right one."""
    await server.account("robot")
    token = await server.token("robot")
    robot = {"namespace": "default", "name": "robot"}
    await revoked(server, "stolen", token={"jti": jti_of(token), **robot})
    clock.ahead += DAY

    await CleanRevocations(server.server.clients("revocation-cleaner"), clock).sweep()
    clock.ahead -= DAY

    assert (await server.call("GET", f"{REVOCATIONS}/stolen")).status == 200
    assert await known(server, token=token) == 401


def test_a_clock_that_was_ahead_stops_acme_clients_for_minutes_at_most() -> None:
    """Nonces of the wrong time were used, and dropped from memory. Nonces of before the step that
    were used, and dropped, are refused all the same.
    """
    clock = MovingClock()
    nonces = Nonces(lambda: KEY, clock, most_used=8)
    clock.ahead = timedelta(minutes=2)  # of another server
    before = [issued(nonces) for _ in range(4)]
    clock.ahead = timedelta()
    assert all(is_good(nonces, nonce) for nonce in before)
    clock.ahead = DAY
    for _ in range(12):
        assert is_good(nonces, issued(nonces))

    clock.ahead = timedelta()
    again = [is_good(nonces, nonce) for nonce in before]
    clock.ahead = timedelta(minutes=5) + SECOND
    after = is_good(nonces, issued(nonces))
    again += [is_good(nonces, nonce) for nonce in before]

    assert after
    assert not any(again)
