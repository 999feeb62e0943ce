"""Bodies that came before: what follows from their bytes is kept, for a few of them."""

import json
from typing import Any

import pytest

from orchid.engine.request import Request
from orchid.engine.verbs.known_bodies import LONGEST, MOST_BODIES, KnownBodies
from orchid.wire.errors import BadRequest
from tests.unit.engine.world import Engine

BODY = b'{"metadata":{"name":"a"}}'


@pytest.fixture
def bodies(world: Engine) -> KnownBodies:
    return KnownBodies(world.catalog)


def decode(
    world: Engine, bodies: KnownBodies, body: bytes, kind: Any = None
) -> tuple[Any, Request]:
    request = world.ask("create", kind or world.accounts)
    return bodies.decode(kind or world.accounts, body, request), request


async def test_a_body_is_kept_when_it_comes_again(world: Engine, bodies: KnownBodies) -> None:
    """Twice it is decoded; from then on the same object is given, and said to be known."""
    found = [decode(world, bodies, bytes(bytearray(BODY))) for _ in range(4)]

    first, second, third, fourth = (new for new, _ in found)
    assert first == second == third
    assert first is not second
    assert second is third is fourth
    assert [request.known_body is not None for _, request in found] == [False, False, True, True]


async def test_the_same_bytes_are_another_object_of_another_kind(
    world: Engine, bodies: KnownBodies
) -> None:
    """What a body holds depends on where it was sent."""
    accounts = [decode(world, bodies, b"{}")[0] for _ in range(3)]

    others = [decode(world, bodies, b"{}", world.config_maps)[0] for _ in range(3)]

    assert {new.kind for new in accounts} == {world.accounts.name}
    assert {new.kind for new in others} == {world.config_maps.name}


async def test_few_bodies_are_kept_and_no_long_ones(world: Engine, bodies: KnownBodies) -> None:
    """Whoever may send reviews cannot fill the memory with them."""
    long = json.dumps({"metadata": {"name": "x" * LONGEST}}).encode()
    many = [b'{"metadata":{"name":"%d"}}' % number for number in range(MOST_BODIES + 10)]

    for body in (long, *many):
        for _ in range(3):
            decode(world, bodies, body)

    assert list(bodies._known) == many[-MOST_BODIES:]
    assert len(bodies._noted) <= MOST_BODIES


async def test_bodies_that_come_again_late_are_not_kept(world: Engine, bodies: KnownBodies) -> None:
    """More of them in turn than can be kept would only push each other out."""
    for number in [*range(2 * MOST_BODIES), *range(2 * MOST_BODIES)]:
        decode(world, bodies, b'{"metadata":{"name":"%d"}}' % number)

    assert not bodies._known
    assert len(bodies._noted) <= MOST_BODIES


async def test_what_is_found_in_a_body_is_told_each_time(
    world: Engine, bodies: KnownBodies
) -> None:
    """Warnings and refusals belong to each request that deserves them."""
    warned = [decode(world, bodies, b'{"oops":1}')[1].warnings for _ in range(4)]

    for _ in range(4):
        with pytest.raises(BadRequest):
            decode(world, bodies, b'{"metadata":1}')
    assert warned == [['unknown field "oops"']] * 4
    assert not bodies._known
