"""The pages below /trust/: conditional requests, waiting, earlier editions, consumers."""

import asyncio
import hashlib
from typing import Any

import pytest

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles import editions, pages, stored_edition
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.features.trust_bundles.server import TrustServer
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.api.world import ADMIN, ALICE, Answer, Api
from tests.unit.features.beside import Beside
from tests.unit.features.trust_bundles.test_publish_bundles import edition, publish, root, trust

HOME = ORCH.system_namespace


async def ask(publishing: Beside, target: str, method: str = "GET", **more: Any) -> Answer:
    more = {"token": None, **more}
    return await Api(publishing.server).call(method, target, **more)


async def served(publishing: Beside, count: int = 1, name: str = "pay") -> PublishedBundle:
    """Wait until an edition with so many certificates is served, not only stored."""
    found = await edition(publishing, count, name)
    async with asyncio.timeout(10):
        while True:
            current = publishing.server.context.port(TrustServer)._editions.current(name)
            if current is not None and current.sequence == found.status.sequence:
                return found
            await asyncio.sleep(0.002)


async def published(publishing: Beside, **spec: Any) -> PublishedBundle:
    """A bundle with one root."""
    await trust(publishing, "roots", root(publishing))
    made = await publish(publishing, {"name": "roots"})
    if spec:
        await publishing.admin.update(replace(made, spec=replace(made.spec, **spec)))
    return await served(publishing)


def tag(bundle: PublishedBundle) -> dict[str, str]:
    return {"if-none-match": f'"{bundle.status.sequence}"'}


async def test_a_bundle_is_served_to_everybody_with_its_sequence_as_tag(publishing: Beside) -> None:
    """The SHA-256 of the file is the one in the status; nothing is sent to who has it."""
    bundle = await published(publishing)

    whole = await ask(publishing, "/trust/pay.pem")
    again = await ask(publishing, "/trust/pay.pem", headers=tag(bundle))
    other = await ask(publishing, "/trust/pay.pem", headers={"if-none-match": '"1"'})
    head = await ask(publishing, "/trust/pay.pem", "HEAD")

    assert whole.status == other.status == head.status == 200
    assert hashlib.sha256(whole.body).hexdigest() == bundle.status.sha256
    assert whole.header("etag") == f'"{bundle.status.sequence}"'
    assert whole.header("cache-control") == "public, max-age=300"
    assert whole.header("content-type") == "application/x-pem-file"
    assert (again.status, again.body) == (304, b"")
    assert again.header("etag") == whole.header("etag")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/trust/never.pem", 404),
        ("GET", "/trust/pay.der", 404),
        ("GET", "/trust/pay", 404),
        ("GET", "/trust/", 404),
        ("GET", "/trust/pay/1.pem", 404),
        ("GET", "/trust/pay/x.pem", 404),
        ("GET", f"/trust/pay/{'9' * 5000}.pem", 404),
        ("GET", "/trust/pay/1.p12", 404),
        ("GET", "/trust/pay.json", 404),
        ("GET", "/trust/../metrics", 401),
        ("GET", "/trust/%2e%2e/metrics", 401),
        ("GET", "/trust/pay.pem?wait=soon", 400),
        ("POST", "/trust/pay.pem", 403),
    ],
)
async def test_everything_else_is_refused(
    publishing: Beside, method: str, path: str, status: int
) -> None:
    """With a client's error, never with a traceback."""
    await published(publishing)

    assert (await ask(publishing, path, method)).status == status


async def test_only_reading_is_allowed_for_administrators_too(publishing: Beside) -> None:
    """A bundle is changed by its objects."""
    await published(publishing)

    assert (await ask(publishing, "/trust/pay.pem", "DELETE", token=ADMIN)).status == 405


async def test_a_request_waits_for_the_next_edition(publishing: Beside) -> None:
    """It takes no seat, and its time is not counted as time that the server took."""
    bundle = await published(publishing)
    waiting = asyncio.create_task(ask(publishing, "/trust/pay.pem?wait=50s", headers=tag(bundle)))
    await until_waiting(publishing, 1)
    taken = sum(level.taken for level in publishing.server.fairness.levels.values())
    await trust(publishing, "roots", root(publishing, "new"))
    answer = await waiting

    assert taken == 0
    assert answer.status == 200
    assert int((answer.header("etag") or "").strip('"')) > bundle.status.sequence
    assert publishing.server.context.port(TrustServer)._editions.waiting == 0


async def until_waiting(publishing: Beside, count: int) -> None:
    async with asyncio.timeout(10):
        while publishing.server.context.port(TrustServer)._editions.waiting != count:  # noqa: ASYNC110 -- a number
            await asyncio.sleep(0.002)


async def test_a_request_that_waited_in_vain_gets_304(publishing: Beside) -> None:
    """And one that has another edition, or none, waits for nothing."""
    bundle = await published(publishing)

    unchanged = await ask(publishing, "/trust/pay.pem?wait=10ms", headers=tag(bundle))
    first = await ask(publishing, "/trust/pay.pem?wait=50s")
    older = await ask(publishing, "/trust/pay.pem?wait=50s", headers={"if-none-match": '"1"'})

    assert (unchanged.status, first.status, older.status) == (304, 200, 200)


async def test_a_wait_ends_before_the_deadline_of_the_request(publishing: Beside) -> None:
    """A client that asks for an hour is not cut off with an error."""
    bundle = await published(publishing)
    asked = "/trust/pay.pem?wait=1h&timeout=5010ms"

    assert (await ask(publishing, asked, headers=tag(bundle))).status == 304


async def test_beyond_the_limit_nobody_waits(
    publishing: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes immediately and says when to try again; those that wait go on."""
    monkeypatch.setattr(editions, "MOST_WAITING", 2)
    bundle = await published(publishing)
    asked = "/trust/pay.pem?wait=50s"
    waiting = [asyncio.create_task(ask(publishing, asked, headers=tag(bundle))) for _ in range(2)]
    await until_waiting(publishing, 2)

    refused = await ask(publishing, asked, headers=tag(bundle))
    publishing.server.context.port(TrustServer).stop_waiting()

    assert (refused.status, refused.header("retry-after")) == (304, str(pages.BUSY_SECONDS))
    assert [(await one).status for one in waiting] == [304, 304]


async def test_many_that_wait_are_answered_in_turns(
    publishing: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand answers in one turn of the event loop would hold up everybody else."""
    monkeypatch.setattr(editions, "MOST_PER_TURN", 2)
    bundle = await published(publishing)
    asked = "/trust/pay.pem?wait=50s"
    waiting = [asyncio.create_task(ask(publishing, asked, headers=tag(bundle))) for _ in range(7)]
    await until_waiting(publishing, 7)
    done = [0]
    for one in waiting:
        one.add_done_callback(lambda _: done.append(done.pop() + 1))
    turns: list[int] = []

    publishing.server.context.port(TrustServer).stop_waiting()
    while sum(turns) < 7:
        before = done[0]
        await asyncio.sleep(0)
        turns.append(done[0] - before)

    assert max(turns) <= 2
    assert {(await one).status for one in waiting} == {304}


async def test_requests_end_when_the_server_stops_or_the_bundle_is_deleted(
    publishing: Beside,
) -> None:
    """No shutdown waits for a client that waits."""
    bundle = await published(publishing)
    asked = "/trust/pay.pem?wait=50s"
    waiting = asyncio.create_task(ask(publishing, asked, headers=tag(bundle)))
    await until_waiting(publishing, 1)
    await publishing.admin.delete(PublishedBundle, "pay")

    assert (await waiting).status == 404


async def test_earlier_editions_stay(publishing: Beside) -> None:
    """Under a path that never changes its content."""
    first = await published(publishing)
    text = (await ask(publishing, "/trust/pay.pem")).body
    await trust(publishing, "roots", root(publishing, "a") + root(publishing, "b"))
    await served(publishing, 2)

    earlier = await ask(publishing, f"/trust/pay/{first.status.sequence}.pem")
    again = await ask(publishing, f"/trust/pay/{first.status.sequence}.pem", headers=tag(first))

    assert (earlier.status, earlier.body) == (200, text)
    assert "immutable" in (earlier.header("cache-control") or "")
    assert again.status == 304


async def test_an_edition_that_somebody_replaced_is_not_served(publishing: Beside) -> None:
    """The bytes must have the SHA-256 that was published and logged."""
    first = await published(publishing)
    await trust(publishing, "roots", root(publishing, "a") + root(publishing, "b"))
    await served(publishing, 2)
    name = stored_edition.edition_name("pay", first.status.sequence)
    there = await publishing.admin.get(ConfigMap, name, HOME)
    await publishing.admin.delete(ConfigMap, name, HOME)
    planted = replace(there, data={stored_edition.PEM: "planted"})
    await publishing.admin.create(planted.with_meta(resource_version="", uid=""))

    assert (await ask(publishing, f"/trust/pay/{first.status.sequence}.pem")).status == 404


async def test_no_other_config_map_can_be_read_through_a_path(publishing: Beside) -> None:
    """Only what the status of a bundle names is looked for."""
    await published(publishing)
    name = stored_edition.edition_name("pay", 7)
    secret = stored_edition.owned_map(
        await publishing.admin.get(PublishedBundle, "pay"),
        "v1",
        ORCH,
        name,
        data={"bundle.pem": "x"},
    )
    await publishing.admin.create(secret)

    assert (await ask(publishing, "/trust/pay/7.pem")).status == 404


async def test_the_spiffe_form_needs_a_trust_domain(publishing: Beside) -> None:
    """And carries the sequence and the hint."""
    bundle = await published(publishing, trust_domain="example.com", refresh_hint="2m")

    answer = await ask(publishing, "/trust/pay.json")

    assert answer.status == 200
    assert answer.header("cache-control") == "public, max-age=120"
    assert answer.json["spiffe_sequence"] == bundle.status.sequence
    assert answer.json["spiffe_refresh_hint"] == 120
    [key] = answer.json["keys"]
    assert key["use"] == "x509-svid"
    assert len(key["x5c"]) == 1
    assert "kid" not in key


async def test_the_last_edition_is_served_while_the_sources_are_empty(publishing: Beside) -> None:
    """The last edition stays published after its sources are deleted."""
    bundle = await published(publishing)
    await publishing.admin.delete(ClusterTrustBundle, "roots")
    await publishing.until_like(PublishedBundle, "pay", condition=lambda one: not one.is_ready)

    answer = await ask(publishing, "/trust/pay.pem")

    assert (answer.status, answer.header("etag")) == (200, f'"{bundle.status.sequence}"')


async def test_named_clients_are_listed_and_others_are_counted(publishing: Beside) -> None:
    """With the edition that they received; a client that does not come back is behind."""
    bundle = await published(publishing)
    await ask(publishing, "/trust/pay.pem", token=ALICE)
    await ask(publishing, "/trust/pay.pem", token=ADMIN)
    await ask(publishing, "/trust/pay.pem")
    await ask(publishing, "/trust/pay.pem", headers=tag(bundle))
    await ask(publishing, "/trust/pay.pem", "HEAD", token="bob-token-0003")
    await ask(publishing, "/trust/pay.pem", headers={"if-none-match": "*"}, token="bob-token-0003")
    await publishing.server.context.port(TrustServer).consumers.write()
    before = await publishing.until_like(
        PublishedBundle, "pay", condition=lambda one: one.status.consumers is not None
    )
    await trust(publishing, "roots", root(publishing, "new"))
    after = await publishing.until_like(
        PublishedBundle, "pay", condition=lambda one: len(one.status.editions) == 2
    )

    consumers, later = before.status.consumers, after.status.consumers
    assert consumers is not None
    assert later is not None
    assert (consumers.current, consumers.behind, consumers.others) == (2, 0, 1)
    assert (later.current, later.behind, later.others) == (0, 2, 0)
    assert {one.name for one in later.longest} == {"alice", "admin"}
    assert {one.sequence for one in later.longest} == {bundle.status.sequence}


async def test_a_client_that_polls_causes_no_writes(publishing: Beside) -> None:
    """Times are those of the hour."""
    bundle = await published(publishing)
    await ask(publishing, "/trust/pay.pem", token=ALICE)
    await publishing.server.context.port(TrustServer).consumers.write()
    name = stored_edition.consumers_name("pay")
    first = await publishing.admin.get(ConfigMap, name, HOME)
    await ask(publishing, "/trust/pay.pem", token=ALICE, headers=tag(bundle))
    await publishing.server.context.port(TrustServer).consumers.write()

    again = await publishing.admin.get(ConfigMap, name, HOME)
    hours = {one.seen % 3600 for one in stored_edition.read_consumers(first).named.values()}
    assert hours == {0}
    assert again.metadata.resource_version == first.metadata.resource_version


async def test_what_cannot_be_written_now_is_written_later(
    publishing: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fetch is lost because the store was away for a minute."""
    await published(publishing)
    await ask(publishing, "/trust/pay.pem", token=ALICE)
    await ask(publishing, "/trust/pay.pem")
    consumers = publishing.server.context.port(TrustServer).consumers

    async def refused(*_: object) -> None:
        raise pages.Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(consumers, "_merge", refused)
        await consumers.write()
    await consumers.write()

    found = await publishing.admin.get(ConfigMap, stored_edition.consumers_name("pay"), HOME)
    seen = stored_edition.read_consumers(found)
    assert list(seen.named) == ["alice"]
    assert list(seen.others.values()) == [1]


async def test_metrics_show_bundles_and_requests(publishing: Beside) -> None:
    """By form and code, and the state of each bundle."""
    bundle = await published(publishing)
    await ask(publishing, "/trust/pay.pem")

    shown = (await ask(publishing, "/metrics", token=ADMIN)).text

    assert 'orchid_trust_requests_total{form="pem",code="200"} 1' in shown
    assert f'orchid_published_bundle_changed_seconds{{bundle="pay"}} {bundle.status.sequence}' in (
        shown.replace(".0\n", "\n")
    )
    assert 'orchid_published_bundle_ready{bundle="pay"} 1' in shown
    assert "orchid_trust_waiting 0" in shown
