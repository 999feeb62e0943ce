"""The next owner of a name gets nothing of the one before: no key, root, token or approval.

The attack, against every kind that refers to another: Alice has an object, deletes it and leaves
behind what belonged to it; Bob creates one of that name. Or the other way round: Bob is the first.
Relations are by uid, and where it matters by signer and public key (kernel/wire/references.py).
"""

import ast
from collections.abc import AsyncIterator
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import orchid
from tests.api.world import Api
from tests.security.adoption.scenarios import SCENARIOS, Scenario
from tests.security.adoption.table import (
    AFTER_ALREADY_EXISTS,
    BOUND,
    OWNERS,
    REFERENCES,
    references,
)
from tests.security.left_behind import put
from tests.unit.features.beside import Beside, beside

SOURCE = Path(orchid.__file__).parent
GARBAGE = "garbagecollector"
DELETED, ORPHANED, RESTORED, SAME_SECOND = "deleted", "orphaned", "restored", "in the same second"


@pytest.fixture
async def world(server_files: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        monkeypatch.setattr(made.server.clock, "now", made.clock.now)
        yield made


async def removed(world: Beside, scenario: Scenario, way: str) -> None:
    """Delete the owner, with what belongs to it unless the server lets it stay."""
    kind = world.server.catalog.of(scenario.of)
    place = f"namespaces/{scenario.namespace}/" if kind.namespaced else ""
    root = f"apis/{kind.group}" if kind.group else "api"
    where = f"/{root}/{kind.version}/{place}{kind.plural}/{scenario.owner}?gracePeriodSeconds=0"
    if way == ORPHANED:
        answer = await Api(world.server).call("DELETE", f"{where}&propagationPolicy=Orphan")
        assert answer.status in (200, 422), answer.text
        if answer.status == 200:
            await world.until_gone(scenario.of, scenario.owner, scenario.namespace)
            return
    answer = await Api(world.server).call("DELETE", where)
    assert answer.status == 200, answer.text
    await world.until_gone(scenario.of, scenario.owner, scenario.namespace)
    for one in scenario.left:
        await world.until_gone(type(one), one.name, one.namespace)


@pytest.mark.parametrize("way", [DELETED, ORPHANED, RESTORED, SAME_SECOND])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_next_owner_of_a_name_gets_nothing(world: Beside, name: str, way: str) -> None:
    """Whatever became of the owner before: what it had counts for nobody."""
    scenario = SCENARIOS[name](world)
    if way == SAME_SECOND:
        world.clock.stopped = world.clock.now()
    async with world.running(*scenario.controllers, GARBAGE):
        await scenario.first()
        await removed(world, scenario, way)
    if way != SAME_SECOND:
        world.clock.ahead += timedelta(seconds=2)
    await scenario.again()
    world.clock.stopped = None
    if way in (RESTORED, SAME_SECOND):
        for one in scenario.left:
            await put(world, one)

    async with world.running(*scenario.controllers):
        await scenario.check()


def test_every_reference_of_a_kind_is_in_the_table() -> None:
    """A new kind, or a new field that names an object, needs a scenario or a reason."""
    unknown, used = [], set()
    for found in references():
        patterns = [one for one in REFERENCES if fnmatchcase(found, one.replace("[", "[[]"))]
        used.update(patterns[:1])
        if not patterns:
            unknown.append(found)

    assert unknown == []
    assert REFERENCES.keys() - used == set()
    assert SCENARIOS.keys() - {BOUND} <= set(REFERENCES.values())  # BOUND: of tokens


def test_everything_that_has_an_owner_is_in_the_table() -> None:
    """The modules that write references to owners."""
    found = {
        module
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("OwnerReference", "owner_reference", "owner_of")
    }

    assert found - {"kernel/wire/references.py"} == OWNERS.keys()


def test_everything_that_goes_on_after_already_exists_is_in_the_table() -> None:
    """An object of the expected name may be somebody else's: each of them looks."""
    found = {
        module
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "AlreadyExists"
    }

    assert found - {"kernel/wire/errors.py"} == AFTER_ALREADY_EXISTS.keys()


def modules() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text()))
        for path in sorted(SOURCE.rglob("*.py"))
    ]
