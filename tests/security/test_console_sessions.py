"""The attack: to go on in a browser session of the console after its user was revoked.

The console renews ID tokens with a refresh token, so the thief of a session has credentials that
are newer than the revocation.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.text import timestamp
from tests.api.world import Api, EventStream
from tests.security.signing_in import (
    SESSIONS,
    Browser,
    SignInProvider,
    sessions_of,
    signing_in,
)
from tests.security.test_revocations import jti_of, revoked
from tests.unit.features.beside import MovingClock

PATIENCE = 20


@pytest.fixture(scope="module")
def provider() -> Iterator[SignInProvider]:
    with SignInProvider() as made:
        yield made


@pytest.fixture
async def server(
    server_files: Path, provider: SignInProvider, tmp_path: Path, clock: MovingClock
) -> AsyncIterator[Api]:
    async with signing_in(server_files, provider, tmp_path, clock) as made:
        yield made


async def may_follow_revocations(server: Api, user: str) -> None:
    role = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "certificate-inventory-viewer"}
    subjects = [{"kind": "User", "name": user, "apiGroup": ORCH.rbac}]
    body = {"metadata": {"name": "viewers"}, "roleRef": role, "subjects": subjects}
    await server.make(f"/apis/{ORCH.rbac}/v1/clusterrolebindings", body)


async def following(server: Api, provider: SignInProvider) -> EventStream:
    """The stream of an open page of carla, once it has begun."""
    await may_follow_revocations(server, "carla")
    browser = await Browser(server, provider).sign_in("carla")
    stream = await browser.follow("credentialrevocations")
    async with asyncio.timeout(PATIENCE):
        while b"retry" not in stream.received or len(server.server.watches) == 0:  # noqa: ASYNC110 -- no event
            await asyncio.sleep(0.01)
    return stream


async def ended(stream: EventStream) -> bytes:
    """Everything that a stream has sent until its end."""
    async with asyncio.timeout(PATIENCE):
        while not stream.closed:  # noqa: ASYNC110 -- no event
            await asyncio.sleep(0.01)
    return stream.received


async def test_a_session_ends_with_its_user_and_is_never_renewed_again(
    server: Api, provider: SignInProvider, clock: MovingClock
) -> None:
    """Nor when its ID token is about to end. The sessions of others go on; a new one works."""
    carla = await Browser(server, provider).sign_in("carla")
    joe = await Browser(server, provider).sign_in("joe")
    await revoked(server, "stolen", user={"username": "carla"})
    clock.ahead += timedelta(seconds=provider.seconds - 10)
    before = provider.renewals

    refused, other = await carla.get(), await joe.get()

    assert (refused.status, other.status) == (303, 200)
    assert provider.renewals == before + 1  # of joe
    assert await sessions_of(server) == ["joe"]
    assert (await (await Browser(server, provider).sign_in("carla")).get()).status == 200


async def test_a_session_ends_at_the_next_request_with_its_refresh_token(
    server: Api, provider: SignInProvider
) -> None:
    carla = await Browser(server, provider).sign_in("carla")
    served = await carla.get()
    await revoked(server, "stolen", user={"username": "carla"})

    refused = await carla.get()

    assert (served.status, refused.status) == (200, 303)
    assert await sessions_of(server) == []


async def test_lifting_the_revocation_gives_no_session_back(
    server: Api, provider: SignInProvider
) -> None:
    """The request that was refused has deleted it."""
    carla = await Browser(server, provider).sign_in("carla")
    await revoked(server, "stolen", user={"username": "carla"})
    await carla.get()
    await server.call("DELETE", "/apis/identity.orch.io/v1alpha1/credentialrevocations/stolen")

    assert (await carla.get()).status == 303


async def test_a_user_who_is_locked_out_is_signed_out_too(
    server: Api, provider: SignInProvider, clock: MovingClock
) -> None:
    """A session that began before the end of a revocation in the future."""
    until = timestamp(clock.now() + timedelta(hours=1))
    carla = await Browser(server, provider).sign_in("carla")
    await revoked(server, "out", user={"username": "carla", "issuedBefore": until})

    assert (await carla.get()).status == 303


async def test_a_session_ends_with_its_id_token(
    server: Api, provider: SignInProvider, clock: MovingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thief of a session whose ID token was revoked by its id gets no other one."""
    tokens: list[str] = []
    issue = provider.id_token

    def recorded(user: str, **claims: str) -> str:
        tokens.append(issue(user, **claims))
        return tokens[-1]

    monkeypatch.setattr(provider, "id_token", recorded)
    carla = await Browser(server, provider).sign_in("carla")
    await revoked(server, "stolen", token={"jti": jti_of(tokens[0]), "issuer": provider.url})
    clock.ahead += timedelta(seconds=provider.seconds - 10)

    assert (await carla.get()).status == 303
    assert await sessions_of(server) == []


async def test_a_session_ends_when_its_user_gets_another_name(
    server_files: Path,
    provider: SignInProvider,
    tmp_path: Path,
    clock: MovingClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Renewed under the new name, it would go on after the revocation of the user of that name."""
    nick = "carla"
    issue = provider.id_token
    monkeypatch.setattr(
        provider, "id_token", lambda user, **claims: issue(user, nick=nick, **claims)
    )
    async with signing_in(
        server_files, provider, tmp_path, clock, oidc_username_claim="nick"
    ) as server:
        browser = await Browser(server, provider).sign_in("7")
        first = await browser.get()
        nick = "carola"
        clock.ahead += timedelta(seconds=provider.seconds - 10)

        renewed = await browser.get()

        assert (first.status, renewed.status) == (200, 303)
        assert await sessions_of(server) == []


async def test_the_sweep_deletes_the_sessions_of_revoked_users(
    server: Api, provider: SignInProvider
) -> None:
    """Their refresh tokens do not stay in the store until somebody uses the cookie."""
    for user in ("carla", "joe"):
        await Browser(server, provider).sign_in(user)
    await revoked(server, "stolen", user={"username": "carla"})

    await Browser(server, provider).console._sessions.sweep()

    assert await sessions_of(server) == ["joe"]


async def test_an_open_page_shows_no_changes_after_the_revocation(
    server: Api, provider: SignInProvider
) -> None:
    stream = await following(server, provider)
    await revoked(server, "stolen", user={"username": "carla"})
    await server.server.watches.check_all()

    assert b"event: change" not in await ended(stream)


async def test_an_open_page_shows_no_changes_after_its_session_was_deleted(
    server: Api, provider: SignInProvider
) -> None:
    """Signing out elsewhere leaves the ID token of the page valid."""
    stream = await following(server, provider)
    name = (await server.call("GET", SESSIONS)).json["items"][0]["metadata"]["name"]
    await server.call("DELETE", f"{SESSIONS}/{name}")
    await revoked(server, "other", user={"username": "joe"})

    assert b"event: change" not in await ended(stream)


async def test_a_session_ends_on_every_server(
    server_files: Path, provider: SignInProvider, tmp_path: Path, clock: MovingClock
) -> None:
    """One server has the session, the other one the revocation."""
    store = MemoryStore()
    async with (
        signing_in(server_files, provider, tmp_path, clock, store=store) as first,
        signing_in(server_files, provider, tmp_path, clock, store=store) as second,
    ):
        carla = await Browser(first, provider).sign_in("carla")
        there = Browser(second, provider)
        there.cookie = carla.cookie
        served = await there.get()
        await revoked(second, "stolen", user={"username": "carla"})

        refused = await carla.get()

        assert (served.status, refused.status) == (200, 303)
        assert await sessions_of(second) == []
