"""Lists within limits, pages of rows, states of a request, and the used part of a lifetime."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchid.features.console.api import Refused
from orchid.features.console.pages import shared
from tests.unit.features.console.pages.asked import REQUESTS, Server, forbidden, object_of, visit


class Pages:
    """Pages of a list: what each has, and how it was asked for."""

    def __init__(self, *pages: tuple[int, int]) -> None:
        """Of each the number of objects, and its bytes."""
        self._pages, self.queries = list(pages), [dict[str, str]()][:0]

    async def read(self, query: Any) -> tuple[Any, int]:
        self.queries.append(dict(query))
        count, size = self._pages[len(self.queries) - 1]
        after = str(len(self.queries)) if len(self.queries) < len(self._pages) else ""
        return {"items": [{}] * count, "metadata": {"continue": after}}, size


async def test_the_first_page_is_small_and_others_fit() -> None:
    """As many objects as a megabyte has, and no more than 500."""
    pages = Pages((20, 20_000), (500, 20 << 10), (10, 10))

    found, has_more = await shared._within_limits(pages.read, "items")

    assert (len(found), has_more) == (530, False)
    assert pages.queries == [
        {"limit": "20"},
        {"limit": "500", "continue": "1"},
        {"limit": "500", "continue": "2"},
    ]


async def test_large_objects_come_one_by_one() -> None:
    pages = Pages((20, 60 << 20 >> 2), (1, 1 << 20), (1, 1))

    found, has_more = await shared._within_limits(pages.read, "items")

    assert [query["limit"] for query in pages.queries] == ["20", "1"]
    assert (len(found), has_more) == (21, True)


async def test_a_list_ends_at_a_number_of_objects() -> None:
    pages = Pages((20, 20), (1979, 20), (1, 20), (1, 1))

    found, has_more = await shared._within_limits(pages.read, "items")

    assert (len(found), has_more) == (shared.MOST_OBJECTS, True)


async def test_rows_of_a_table_have_their_columns() -> None:
    server = Server()
    row = {"cells": ["a", "b"], "object": {"metadata": {"name": "r"}}}
    columns = [{"name": "Name"}, {"name": "Condition"}]
    server.listed(REQUESTS, row, {}, field="rows", columnDefinitions=columns)

    rows, has_more = await shared.table_rows(visit(server).api, REQUESTS)

    assert rows[0] == {"metadata": {"name": "r"}, "cells": {"Name": "a", "Condition": "b"}}
    assert rows[1] == {"metadata": {}, "cells": {}}
    assert not has_more


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("Approved,Issued", "Issued"),
        ("Approved", "Approved"),
        ("Approved,Failed", "Failed"),
        ("Approved,Denied,Failed", "Denied"),
        ("Pending", "Waiting"),
        ("", "Waiting"),
    ],
)
def test_the_state_of_a_request(words: str, state: str) -> None:
    """By its column, and by its conditions and certificate."""
    assert shared.state_in_cell(words) == state
    types = [{"type": word} for word in words.split(",") if word not in ("Issued", "Pending")]
    status = {"conditions": types, "certificate": "x" if "Issued" in words else ""}
    assert shared.state_of({"status": status}) == state


def test_a_condition_is_true_by_its_status() -> None:
    one = {"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B"}]}}
    true = {"status": {"conditions": [{"type": "B", "status": "True"}]}}

    assert not shared.is_true(one, "A")
    assert not shared.is_true(one, "B")
    assert shared.is_true(true, "B")
    assert not shared.is_true(true, "A")


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ("", 0),
        ("99", 0),
        ("100", 100),
        ("199", 100),
        ("200", 200),
        ("999999", 200),
        ("123456789", 0),
        ("-1", 0),
        ("\u0661\u0660\u0660", 0),
    ],
)
def test_a_page_begins_with_a_hundredth_row(given: str, first: int) -> None:
    rows: list[Any] = [{"row": number} for number in range(250)]

    page = shared.one_page({"from": given}, rows, has_more=True)

    assert page["first"] == first
    assert page["rows"] == rows[first : first + 100]
    assert (page["total"], page["has_more"]) == (250, True)
    assert shared.position({"from": "7"}, 0) == 0


def moment(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


@pytest.mark.parametrize(
    ("begin", "end", "used", "late", "ended"),
    [
        (-1, 9, 10, False, False),
        (-6, 4, 60, False, False),
        (-7, 3, 70, True, False),
        (-10, -1, 100, True, True),
        (1, 2, 0, False, False),
    ],
)
def test_the_used_part_of_a_lifetime(
    begin: float, end: float, used: int, late: bool, ended: bool
) -> None:
    """Two thirds are late."""
    life = shared.life_of(moment(begin), moment(end))

    assert (life["used"], life["late"], life["ended"]) == (used, late, ended)


@pytest.mark.parametrize(("begin", "end"), [(None, 1), (1, None), (2, 1)])
def test_a_lifetime_without_times_is_not_used(begin: Any, end: Any) -> None:
    times = [moment(day) if day is not None else None for day in (begin, end)]

    assert shared.life_of(*times) == {"used": 0, "ends": times[1], "late": False, "ended": False}


async def test_a_part_shows_the_right_that_is_missing() -> None:
    """With the role that has it, for the user of the page; other refusals are raised."""
    server = Server()
    for plural, status in (("credentialrevocations", 403), ("pods", 403), ("broken", 500)):
        server.get(f"/{plural}", forbidden(plural), status)
    server.get("/good", object_of("x"))
    page = visit(server, user={"username": "ann's"})

    parts = await shared.gather(
        page,
        good=page.api.get("/good"),
        revocations=page.api.get("/credentialrevocations"),
        pods=page.api.get("/pods"),
    )

    assert not parts["good"].is_missing
    assert parts["revocations"].is_missing
    assert parts["revocations"].refusal == "no right to credentialrevocations"
    quoted = "'ann'\\''s'"
    assert parts["revocations"].command == f"orchid grant credential-revoker --user {quoted}"
    assert parts["pods"].command == f"orchid grant cluster-admin --user {quoted}"
    for path in ("/broken", "/missing"):
        with pytest.raises(Refused):
            await page.part(page.api.get(path))
    assert await page.found(page.api.get("/missing")) is None
    with pytest.raises(Refused):
        await page.found(page.api.get("/broken"))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("ann", "ann"),
        ("system:node-1_a.b", "system:node-1_a.b"),
        ("a b", "'a b'"),
        ("añb", "'añb'"),
        ("", "''"),
        ("$(x)", "'$(x)'"),
    ],
)
async def test_a_name_is_one_word_of_a_command(name: str, word: str) -> None:
    server = Server()
    server.get("/x", forbidden("secrets"), 403)
    page = visit(server, user={"username": name})

    assert (await page.part(page.api.get("/x"))).command.endswith(f"--user {word}")


def test_links_have_segments_and_a_query() -> None:
    page = visit(Server(), "/requests/a", query={"q": "a b"})

    assert page.link("requests", "a/b", back="", q="x&y") == "/console/requests/a%2Fb?q=x%26y"
    assert page.link("requests") == "/console/requests"
    assert page.link_again == "/console/requests/a?q=a+b"
    assert visit(Server(), "/issued").link_again == "/console/issued"
