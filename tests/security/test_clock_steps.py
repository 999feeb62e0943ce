"""The attack: wait until a clock is wrong for a while.

A server whose clock is a day ahead deletes for good what is over by then.
"""

from datetime import timedelta

from orchid.features.revoking.controllers.clean_revocations import CleanRevocations
from tests.api.world import Api
from tests.security.test_revocations import REVOCATIONS, jti_of, known, revoked
from tests.unit.features.beside import MovingClock

DAY = timedelta(days=1)


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
