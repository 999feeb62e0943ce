"""Lists: pages over one snapshot, versions, selectors, and tokens that cannot be trusted."""

import asyncio
import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.engine.verbs import continue_token, read
from orchid.kernel.engine.verbs.listing import Listed
from orchid.kernel.wire.errors import ApiError, BadRequest, Expired, Invalid, Timeout
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.engine.world import Engine, names


async def pages(world: Engine, limit: int, **options: Any) -> list[Listed[Any]]:
    """Every page, one after the other."""
    found = [await world.list(limit=limit, **options)]
    while found[-1].continue_:
        found.append(await world.list(limit=limit, continue_=found[-1].continue_, **options))
    return found


def token(**parts: Any) -> str:
    body = {"v": "meta.orch.io/v1", "rv": 1, "start": "/a\0", **parts}
    return base64.urlsafe_b64encode(json.dumps(body).encode()).rstrip(b"=").decode()


async def test_pages_show_the_snapshot_of_the_first(world: Engine) -> None:
    """Objects written while a client reads the pages do not show up in them."""
    for name in "bdfh":
        await world.make(name, labels={"x": "1"})
    first = await world.list(limit=2)
    await world.make("a")
    await world.make("e")
    await world.delete("f")
    await world.merge("h", {"metadata": {"labels": {"x": "2"}}})
    second = await world.list(limit=2, continue_=first.continue_)

    assert names(first) + names(second) == list("bdfh")
    assert (second.revision, second.continue_) == (first.revision, "")
    assert second.entries[1].meta.labels == {"x": "1"}
    assert names(await world.list()) == list("abdeh")


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
async def test_pages_together_are_the_whole(world: Engine, limit: int) -> None:
    """Whatever the limit, nothing is left out or there twice, and the counts add up."""
    for name in "abcde":
        await world.make(name)
    found = await pages(world, limit)

    assert [name for page in found for name in names(page)] == list("abcde")
    left = [page.remaining for page in found]
    assert left[-1] is None
    assert left[:-1] == [5 - limit * (i + 1) for i in range(len(found) - 1)]


async def test_a_selector_fills_pages_and_hides_the_count(world: Engine) -> None:
    """A page has `limit` matches while there are any; how many are left is not known."""
    for i in range(6):
        await world.make(f"m{i}", labels={"even": str(i % 2 == 0).lower()})
    found = await pages(world, 2, label_selector="even=true")

    assert [names(page) for page in found][:2] == [["m0", "m2"], ["m4"]]
    assert all(page.remaining is None for page in found)


async def test_one_name_is_looked_up_and_has_no_further_page(world: Engine) -> None:
    """`metadata.name=x` in a namespace leaves one object, and no token behind it."""
    for name in "abc":
        await world.make(name)
    listed = await world.list(limit=1, field_selector="metadata.name=b")

    assert (names(listed), listed.continue_) == (["b"], "")
    assert names(await world.list("", field_selector="metadata.name=b")) == ["b"]
    assert names(await world.list(field_selector="metadata.name=x")) == []


async def test_order_is_that_of_the_keys(world: Engine) -> None:
    """Across namespaces the slash is part of the order: `a-b/x` is before `a/x`."""
    kind = world.config_maps
    for namespace in ("a", "a-b", "b"):
        body = {"metadata": {"name": "x", "namespace": namespace}}
        await world.create(body, kind, namespace=namespace)
    listed = await world.list("")

    assert [entry.meta.namespace for entry in listed.entries] == ["a-b", "a", "b"]


async def test_a_namespace_is_not_the_prefix_of_another(world: Engine) -> None:
    """`ns` does not list what is in `ns2`; one that does not exist is empty."""
    await world.create({"metadata": {"name": "x"}}, namespace="ns2")

    assert names(await world.list("ns")) == []
    assert names(await world.list("ns2")) == ["x"]


async def test_exact_versions_come_from_history(world: Engine) -> None:
    """A version that is asked for exactly is shown as it stood, also when all has changed."""
    first = await world.make("a", labels={"x": "1"})
    second = await world.make("b")
    await world.merge("a", {"metadata": {"labels": {"x": "2"}}})
    await world.delete("b")

    exact = await world.list(resource_version=str(first.revision), resource_version_match="Exact")
    limited = await world.list(resource_version=str(second.revision), limit=1)
    rest = await world.list(continue_=limited.continue_)
    newer = await world.list(resource_version=str(first.revision))

    assert (names(exact), exact.revision) == (["a"], first.revision)
    assert exact.entries[0].meta.labels == {"x": "1"}
    assert names(limited) + names(rest) == ["a", "b"]
    assert rest.revision == second.revision
    assert newer.revision > second.revision


async def test_a_limit_holds_also_behind_a_token_at_any_version(world: Engine) -> None:
    """Version 0 beside a token means the token's version, and pages go on as they began."""
    for name in "abc":
        await world.make(name)
    first = await world.list(limit=1)
    second = await world.list(limit=1, continue_=first.continue_, resource_version="0")

    assert (names(second), second.revision) == (["b"], first.revision)
    assert second.continue_


async def test_a_compacted_version_is_gone(world: Engine) -> None:
    """An exact list is refused; a page continues from the same key, with newer content."""
    for name in "abc":
        await world.make(name)
    first = await world.list(limit=1)
    await world.delete("b")
    newest = await world.store.revision()
    await world.store.compact(newest)
    world.feed.forget_before(newest)

    with pytest.raises(Expired, match="The resourceVersion for the provided list is too old"):
        await world.list(resource_version=str(first.revision), resource_version_match="Exact")
    with pytest.raises(Expired) as refused:
        await world.list(continue_=first.continue_)
    renewed = refused.value.status().metadata.continue_
    assert names(await world.list(continue_=renewed)) == ["c"]


async def test_the_future_is_waited_for_but_not_for_ever(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that does not come is a time-out that says how far we are."""
    monkeypatch.setattr(read, "FUTURE_PATIENCE", 0.001)
    for options in ({}, {"resource_version_match": "Exact"}, {"limit": 1}):
        with pytest.raises(Timeout, match="Too large resource version: 999, current: "):
            await world.list(resource_version="999", **options)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *((text, "invalid syntax") for text in ("x", "-1", "\u0663", "1.0")),
        *((digits, "value out of range") for digits in ("1" * 21, "9" * 6000)),
    ],
)
async def test_a_version_that_is_no_number(world: Engine, text: str, fault: str) -> None:
    """Text, signs and numbers beyond 64 bits are the client's mistake, everywhere."""
    for attempt in (world.list, world.watch):
        with pytest.raises(BadRequest, match=fault):
            await attempt(resource_version=text)
    await world.make("a")
    with pytest.raises(BadRequest, match=fault):
        await world.get("a", resource_version=text)
    with pytest.raises(BadRequest, match=fault):
        await world.put("a", {"metadata": {"name": "a", "resourceVersion": text}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resource_version_match": "Exact"}, "forbidden unless resourceVersion is provided"),
        (
            {"resource_version_match": "Exact", "resource_version": "0"},
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resource_version_match": "Best", "resource_version": "1"},
            'Unsupported value: "Best": supported values: "Exact", "NotOlderThan", ""',
        ),
        ({"send_initial_events": False}, "sendInitialEvents is forbidden for list"),
        (
            {"resource_version_match": "Exact", "resource_version": "1", "continue_": "x"},
            "resourceVersionMatch is forbidden when continue is provided",
        ),
    ],
)
async def test_options_that_contradict_each_other(
    world: Engine, options: dict[str, Any], message: str
) -> None:
    """Each senseless combination is refused by name."""
    with pytest.raises(Invalid) as refused:
        await world.list(**options)

    assert message in str(refused.value)


async def test_continue_and_a_version_exclude_each_other(world: Engine) -> None:
    """A token pins its version itself."""
    with pytest.raises(BadRequest, match="specifying resource version is not allowed"):
        await world.list(continue_=token(), resource_version="5")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (token(v="meta.orch.io/v2"), "server does not recognize this encoded version"),
        (token(rv=0), "incorrect encoded start resourceVersion"),
        (token(start=""), "encoded start key empty"),
        (token(start="../secrets/x"), "continue key is not valid: ../secrets/x"),
        (token(start="/a/../../secrets\0"), "continue key is not valid"),
        ("AAAA", "continue key is not valid"),
        ("!", "continue key is not valid"),
        (base64.urlsafe_b64encode(b"[" * 50_000).decode(), "continue key is not valid"),
    ],
)
async def test_bad_tokens_are_refused(world: Engine, text: str, fault: str) -> None:
    """A foreign continue token is a 400 that names the fault."""
    with pytest.raises(BadRequest) as refused:
        await world.list(continue_=text)

    assert str(refused.value).startswith("invalid continue token: ")
    assert fault in str(refused.value)


STARTS = st.one_of(st.text(max_size=20), st.sampled_from(["/", "a/", "\0", "..", "\U0010ffff"]))


async def check_token(world: Engine, text: str) -> None:
    """Any token is a clean refusal, or stays within the collection it is used on."""
    try:
        listed = await world.list(continue_=text)
    except ApiError as refusal:
        assert refusal.code in (400, 410, 504)  # noqa: PT017 -- both outcomes are right
    else:
        assert set(names(listed)) <= {"b", "c"}
        assert all(entry.meta.namespace == "ns" for entry in listed.entries)


async def test_no_token_leads_out_of_the_collection(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither noise nor a forged start key shows another namespace or another kind."""
    monkeypatch.setattr(read, "FUTURE_PATIENCE", 0.0)
    for namespace in ("nr", "ns", "ns2", "nt"):
        for name in ("b", "c") if namespace == "ns" else ("secret",):
            await world.create({"metadata": {"name": name}}, namespace=namespace)
    samples: list[str] = []

    @given(st.one_of(st.text(), STARTS.map(lambda start: token(start=start))), st.integers())
    def collect(text: str, revision: int) -> None:
        samples.extend((text, token(start=text, rv=revision)))

    collect()
    for text in samples:
        await check_token(world, text)


@given(
    STARTS.filter(lambda text: not {".", ".."} & set(text.strip("\0").split("/"))), st.integers(1)
)
def test_tokens_come_back_as_they_were(key: str, revision: int) -> None:
    """Any key and revision survive the way to the client and back."""
    position = continue_token.decode(continue_token.encode(key, revision, ORCH), ORCH)

    assert position == continue_token.Position(key + "\0", revision)


async def test_many_are_selected_while_others_write(world: Engine) -> None:
    """A long selection runs in a thread, over the objects at its start."""
    for number in range(1200):
        await world.make(f"o{number:04}", labels={"x": str(number % 3)})
    wanted = [f"o{number:04}" for number in range(1200) if number % 3 == 1]
    before = world.feed.revision

    listing = asyncio.ensure_future(world.list(label_selector="x=1"))
    await asyncio.sleep(0)
    assert not listing.done()
    await world.delete("o1198")
    found = await listing

    assert (names(found), found.revision) == (wanted, before)
    paged = await pages(world, 150, label_selector="x=1")
    assert [len(page.entries) for page in paged] == [150, 150, 99]
    assert [name for page in paged for name in names(page)] == wanted[:-1]
    watch = await world.watch(label_selector="x=1")
    assert [entry.meta.name for entry in watch.initial] == wanted[:-1]
