"""The attack: a watch that continues after its account, token, binding or time has ended."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.http.messages import Peer
from orchid.kernel.server.open_watches import LONGEST_PAUSE, pause_after
from tests.api.world import ADMIN, Api, EventStream, api, parsed
from tests.security.certified import cluster_authority, issued
from tests.unit.features.beside import MovingClock

HERE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.orch.io/v1/namespaces/default"
GROUP = "rbac.authorization.orch.io"
WATCH = f"{HERE}/configmaps?watch=1&resourceVersion=0&timeoutSeconds=2000000000"


async def prepared(server: Api) -> None:
    """An account and a certificate's user who may watch ConfigMaps by one role and one binding."""
    await server.account("robot")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}
    await server.make(f"{RBAC}/roles", {"metadata": {"name": "watcher"}, "rules": [rule]})
    subjects: list[dict[str, str]] = [
        {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
        {"kind": "User", "name": "jane", "apiGroup": GROUP},
        {"kind": "User", "name": "acted", "apiGroup": GROUP},
    ]
    reference = {"apiGroup": GROUP, "kind": "Role", "name": "watcher"}
    body = {"metadata": {"name": "watchers"}, "subjects": subjects, "roleRef": reference}
    await server.make(f"{RBAC}/rolebindings", body)


@asynccontextmanager
async def watching(
    server: Api, token: str | None = None, peer: Peer | None = None, **headers: str
) -> AsyncIterator[EventStream]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    answer = await server.send("GET", WATCH, sent, peer=peer)
    assert answer.status == 200, answer.body
    stream = EventStream(answer.status, parsed(answer.headers))
    answer.open(stream)
    try:
        yield stream
    finally:
        stream.finish()


async def judge(server: Api) -> None:
    await server.server.feed.fresh()
    await server.server.watches.check_all()


def removing(path: str) -> Callable[[Api], Awaitable[Any]]:
    async def remove(server: Api) -> None:
        assert (await server.call("DELETE", path)).status == 200

    return remove


async def take_the_rule_away(server: Api) -> None:
    headers = {"content-type": "application/merge-patch+json"}
    body = b'{"rules": []}'
    answer = await server.call("PATCH", f"{RBAC}/roles/watcher", body, headers=headers)
    assert answer.status == 200


@pytest.mark.parametrize(
    "ends",
    [
        removing(f"{HERE}/serviceaccounts/robot"),
        removing(f"{HERE}/secrets/bound"),
        removing(f"{RBAC}/rolebindings/watchers"),
        removing(f"{RBAC}/roles/watcher"),
        take_the_rule_away,
    ],
    ids=["account", "bound object", "binding", "role", "rule"],
)
async def test_a_watch_ends_with_its_credential_or_its_right(
    server: Api, ends: Callable[[Api], Awaitable[Any]]
) -> None:
    """Whatever of it is taken away, the stream is finished; nothing ends before that."""
    await prepared(server)
    await server.make(f"{HERE}/secrets", {"metadata": {"name": "bound"}})
    bound = {"kind": "Secret", "apiVersion": "v1", "name": "bound"}
    token = await server.token("robot", boundObjectRef=bound)
    async with watching(server, token) as stream:
        await server.make(f"{HERE}/secrets", {"metadata": {"name": "another"}})
        await removing(f"{HERE}/secrets/another")(server)
        await judge(server)
        assert stream.ended is None

        await ends(server)
        await judge(server)

        assert stream.ended == "finish"
    await asyncio.sleep(0)
    assert len(server.server.watches) == 0


async def test_a_watch_ends_with_its_time(server: Api, clock: MovingClock) -> None:
    """A token and a certificate give no more events after their end, though they are shown once."""
    await prepared(server)
    token = await server.token("robot", expirationSeconds=600)
    authority = cluster_authority(server.server.files.path)
    lifetime = timedelta(minutes=30)
    peer = issued(authority, "jane", lifetime=lifetime, now=clock.now()).peer
    async with watching(server, token) as by_token, watching(server, peer=peer) as by_certificate:
        clock.ahead += timedelta(seconds=500)
        await judge(server)
        before = (by_token.ended, by_certificate.ended)
        clock.ahead += timedelta(seconds=200)
        await judge(server)
        between = (by_token.ended, by_certificate.ended)
        clock.ahead += timedelta(seconds=1800)
        await judge(server)

        assert before == (None, None)
        assert between == ("finish", None)
        assert by_certificate.ended == "finish"


async def test_who_acts_as_another_watches_no_longer_than_he_may(server: Api) -> None:
    """The right to impersonate is asked for again, and so is the right of the impersonated."""
    await prepared(server)
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    cluster = "/apis/rbac.authorization.orch.io/v1"
    await server.make(f"{cluster}/clusterroles", {"metadata": {"name": "act"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "act"}
    body = {"metadata": {"name": "acts"}, "subjects": [subject], "roleRef": reference}
    await server.make(f"{cluster}/clusterrolebindings", body)
    token = await server.token("robot")
    async with watching(server, token, impersonate_user="acted") as stream:
        await judge(server)
        assert stream.ended is None

        await removing(f"{cluster}/clusterrolebindings/acts")(server)
        await judge(server)

        assert stream.ended == "finish"


async def test_no_watch_outlives_the_setting_doubled(server_files: Path) -> None:
    """However long a time-out was asked for, the stream ends by itself."""
    async with (
        api(server_files, min_request_timeout=0) as server,
        watching(server, ADMIN) as stream,
    ):
        async with asyncio.timeout(5):
            assert await stream.rest() == []

        assert stream.ended == "finish"


async def test_a_watch_of_a_running_server_ends_soon_after_its_binding(server: Api) -> None:
    """The change itself triggers a check of every watch, without a request."""
    await prepared(server)
    token = await server.token("robot")
    judging = asyncio.create_task(server.server.watches.run())
    async with watching(server, token) as stream:
        await removing(f"{RBAC}/rolebindings/watchers")(server)
        assert await stream.rest() == []
    judging.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await judging

    assert stream.ended == "finish"


def test_a_second_change_waits_only_where_rounds_are_long() -> None:
    """Of two revocations in a row, the second ends its watches as soon as the first did."""
    assert pause_after(0.0002) == pytest.approx(0.002)
    assert pause_after(0.3) == LONGEST_PAUSE


async def test_a_store_in_trouble_ends_no_watch(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nobody can be asked is not the end of anybody's right."""
    await prepared(server)
    token = await server.token("robot")
    async with watching(server, token) as stream:

        async def broken() -> int:
            raise RuntimeError

        monkeypatch.setattr(server.server.feed, "fresh", broken)
        await server.server.watches.check_all()

        assert stream.ended is None


async def test_one_user_has_so_many_watches_and_no_more(server: Api) -> None:
    """Beyond that 429; administrators and those who closed one are let in."""
    await prepared(server)
    token = await server.token("robot")
    server.server.watches._most_per_user = 2
    async with watching(server, token):
        async with watching(server, token):
            headers = {"authorization": f"Bearer {token}"}
            refused = await server.send("GET", WATCH, headers)
            async with watching(server, ADMIN), watching(server, ADMIN), watching(server, ADMIN):
                page = (await server.call("GET", "/metrics")).text
        await asyncio.sleep(0)
        async with watching(server, token):
            pass

    assert refused.status == 429
    assert b"Retry-After: 1" in refused.headers
    assert "orchid_watch_users 2\n" in page
    assert "orchid_watch_refused_total 1\n" in page
