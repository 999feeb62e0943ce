"""The attack: anything that a caller may send, chosen so that one turn of the loop takes long.

Each input is sent to a server while every callback of the event loop is measured, in processor time
of its thread: neighbours on a busy machine do not count, and a collection of garbage of the tests
neither. The best of a few attempts counts, because caches of the processor are shared. The limit is
that at which a server reports a blocked loop.
"""

import asyncio
import base64
import gc
import json
import time
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from orchid.kernel.server.loop_watchdog import TOO_LATE
from orchid.kernel.server.negotiate import PROTOBUF, YAML
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REVIEWS, terms
from tests.api.world import ALICE, Answer, Api
from tests.data import hostile
from tests.security.test_certificates import BUNDLES, REQUESTS
from tests.security.test_intake import CONFIG_MAPS, REFUSED, WORKED_ON, method_of
from tests.unit.kernel.credentials.samples import as_pem, extension, name, raw_request, utf8

ATTEMPTS = 5
PIECES = 8  # of the corpus of requests, certificates and bundles
POLICY_COUNT = 20
FAILED = 500

Call = Callable[[], Any]


class Turns:
    """The longest callback of the event loop, in seconds of processor time."""

    longest = 0.0
    by = ""

    @contextmanager
    def measured(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        run = events.Handle._run

        def timed(handle: Any) -> None:
            begin = time.thread_time()
            callback = handle._callback
            run(handle)
            seconds = time.thread_time() - begin
            if seconds > self.longest:
                self.longest, self.by = seconds, repr(callback)

        with monkeypatch.context() as patch:
            patch.setattr(events.Handle, "_run", timed)
            yield


@pytest.fixture
def without_collections() -> Iterator[None]:
    """The server keeps collections short itself (process_memory.py); a test process is large."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
async def measured(server: Api, without_collections: None) -> Api:
    return server


@pytest.fixture
async def storing(measured: Api) -> Api:
    """With an account, and an object of many values."""
    await measured.account("robot")
    data = {f"k{i}": "v" * 20 for i in range(5000)}
    await measured.make(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": data})
    return measured


@pytest.fixture
async def judging(measured: Api) -> Api:
    """With many policies."""
    for number in range(POLICY_COUNT):
        await measured.make(POLICIES, body(f"p{number}"))
    return measured


@pytest.fixture
async def listing(measured: Api) -> Api:
    """With a list of many bytes."""
    for number in range(60):
        await measured.make(
            CONFIG_MAPS, {"metadata": {"name": f"large-{number}"}, "data": {"x": "y" * 100_000}}
        )
    return measured


async def answered(call: Call, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """The answer to a call, of which no turn is long."""
    best = Turns()
    best.longest = float("inf")
    for _ in range(ATTEMPTS):
        turns = Turns()
        with turns.measured(monkeypatch):
            answer: Answer = await asyncio.create_task(call())
        best = min(best, turns, key=lambda each: each.longest)
        if best.longest <= TOO_LATE:
            break
    assert best.longest <= TOO_LATE, best.by
    assert answer.status < FAILED
    return answer


async def test_a_long_turn_is_noticed(
    without_collections: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same way as those of a server."""

    async def busy() -> Answer:
        end = time.thread_time() + 1.2 * TOO_LATE
        while time.thread_time() < end:
            pass
        return Answer(200, {}, b"")

    with pytest.raises(AssertionError, match="Task"):
        await answered(busy, monkeypatch)


@pytest.mark.parametrize("what", [*REFUSED, *WORKED_ON])
async def test_a_body(storing: Api, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON, YAML, protobuf and patches: too much, and just within the limits."""
    target, media, make, *_ = REFUSED.get(what) or WORKED_ON[what]
    data = make()
    dry = f"{target}{'&' if '?' in target else '?'}dryRun=All"
    method = method_of(target, media, what)

    await answered(
        partial(storing.call, method, dry, data, headers={"content-type": media}), monkeypatch
    )


def sent(sample: hostile.Sample) -> list[tuple[str, Any]]:
    """The objects in which a sample may arrive."""
    encoded = base64.b64encode(sample.data).decode()
    if sample.kind == hostile.REQUEST:
        spec = {**terms(), "request": encoded}
        return [(REQUESTS, {"metadata": {"name": "x"}, "spec": spec}), (REVIEWS, {"spec": spec})]
    bundle = {"trustBundle": sample.data.decode("latin-1")}
    return [(BUNDLES, {"metadata": {"name": "x"}, "spec": bundle})]


@pytest.mark.parametrize("piece", range(PIECES))
async def test_what_shall_be_signed_or_trusted(
    judging: Api, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hostile corpus: as an object, and as a question to all policies."""
    for sample in list(hostile.corpus())[piece::PIECES]:
        for target, document in sent(sample):
            data = json.dumps(document).encode()
            dry = f"{target}?dryRun=All" if target != REVIEWS else target
            await answered(
                partial(
                    judging.call, "POST", dry, data, headers={"content-type": "application/json"}
                ),
                monkeypatch,
            )


def many_names(count: int) -> bytes:
    subject = name(*((utf8("2.5.4.10", f"group-{number}"),) for number in range(count)))
    return raw_request(subject)


REQUESTED = {
    "extensions": lambda: raw_request(
        name(), *(extension(f"1.2.{number}", b"") for number in range(6000))
    ),
    "as many extensions as are allowed": lambda: raw_request(
        name(), *(extension(f"1.2.{number}", b"") for number in range(60))
    ),
    "attributes": lambda: raw_request(
        name(), attributes=b"".join(extension("1.2.3", b"") for _ in range(5000))
    ),
    "groups": lambda: many_names(1000),
    "too many groups": lambda: many_names(3000),
}


@pytest.mark.parametrize("what", REQUESTED)
async def test_a_request_and_twenty_policies(
    judging: Api, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Created, tried, and as a question."""
    spec = {**terms(), "request": base64.b64encode(as_pem(REQUESTED[what]())).decode()}
    new = {"metadata": {"name": "x"}, "spec": spec}

    for target, document in (
        (f"{REQUESTS}?dryRun=All", new),
        (REVIEWS, {"spec": spec}),
    ):
        await answered(
            partial(judging.call, "POST", target, document),
            monkeypatch,
        )


HEADS: dict[str, tuple[str, dict[str, str]]] = {
    "tags": ("/openapi/v2", {"if-none-match": '"",' * 40_000}),
    "a date": ("/openapi/v2", {"if-modified-since": "Sun, 15 Nov " + "9" * 100_000}),
    "ranges": ("/openapi/v2", {"range": "bytes=" + "0-1," * 30_000}),
    "media types": (CONFIG_MAPS, {"accept": "application/json;as=Table," * 4_000}),
    "cookies": ("/livez", {"cookie": ";" * 125_000}),
    "forwarded": ("/livez", {"x-forwarded-for": "1.2.3.4," * 15_000}),
    "a token": (CONFIG_MAPS, {"authorization": "Bearer " + "a." * 60_000}),
    "dots": (CONFIG_MAPS, {"authorization": "Bearer " + "." * 120_000}),
    "labels": (f"{CONFIG_MAPS}?labelSelector=" + "a," * 7_000, {}),
    "a set of labels": (f"{CONFIG_MAPS}?labelSelector=a+in+(" + "a," * 7_000 + "a)", {}),
    "fields": (f"{CONFIG_MAPS}?fieldSelector=" + "a%3Db," * 6_000, {}),
    "parameters": (f"{CONFIG_MAPS}?" + "a=b&" * 15_000, {}),
    "escapes": ("/" + "%2f" * 30_000, {}),
    "segments": ("/api" + "/a" * 50_000, {}),
    "a place": (f"{CONFIG_MAPS}?limit=1&continue=" + "A" * 100_000, {}),
    "trust": ("/trust/" + "a" * 100_000 + ".pem?wait=" + "1h" * 1000, {}),
    "a tile": ("/ledger/tile/" + "x001/" * 20_000, {}),
    "renewal": ("/renewal-info/" + "A" * 50_000 + "." + "A" * 50_000, {}),
}


@pytest.mark.parametrize("what", HEADS)
async def test_a_head(measured: Api, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers, paths and parameters, of anybody and of a user."""
    target, headers = HEADS[what]

    for token in (None, ALICE):
        given = None if "authorization" in headers else token
        await answered(
            partial(measured.call, "GET", target, token=given, headers=headers),
            monkeypatch,
        )


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/json;as=Table;v=v1;g=meta.orch.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.orch.io",
        PROTOBUF,
        YAML,
    ],
)
async def test_a_list_of_many_bytes(
    listing: Api, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and as a page."""
    for query in ("", "?limit=50", "?labelSelector=!a"):
        answer = await answered(
            partial(
                listing.call,
                "GET",
                CONFIG_MAPS + query,
                headers={"accept": f"{accept},application/json"},
            ),
            monkeypatch,
        )
        assert answer.status == 200
