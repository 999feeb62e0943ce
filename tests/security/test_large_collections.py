"""Questions about thousands of objects: the event loop turns while they are answered.

One list, selected from 20,000 objects by 2,000 conditions, held the loop for 16 s of processor
time; by one condition, as a whole, or as a deletion that is only tried, for some tenths of a
second. A watch that begins with 20,000 objects wrote them all at once: it held the loop, and the
client was cut off because it could not read as fast. The tests count turns of the loop, not time.
"""

import asyncio
import threading
from contextlib import AsyncExitStack
from itertools import pairwise, product
from typing import Any

import pytest

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.engine.verbs import listing
from orchid.kernel.http.listener import ConnectionLimits
from orchid.kernel.server import respond
from orchid.kernel.server.negotiate import PROTOBUF
from orchid.kernel.server.watch_stream import PIECE_EVENTS
from orchid.kernel.wire.selectors.selection import MOST_CONDITIONS
from tests.api.world import ADMIN, Answer, Api
from tests.security.threads import threads_of
from tests.unit.kernel.http.listening import serving, until

AT_ONCE = 500  # a smaller limit, so that a test needs no thousands
MANY = 2 * AT_ONCE + 1
PLACE = "/api/v1/namespaces/many/configmaps"

QUESTIONS = {
    "all": ("GET", PLACE),
    "by a label": ("GET", f"{PLACE}?labelSelector=odd%3Dyes"),
    "the first of a rare label": ("GET", f"{PLACE}?labelSelector=rare&limit=1"),
    "by a field, everywhere": ("GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Dx"),
    "a deletion that is tried": ("DELETE", f"{PLACE}?dryRun=All"),
}


@pytest.fixture
async def full(server: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A server with many objects."""
    monkeypatch.setattr(listing, "MOST_AT_ONCE", AT_ONCE)
    for start in range(0, MANY, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, MANY))
        made = await asyncio.gather(*(server.call("POST", PLACE, described(n)) for n in numbers))
        assert {answer.status for answer in made} == {201}
    return server


def described(number: int) -> dict[str, object]:
    labels = {"odd": "yes" if number % 2 else "no"}
    return {"metadata": {"name": f"o{number}", "labels": labels}, "data": {"x": "y" * 100}}


async def answered(
    server: Api, method: str, target: str, body: object = None
) -> tuple[Answer, int]:
    """An answer, and how often the event loop has turned meanwhile."""
    asking = asyncio.ensure_future(server.call(method, target, body))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    return await asking, turns


async def test_the_loop_turns_while_thousands_are_looked_at(full: Api) -> None:
    """Whatever is asked about them; what is answered at once takes a single turn."""
    _, least = await answered(full, "GET", f"{PLACE}/o1")

    for what, (method, target) in QUESTIONS.items():
        answer, turns = await answered(full, method, target)

        assert answer.status == 200, what
        assert turns > least, what


class Counted(dict[str, Any]):
    """Entries of a cache that count how often one is looked up."""

    looked_up = 0

    def __getitem__(self, key: str) -> Any:
        self.looked_up += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("what", ["", f"?limit={MANY}", "?labelSelector=odd%3Dyes", "?watch=1"])
async def test_thousands_are_looked_up_in_many_turns(full: Api, what: str) -> None:
    """Among a million, to find them all held the loop for a third of a second."""
    cache = full.server.feed.of(ConfigMap)
    cache.entries = counted = Counted(cache.entries)
    asking = asyncio.ensure_future(full.call("GET", PLACE + what))
    counts = [0]
    while not asking.done():
        await asyncio.sleep(0)
        counts.append(counted.looked_up)

    assert (await asking).status == 200
    assert counts[-1] >= MANY
    assert max(now - before for before, now in pairwise(counts)) <= AT_ONCE + 1


async def test_a_list_that_takes_many_turns_is_of_one_moment(full: Api) -> None:
    """Deletions, creations and changes during the list do not show in it."""
    last = sorted(f"o{number}" for number in range(MANY))[-1]
    before = await full.call("GET", f"{PLACE}/{last}")
    asking = asyncio.ensure_future(full.call("GET", PLACE))
    await asyncio.sleep(0)
    deleted = await full.call("DELETE", f"{PLACE}/{last}")
    made = await full.call("POST", PLACE, {"metadata": {"name": "z"}})
    was_over = asking.done()

    listed = (await asking).json

    assert (deleted.status, made.status) == (200, 201)
    assert not was_over
    assert [item["metadata"]["name"] for item in listed["items"]][-1] == last
    assert len(listed["items"]) == MANY
    assert listed["items"][-1]["metadata"] == before.json["metadata"]
    assert int(listed["metadata"]["resourceVersion"]) < int(
        made.json["metadata"]["resourceVersion"]
    )


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
@pytest.mark.parametrize("watch", ["", "watch=1&"])
async def test_a_selector_has_a_limit(server: Api, verb: str, watch: str) -> None:
    """Each condition costs time at each object, so that there are only so many."""
    for selector in "labelSelector=!a%d", "fieldSelector=metadata.name!%%3Da%d":
        name, _, condition = selector.partition("=")
        conditions = ",".join(condition % number for number in range(MOST_CONDITIONS + 1))

        answer = await server.call(verb, f"{PLACE}?{watch}{name}={conditions}")

        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert f"at most {MOST_CONDITIONS} conditions" in answer.json["message"]


FORMS = {
    "objects": "",
    "metadata": "application/json;as=PartialObjectMetadata;g=meta.orch.io;v=v1",
    "rows of a table": "application/json;as=Table;g=meta.orch.io;v=v1",
    "protobuf": PROTOBUF,
}
FROM = {"what is there": "", "the beginning": "&resourceVersion=1"}


async def test_a_watcher_gets_hundreds_of_events_in_pieces(server: Api) -> None:
    """The initial events of a watch are too many for one turn of the loop, in every form."""
    names = {f"o{number}" for number in range(5 * PIECE_EVENTS)}
    await asyncio.gather(*(server.call("POST", PLACE, {"metadata": {"name": n}}) for n in names))

    for (form, accept), (start, asked) in product(FORMS.items(), FROM.items()):
        async with server.watch(f"{PLACE}?watch=1{asked}", accept=accept) as stream:
            sent = [0]
            while sent[-1] < len(names):
                sent.append(stream.received.count(b"ADDED"))
                await asyncio.sleep(0)

        assert max(now - before for before, now in pairwise(sent)) <= PIECE_EVENTS, (form, start)


async def test_changes_while_a_watch_begins_are_sent_once_and_in_order(server: Api) -> None:
    """The collection as it was, then all that has happened since, then what happens."""
    names = [f"o{number:03}" for number in range(3 * PIECE_EVENTS)]
    for name in names:
        await server.make(PLACE, {"metadata": {"name": name}})
    target = f"{PLACE}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    async with server.watch(f"{target}&allowWatchBookmarks=true") as stream:
        await server.call("DELETE", f"{PLACE}/{names[-1]}")
        await server.make(PLACE, {"metadata": {"name": "a"}})
        events = await stream.take(len(names) + 3)
        await server.make(PLACE, {"metadata": {"name": "b"}})
        events.append(await stream.next())

    received = [(event["type"], event["object"]["metadata"].get("name")) for event in events]
    assert received == [
        *(("ADDED", name) for name in names),
        ("BOOKMARK", None),
        ("DELETED", names[-1]),
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]


async def test_a_slow_watcher_gets_a_large_collection(server: Api) -> None:
    """Far more than it may leave unread once it follows: it is not cut off meanwhile."""
    large = {"data": {"x": "y" * 900_000}}
    for number in range(12):
        await server.make(PLACE, {"metadata": {"name": f"o{number}"}, **large})
    async with serving(server.server.chain) as running:
        client = await running.connect()
        client.stop_reading()
        client.get(f"{PLACE}?watch=1&timeoutSeconds=300", f"Authorization: Bearer {ADMIN}")
        await until(lambda: any(one.blocked for one in running.listener._service.connections))
        client.go_on_reading()
        await client.head()
        read = b""
        while read.count(b"ADDED") < 12:
            read += await client.reader.read(1 << 20)

        assert running.listener.cut_off == 0


async def test_slow_readers_of_a_long_list_do_not_fill_the_memory(server: Api) -> None:
    """Each costs a list, and together they may leave so much unread; then the oldest has to go."""
    for number in range(8):
        await server.make(PLACE, {"metadata": {"name": f"o{number}"}, "data": {"x": "y" * 900_000}})
    limits = ConnectionLimits(max_unsent_answers=20_000_000)
    async with serving(server.server.chain, limits=limits) as running:
        service = running.listener._service
        for _ in range(10):
            client = await running.connect()
            client.stop_reading()
            client.get(PLACE, f"Authorization: Bearer {ADMIN}")
        await until(lambda: running.listener.cut_off == 8)

        buffered = sum(one._transport.get_write_buffer_size() for one in service.connections)

        assert service.unsent.total <= limits.max_unsent_answers
        assert buffered < 1_000_000


async def test_the_loop_turns_while_watchers_get_a_large_object(server: Api) -> None:
    """A megabyte to each of forty takes a while, so that each turn serves only a few."""
    async with AsyncExitStack() as watches:
        streams = [
            await watches.enter_async_context(server.watch(f"{PLACE}?watch=1")) for _ in range(40)
        ]
        large = {"metadata": {"name": "large"}, "data": {"x": "y" * 900_000}}
        writing = asyncio.ensure_future(server.call("POST", PLACE, large))
        served = [0]
        while served[-1] < len(streams):
            await asyncio.sleep(0)
            served.append(sum(bool(stream.received) for stream in streams))

    assert (await writing).status == 201
    assert max(now - before for before, now in pairwise(served)) < 5


async def test_a_list_of_many_bytes_is_joined_beside_the_loop(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some hundred objects of 80 kB are as much as many thousands of usual ones."""
    threads = threads_of(monkeypatch, respond, "_joined_in_pieces")
    monkeypatch.setattr(listing, "LONG_BYTES", 100_000)
    for number in range(5):
        await server.make(PLACE, {"metadata": {"name": f"o{number}"}, "data": {"x": "y" * 50_000}})

    short = await server.call("GET", f"{PLACE}?limit=1")
    before = len(threads)
    answers = [await server.call("GET", PLACE + query) for query in ("", "?limit=4", "?limit=5")]

    assert before == 0
    assert [len(answer.json["items"]) for answer in (short, *answers)] == [1, 5, 4, 5]
    assert len(threads) == len(answers)
    assert threading.main_thread() not in threads
    assert answers[0].json["items"][0]["data"] == {"x": "y" * 50_000}


async def test_a_joined_list_that_is_cached_is_sent_at_once(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As most lists are; it is joined again after a change."""
    await server.make(PLACE, {"metadata": {"name": "a"}, "data": {"x": "y" * 1000}})
    await server.call("GET", PLACE)
    monkeypatch.setattr(listing, "LONG_BYTES", 100)
    threads = threads_of(monkeypatch, respond, "_joined_in_pieces")

    await server.call("GET", PLACE)
    before = len(threads)
    await server.make(PLACE, {"metadata": {"name": "b"}})
    changed = await server.call("GET", PLACE)

    assert (before, len(threads)) == (0, 1)
    assert [item["metadata"]["name"] for item in changed.json["items"]] == ["a", "b"]
