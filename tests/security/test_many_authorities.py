"""The attack: to make many authorities, so that the work for each signature and timer grows.

Calls are counted, not seconds: a count is the same on every machine.
"""

import cProfile
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.client.client import ListSelection
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.struct import replace
from tests.api.test_call_budgets import ours
from tests.unit.features.authorities.test_keep_authorities import (
    REQUEST,
    SIGNER,
    bring_authority,
    create,
    from_secret,
    keeper,
    looked_at,
)
from tests.unit.features.beside import Beside, beside

MANY, ATTEMPTS = 400, 5
SLACK = 40  # calls that run beside by chance


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


async def add_many(world: Beside) -> None:
    """Other authorities with other signers, past admission."""
    kind = world.server.catalog.of(CertificateAuthority)
    found = (await world.admin.page(ListSelection(CertificateAuthority))).items
    (first,) = (one for one in found if not one.is_platform)
    for number in range(MANY):
        spec = replace(first.spec, signer_name=f"example.com/s{number}")
        made = replace(first, spec=spec).with_meta(
            name=f"s{number}", uid=f"uid-{number}", resource_version=""
        )
        await world.server.store.commit([Change(kind.key("", made.name), encode(made), ABSENT)])
    await world.server.feed.fresh()


async def calls(work: Callable[[], Awaitable[object]]) -> int:
    """The fewest calls of our functions, of a few attempts."""
    found = []
    for _ in range(ATTEMPTS):
        profile = cProfile.Profile(builtins=False)
        with profile:
            await work()
        found.append(ours(profile))
    return min(found)


async def test_signing_costs_the_same_with_many_authorities(world: Beside) -> None:
    """Whether the writer may sign, and whose signer it is, is looked up."""
    await create(world)
    for number in range(2 * ATTEMPTS):
        await world.request(f"r{number}", REQUEST, signer=SIGNER, usages=(), approved=True)
    signing, numbers = world.server.clients("csrsigning"), itertools.count()

    async def write() -> None:
        waiting = await signing.get(CertificateSigningRequest, f"r{next(numbers)}")
        await signing.update_status(waiting.with_condition("Failed", "ByTest", "no"))

    alone = await calls(write)
    await add_many(world)

    assert await calls(write) <= alone + SLACK


async def test_checking_an_authority_costs_the_same_with_many_others(world: Beside) -> None:
    """On the timer of each, neither authorities nor bundles are listed."""
    await create(world)
    await looked_at(world)

    async def cost() -> int:
        async with keeper(world) as controller:
            found = await world.admin.get(CertificateAuthority, "web")
            return await calls(lambda: controller.reconcile(found))

    alone = await cost()
    await add_many(world)

    assert await cost() <= alone + SLACK


async def test_timers_do_not_add_up(world: Beside) -> None:
    """Only a key in a Secret that is not watched is read on a timer, and the more the rarer."""
    await bring_authority(world, "own", timedelta(days=30))
    await from_secret(world)
    async with keeper(world) as controller:
        few = await controller.reconcile(await world.admin.get(CertificateAuthority, "web"))
    await add_many(world)
    async with keeper(world) as controller:
        many = await controller.reconcile(await world.admin.get(CertificateAuthority, "web"))

    assert (few, many) == (30.0, (MANY + 2) / 10)
