"""The rotation of token keys by the controller, over the whole server in one process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.objects.event_writer import EventWriter
from orchid.features.objects.kinds.lease import Lease, keys_annotation, signs_annotation
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.token_keys.controllers import rotate_keys, rotate_token_keys
from orchid.features.token_keys.controllers.rotate_token_keys import RotateTokenKeys
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.key_rotation import KeyRotation
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import Conflict, NotFound
from orchid.kernel.wire.signing_key_status import SigningKeyStatus
from orchid.kernel.wire.struct import replace
from tests.api.world import Api, api

KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
HOME = "orch-system"
DAY = timedelta(days=1)
YEAR = 365 * 86_400  # seconds


class Rotating:
    """A server, its controller, and a clock that a test may move."""

    def __init__(
        self, server: Api, monkeypatch: pytest.MonkeyPatch, period: timedelta, elsewhere: Any
    ) -> None:
        self.server = server
        self.api = server.server
        self._shift = timedelta()
        monkeypatch.setattr(self.api.clock, "now", self.now)
        self.events = EventWriter(self.api.clients("events"), self.api.clock)
        self.controller = RotateTokenKeys(
            self.api.clients("token-key-rotation"),
            self.api.settings.naming,
            self.api.clock,
            self.events,
            KeyRotation(True, period, DAY, 30 * DAY, elsewhere),
        )

    def now(self) -> datetime:
        return datetime.now(UTC) + self._shift

    async def later(self, shift: timedelta) -> None:
        """Move the clock, and have the controller look again."""
        self._shift += shift
        await self.report()
        self.controller.queue.add(("", "tokens"))

    async def report(self) -> None:
        """Keys as the server writes them into its Lease."""
        await self.api.context.port(AppliedRevision).report()

    async def until(self, name: str, holds: Any) -> SigningKey:
        """Wait until a key is as expected; the cache notifies of each change."""
        cache, changed = self.api.feed.of(SigningKey), asyncio.Event()
        cache.listen(changed, lambda _changes: changed.set())
        try:
            async with asyncio.timeout(20):
                while True:
                    changed.clear()
                    entry = cache.get("", name)
                    if holds(entry.object if entry else None):
                        return entry.object if entry else SigningKey()
                    await changed.wait()
        finally:
            cache.forget(changed)

    async def look(self) -> float | None:
        """Look at the keys; the running controller may change one at the same time."""
        async with asyncio.timeout(20):
            while True:
                try:
                    return await self.controller._rotate("")
                except (Conflict, NotFound, TryAgain):
                    await asyncio.sleep(0)

    async def settled(self) -> None:
        """Look until no step is left."""
        while (pause := await self.look()) is None or pause <= rotate_keys.SOON:
            pass

    async def state(self, name: str, wanted: str) -> SigningKey:
        return await self.until(name, lambda key: key is not None and key.state == wanted)

    async def published(self, name: str) -> SigningKey:
        """Wait for a successor, and until the controller knows that the server has it."""
        await self.state(name, "Published")
        await self.report()
        return await self.until(name, lambda key: key.status.times.published is not None)


@contextlib.asynccontextmanager
async def rotating(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    period: timedelta = 90 * DAY,
    elsewhere: Any = None,
    jwks_uri: str = "",
) -> AsyncIterator[Rotating]:
    async with api(path / "data", service_account_jwks_uri=jwks_uri) as server:
        made = Rotating(server, monkeypatch, period, elsewhere)
        running = [
            asyncio.create_task(made.controller.run()),
            asyncio.create_task(made.events.run()),
        ]
        try:
            yield made
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def test_a_successor_is_always_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verifiers and backups have it one period in advance."""
    async with rotating(tmp_path, monkeypatch) as here:
        found = await here.published("tokens-2")

        assert found.status.algorithm == "ES256"
        assert found.status.source == "Made"


async def test_a_whole_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Successor, activation after the period, Verifying, private key deleted, Retired, removed."""
    async with rotating(tmp_path, monkeypatch) as here:
        await here.server.account("builder")
        old = await here.state("tokens-1", "Active")
        await here.published("tokens-2")
        await here.later(90 * DAY)
        new = await here.state("tokens-2", "Active")
        await here.state("tokens-1", "Verifying")
        await here.published("tokens-3")
        secrets = here.api.feed.of(Secret)

        assert here.api.context.port(FollowedKeys).keys.signs == new.key_id
        assert secrets.get(HOME, f"signing-key-{old.metadata.uid}") is not None
        await here.later(DAY + timedelta(minutes=3))
        await here.state("tokens-1", "Retired")
        assert secrets.get(HOME, f"signing-key-{old.metadata.uid}") is None
        await here.later(29 * DAY)
        await here.settled()
        await here.state("tokens-1", "Retired")
        await here.later(2 * DAY)
        await here.until("tokens-1", lambda key: key is None)


async def test_conditions_have_the_message_of_the_rejection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kubectl wait` works, and an operator reads there why not."""
    async with rotating(tmp_path, monkeypatch) as here:
        await here.published("tokens-2")
        found = await here.until("tokens-2", lambda key: "from 2" in message(key, "Activatable"))
        body = {"spec": {"state": "Active"}}
        answer = await here.server.call(
            "PATCH",
            f"{KEYS}/tokens-2",
            body,
            headers={"content-type": "application/merge-patch+json"},
        )

        assert answer.status == 422
        assert message(found, "Activatable") in answer.text
        await here.later(DAY)
        await here.until("tokens-2", lambda key: status(key, "Activatable") == "True")
        await here.until("tokens-1", lambda key: status(key, "Ready") == "True")


async def test_a_key_is_retired_soon_after_its_pods_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live tokens are those that were issued; a minute after their Pods nothing depends on it."""
    pods = "/api/v1/namespaces/default/pods"
    spec = {"serviceAccountName": "builder", "containers": [{"name": "c", "image": "i"}]}
    async with rotating(tmp_path, monkeypatch) as here:
        await here.server.account("builder")
        for number in range(3):
            await here.server.make(pods, {"metadata": {"name": f"p{number}"}, "spec": spec})
            for _ in range(number + 1):
                bound = {"kind": "Pod", "apiVersion": "v1", "name": f"p{number}"}
                await here.server.token("builder", expirationSeconds=YEAR, boundObjectRef=bound)
        await here.api.context.port(LongTokens).write()
        await here.published("tokens-2")
        await here.later(90 * DAY)
        await here.state("tokens-1", "Verifying")
        await here.later(DAY + timedelta(minutes=3))
        found = await here.until(
            "tokens-1", lambda key: "6 tokens of 3 holders" in message(key, "Retirable")
        )
        await here.published("tokens-3")

        assert found.status.dependents is not None
        assert found.status.dependents.live == 1 + 2 + 3
        assert found.status.dependents.longest[0].holder == "Pod default/p2"
        for number in range(3):
            await here.server.call("DELETE", f"{pods}/p{number}?gracePeriodSeconds=0")
        pause = await here.look()
        assert pause is not None
        assert pause <= 30  # the next look
        await here.later(timedelta(seconds=30))
        await here.state("tokens-1", "Retired")


def message(key: SigningKey, type_: str) -> str:
    return next((one.message for one in key.status.conditions if one.type == type_), "")


def status(key: SigningKey, type_: str) -> str:
    return next((one.status for one in key.status.conditions if one.type == type_), "")


async def test_a_server_without_the_key_blocks_the_activation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Lease has no annotation about keys, as of an earlier version; the event names it."""
    async with rotating(tmp_path, monkeypatch) as here:
        await here.published("tokens-2")
        name = "orch-server-earlier"
        body = {
            "metadata": {"name": name, "labels": {"identity.orch.io/server": "true"}},
            "spec": {"holderIdentity": name},
        }
        await here.server.make(f"/apis/coordination.orch.io/v1/namespaces/{HOME}/leases", body)
        await here.later(90 * DAY)
        blocked = await here.until("tokens-2", lambda key: name in message(key, "Activatable"))

        assert blocked.state == "Published"
        assert here.api.context.port(FollowedKeys).keys.signs != blocked.key_id


async def test_a_lost_secret_is_reported_and_the_successor_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the conditions allow; until then the process signs with the key in memory."""
    async with rotating(tmp_path, monkeypatch) as here:
        old = await here.state("tokens-1", "Active")
        await here.published("tokens-2")
        secret = f"/api/v1/namespaces/{HOME}/secrets/signing-key-{old.metadata.uid}"
        await here.server.call("DELETE", secret)
        lost = await here.until("tokens-1", lambda key: status(key, "Ready") == "False")

        assert [one.reason for one in lost.status.conditions if one.type == "Ready"] == ["KeyLost"]
        assert here.api.context.port(FollowedKeys).keys.signs == old.key_id
        await here.later(DAY)
        await here.state("tokens-2", "Active")


async def test_a_key_that_a_server_cannot_load_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Secret has another key: a server that was started since signs with the successor."""
    monkeypatch.setattr(rotate_token_keys, "UNLOADED_SECONDS", 0.0)
    async with rotating(tmp_path, monkeypatch) as here:
        successor = await here.published("tokens-2")
        names, name = here.api.settings.naming, "orch-server-restarted"
        body = {
            "metadata": {
                "name": name,
                "labels": {"identity.orch.io/server": "true"},
                "annotations": {keys_annotation(names): successor.key_id},
            },
            "spec": {"holderIdentity": name},
        }
        await here.server.make(f"/apis/coordination.orch.io/v1/namespaces/{HOME}/leases", body)
        lost = await here.until("tokens-1", lambda key: status(key, "Ready") == "False")
        await here.later(DAY)
        await here.state("tokens-2", "Active")

        assert "has another key" in message(lost, "Ready")


async def test_a_successor_that_lost_its_secret_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not become Active, since no server could sign with it after a restart."""
    async with rotating(tmp_path, monkeypatch) as here:
        lost = await here.published("tokens-2")
        secret = f"/api/v1/namespaces/{HOME}/secrets/signing-key-{lost.metadata.uid}"
        await here.server.call("DELETE", secret)
        await here.later(timedelta(minutes=3))
        await here.published("tokens-3")
        await here.later(2 * DAY)
        await here.until("tokens-2", lambda key: secret[-20:] in message(key, "Activatable"))
        await here.until("tokens-2", lambda key: status(key, "Ready") == "False")
        await here.later(90 * DAY)
        await here.state("tokens-3", "Active")

        assert (await here.state("tokens-2", "Published")).status.times.active is None


async def test_after_a_revocation_the_keys_rotate_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First to the successor, at once; then to a key whose id no verifier has cached.

    That one is not created in the second of the revocation, or it would count as older.
    """
    async with rotating(tmp_path, monkeypatch) as here:
        await here.published("tokens-2")
        spec = {"key": {"name": "tokens-1"}, "reason": "keyCompromise"}
        revocations = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
        await here.server.make(revocations, {"metadata": {"name": "lost"}, "spec": spec})
        await here.state("tokens-1", "Retired")
        await here.state("tokens-2", "Active")
        await here.published("tokens-3")
        await here.later(DAY)
        signer = await here.state("tokens-3", "Active")
        await here.published("tokens-4")
        await here.later(2 * DAY)
        await here.settled()

        assert (await here.state("tokens-4", "Published")).status.times.active is None
        assert here.api.context.port(FollowedKeys).keys.signs == signer.key_id


async def test_without_a_period_an_operator_activates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor is published all the same, for an emergency."""
    async with rotating(tmp_path, monkeypatch, period=timedelta()) as here:
        await here.published("tokens-2")
        await here.later(400 * DAY)
        found = await here.until("tokens-2", lambda key: status(key, "Activatable") == "True")

        assert found.state == "Published"


async def test_a_lease_reports_the_keys_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which it can use, and which one it signs with."""
    async with rotating(tmp_path, monkeypatch) as here:
        first = await here.state("tokens-1", "Active")
        second = await here.published("tokens-2")
        lease = here.api.feed.of(Lease).get(HOME, here.api.context.port(AppliedRevision).name)
        naming = here.api.settings.naming

        assert lease is not None
        notes = lease.meta.annotations
        assert set(notes[keys_annotation(naming)].split(",")) == {first.key_id, second.key_id}
        assert notes[signs_annotation(naming)] == first.key_id


async def test_a_key_that_verifiers_fetch_elsewhere_has_to_be_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader looks at the URL as any verifier would; the publish time counts from then."""
    published: set[str] = set()

    async def fetch() -> set[str]:
        if not published:
            raise CallFailed("connection refused")
        return published

    url = "https://keys.example/jwks"
    async with rotating(tmp_path, monkeypatch, elsewhere=fetch, jwks_uri=url) as here:
        made = await here.published("tokens-2")
        await here.later(2 * DAY)
        await here.until("tokens-2", lambda key: f"not found it at {url}" in blocked_by(key))
        published.add(made.key_id)
        await here.later(timedelta(minutes=1))
        await here.until("tokens-2", lambda key: key.status.found is not None)
        await here.until("tokens-2", lambda key: "only after the publish time" in blocked_by(key))
        await here.later(DAY)
        await here.until("tokens-2", lambda key: status(key, "Activatable") == "True")


def blocked_by(key: SigningKey) -> str:
    return message(key, "Activatable")


async def test_an_object_of_a_file_that_no_server_has_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It only showed the key."""
    async with rotating(tmp_path, monkeypatch) as here:
        cache = here.api.feed.of(SigningKey)
        await here.published("tokens-2")
        shown = replace(
            (await here.state("tokens-1", "Active")).with_meta(name="tokens-9", uid="file"),
            status=SigningKeyStatus(key_id="no-server-has-it", source="File"),
        )
        change = Change(cache.kind.key("", "tokens-9"), encode(shown), ABSENT)
        await here.api.feed.reach(await here.api.store.commit([change]))
        await here.until("tokens-9", lambda key: key is None)
