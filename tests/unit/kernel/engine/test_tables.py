"""Tables: cells from columns, and as much of the object behind a row as was asked for."""

import json
from typing import Any

import pytest

from orchid.kernel.engine import tables
from orchid.kernel.wire.errors import BadRequest
from tests.unit.kernel.engine.world import Engine


def shown(world: Engine, entries: list[Any], include: str = "", **more: Any) -> Any:
    now = world.clock.now()
    made = tables.table(
        entries[0].kind, entries, b"{}", api_version="meta/v1", include=include, now=now, **more
    )
    return json.loads(made)


async def test_rows_have_a_cell_for_each_column(world: Engine) -> None:
    """Name first; the age is counted from creation to now."""
    entry = await world.create({"metadata": {"name": "a"}}, world.accounts)
    world.clock.advance(3 * 3600)
    made = shown(world, [entry, entry])

    assert made["kind"] == "Table"
    assert made["columnDefinitions"] is None
    assert [row["cells"] for row in made["rows"]] == [["a", "3h"]] * 2


async def test_definitions_say_what_a_column_is(world: Engine) -> None:
    """Names, types and formats, as the kind declares them."""
    columns = json.loads(tables.column_definitions(world.accounts))

    assert [set(column) for column in columns] == [
        {"name", "type", "format", "description", "priority"}
    ] * 2
    assert all(column["description"] for column in columns)


@pytest.mark.parametrize(
    ("include", "behind"),
    [("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "ConfigMap")],
)
async def test_the_object_behind_a_row(world: Engine, include: str, behind: str) -> None:
    """Its metadata, or all of it; the metadata is that of the object to the last byte."""
    entry = await world.make("a", annotations={"x": '"metadata":{}'})
    (row,) = shown(world, [entry], include)["rows"]

    assert row["object"]["kind"] == behind
    assert row["object"]["metadata"] == json.loads(entry.data)["metadata"]


async def test_nothing_behind_a_row(world: Engine) -> None:
    """includeObject=None leaves a null."""
    (row,) = shown(world, [await world.make("a")], "None")["rows"]

    assert row["object"] is None


def test_what_is_no_choice_is_refused() -> None:
    """Only four words are known."""
    with pytest.raises(BadRequest, match="must be 'Metadata', 'Object', 'None', or empty"):
        tables.require_known_include("All")
