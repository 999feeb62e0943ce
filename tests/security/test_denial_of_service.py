"""Limits on every resource that strangers and clients in a loop can use."""

import asyncio
import base64
import json
import random
import string
import threading
from pathlib import Path
from typing import Any

import pytest

from orchid.features.accounts.account_tokens import AccountTokens
from orchid.kernel.http.listener_state import ConnectionLimits
from orchid.kernel.http.messages import Peer
from orchid.kernel.http.reading.reader import RequestReader
from orchid.kernel.server.metrics import page as metrics_page
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.api.world import ADMIN, ALICE, BOB, Api, api
from tests.security.certified import issued, other_authority
from tests.security.threads import threads_of
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.http.listening import until
from tests.unit.kernel.http.readers import CHUNKED, read

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
AGENTS = 10_000


def anything(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_letters + string.digits, k=12))


def size_of(directory: Path) -> int:
    return sum(part.stat().st_size for part in directory.iterdir())


async def test_a_flood_of_unauthenticated_requests_stores_nothing(
    server_files: Path, tmp_path: Path
) -> None:
    """No object, no revision and not a byte of the database (dexidp/dex#1292)."""
    chance = random.Random(1)
    peer = Peer("", issued(other_authority(), "root", "system:masters").der)
    file = tmp_path / "flooded.db"
    async with api(server_files, store=await SQLiteStore.open(file)) as server:
        revision = await server.server.store.revision()
        size = size_of(tmp_path)
        for round_ in range(300):
            word = anything(chance)
            body = {"metadata": {"name": word.lower(), "namespace": word.lower()}}
            target = chance.choice(
                [
                    f"/api/v1/namespaces/{word.lower()}/serviceaccounts",
                    f"/api/v1/namespaces/{word.lower()}/events",
                    "/api/v1/namespaces",
                    REQUESTS,
                    REVIEWS,
                ]
            )
            token = chance.choice([None, word, f"{word}.{word}.{word}", f"{word[:6]}.{word}{word}"])
            shown = peer if round_ % 3 == 0 else None
            answer = await server.call("POST", target, body, token=token, peer=shown)
            assert answer.status == 401

        assert await server.server.store.revision() == revision
        assert size_of(tmp_path) == size
        assert len(server.server.context.port(AccountTokens).verifier._cache) == 0


async def test_the_metrics_are_written_beside_the_event_loop(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a few hundred series, which requests of anybody make, it was held for 0.2 s."""
    threads = threads_of(monkeypatch, metrics_page, "rendered")

    answer = await server.call("GET", "/metrics")

    assert answer.status == 200
    assert "apiserver_request_total" in answer.text
    assert threads
    assert threading.main_thread() not in threads


async def test_metric_series_do_not_grow_with_what_clients_invent(server: Api) -> None:
    """Ten thousand user agents, paths, methods, users and content types (CVE-2020-8552)."""
    chance = random.Random(2)

    async def series() -> set[str]:
        page = (await server.call("GET", "/metrics")).text
        return {line.rpartition(" ")[0] for line in page.splitlines() if line[:1] != "#"}

    async def flood(count: int) -> None:
        for _ in range(count):
            word = anything(chance)
            await server.call(
                chance.choice(["GET", "POST", "DELETE", word.upper()]),
                chance.choice(["/healthz", f"/{word}", f"/api/v1/{word}", f"/apis/{word}/v1/x"]),
                token=chance.choice([None, BOB, word]),
                headers={"user-agent": word, "accept": word, "content-type": word, "host": word},
            )

    await flood(500)
    await series()  # asking for the page is counted too
    before = await series()  # whatever series there can be are there by now
    await flood(AGENTS)
    after = await series()

    assert after == before


async def test_a_loop_of_identical_requests_is_stored_once(server: Api) -> None:
    """The same certificate request again and again is one object (hashicorp/vault#32003)."""
    request = base64.b64encode(samples.request("jane")).decode()
    spec = {"request": request, "signerName": "example.com/x", "usages": ["client auth"]}
    body = {"metadata": {"name": "again"}, "spec": spec}
    statuses = [(await server.call("POST", REQUESTS, body)).status for _ in range(200)]
    listed = await server.call("GET", REQUESTS)

    assert statuses == [201] + [409] * 199
    assert len(listed.json["items"]) == 1


async def test_a_loop_of_identical_writes_adds_nothing_to_the_history(server: Api) -> None:
    """A put or patch that changes nothing makes no revision."""
    kept = json.dumps(await server.account("robot")).encode()
    before = await server.server.store.revision()
    patch = json.dumps({"metadata": {"labels": None}}).encode()
    headers = {"content-type": "application/merge-patch+json"}
    for _ in range(50):
        patched = await server.call("PATCH", f"{ACCOUNTS}/robot", patch, headers=headers)
        put = await server.call("PUT", f"{ACCOUNTS}/robot", kept)
        assert (patched.status, put.status) == (200, 200)

    assert await server.server.store.revision() == before


def made(**meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", **meta}}


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", ACCOUNTS, made(name="a" * 254)),
        ("POST", ACCOUNTS, made(labels={"a" * 64: "x"})),
        ("POST", ACCOUNTS, made(labels={"a": "x" * 64})),
        ("POST", ACCOUNTS, made(labels={f"{i}/{i}/{i}": "" for i in range(50_000)})),
        ("POST", ACCOUNTS, made(annotations={"a": "x" * (256 << 10)})),
        ("POST", ACCOUNTS, made(finalizers=["x" * 300] * 1000)),
        ("POST", ACCOUNTS, b'{"metadata":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001),
        ("POST", ACCOUNTS, b"[" * 1_000_000),
        ("POST", ACCOUNTS, b" " * (3 << 20) + b"{}"),
        ("POST", REVIEWS, b'{"spec":{"token":"' + b"x" * (4 << 20) + b'"}}'),
        ("GET", f"{ACCOUNTS}?labelSelector={'a,' * 20_000}", None),
        ("GET", f"{ACCOUNTS}?fieldSelector={'metadata.name=a,' * 3000}", None),
        ("GET", f"{ACCOUNTS}?continue={'A' * 30_000}", None),
        ("GET", f"{ACCOUNTS}?limit={'9' * 1000}", None),
        ("GET", f"{ACCOUNTS}?timeoutSeconds={'9' * 1000}&watch=1", None),
        ("GET", f"/{'a/' * 20_000}", None),
        ("GET", f"{ACCOUNTS}/{'a' * 33_000}", None),
    ],
)
async def test_whatever_is_too_large_is_refused(
    method: str, target: str, body: Any, server: Api
) -> None:
    """Names, labels, bodies, depth, selectors, targets: a 4xx in proportion to what was sent."""
    answer = await server.call(method, target, body)

    sent = len(target) + len(body if isinstance(body, bytes) else json.dumps(body))
    assert 400 <= answer.status < 500
    assert len(answer.body) < 5 * sent + 4096
    assert (await server.call("GET", ACCOUNTS, token=ADMIN)).status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"X: " + b"a" * (1 << 20) + b"\r\n", 431),
        (b"".join(b"H%d: v\r\n" % i for i in range(1001)), 431),
        (b"Content-Length: 99999999999999999999\r\n", 400),
        (b"Content-Length: 1\r\nContent-Length: 2\r\n", 400),
        (b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
    ],
)
def test_a_head_without_measure_is_refused_before_it_is_kept(head: bytes, status: int) -> None:
    """Headers in number and size, and lengths that are none, end the connection."""
    limits = ConnectionLimits()
    reader = RequestReader(
        Peer(""),
        max_header_bytes=limits.max_header_bytes,
        max_headers=limits.max_headers,
        max_body_bytes=limits.max_body_bytes,
        request_timeout=limits.request_timeout,
    )
    data = b"POST / HTTP/1.1\r\nHost: t\r\n" + head + b"\r\n"
    for start in range(0, len(data), 10_000):
        reader.feed(data[start : start + 10_000])

    assert reader.refusal == status
    assert reader.ready == []


HUGE = "<" * 2_900_000  # each takes six characters in an answer
MANY = [f"{'<' * 300}{number}" for number in range(9000)]
CONTROLLER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
HUGE_BODIES = {
    "name": {"metadata": {"name": HUGE}},
    "kind": {"kind": HUGE},
    "label": {"metadata": {"name": "a", "labels": {HUGE: HUGE[:9]}}},
    "labels": {"metadata": {"name": "a", "labels": dict.fromkeys(MANY, "!")}},
    "finalizers": {"metadata": {"name": "a", "finalizers": MANY}},
    "wrong type": {"metadata": {"name": "a", "labels": {HUGE: 1}}},
    "controllers": {
        "metadata": {
            "name": "a",
            "ownerReferences": [{**CONTROLLER, "uid": str(number)} for number in range(30_000)],
        }
    },
}


@pytest.mark.parametrize("what", HUGE_BODIES)
async def test_a_refusal_is_not_many_times_its_question(server: Api, what: str) -> None:
    """Sent names, values, paths and messages are repeated in an error, unless they are huge."""
    answer = await server.call("POST", ACCOUNTS, HUGE_BODIES[what])

    assert answer.status in (400, 422)
    assert len(answer.body) < 1_000_000


async def test_slow_lists_of_one_user_leave_room_for_the_others(server: Api) -> None:
    """Requests that wait for a future revision hold no seats."""
    reference = {"apiGroup": "rbac.authorization.orch.io"}
    binding = {
        "metadata": {"name": "alice"},
        "roleRef": {"kind": "ClusterRole", "name": "view", **reference},
        "subjects": [{"kind": "User", "name": "alice", **reference}],
    }
    await server.make("/apis/rbac.authorization.orch.io/v1/clusterrolebindings", binding)
    future = f"{ACCOUNTS}?resourceVersion={2**60}"
    pool = server.server.chain._fairness.levels["global-default"].pool
    slow = [asyncio.create_task(server.call("GET", future, token=ALICE)) for _ in range(405)]
    await until(lambda: pool.parked + sum(task.done() for task in slow) == len(slow))

    parked = pool.parked
    others = [(await server.call("GET", "/api", token=BOB)).status for _ in range(20)]
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)

    assert others == [200] * 20
    assert parked > 50


def test_lines_in_the_data_of_a_chunk_are_not_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A body of line ends, from anybody, took seconds of the event loop."""
    fed: list[int] = []
    parse = RequestReader._parse

    def counted(self: RequestReader, part: bytes) -> None:
        fed.append(len(part))
        parse(self, part)

    monkeypatch.setattr(RequestReader, "_parse", counted)
    data = b"\n\r\n0\r\n\r\n" * 100

    reader = read(CHUNKED + b"00%X;a=b\r\n%b\r\n0\r\n\r\n" % (len(data), data))

    assert reader.ready[0].request.body == data
    assert len(fed) == 5  # the head, the size, the data, and two lines
