"""A server in memory, and the controllers that a test wants beside it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from orchid.assembly.controllers import controlling
from orchid.assembly.controllers.running import build
from orchid.assembly.server import Assembly
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.approving.controllers.approve_requests import ApproveRequests
from orchid.features.certificates.controllers.signing_controller import SigningController
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.objects.event_writer import EventWriter
from orchid.features.objects.kinds.namespace import Namespace
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.ports import HsmKeys
from orchid.kernel.client.client import Client
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.loop import Running
from orchid.kernel.server.in_process.clients import EVENTS
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH, Naming
from orchid.kernel.wire.user import MASTERS, UserInfo
from tests.api.world import api

T = TypeVar("T", bound=Object)

PATIENCE = 30.0
CLIENT_USAGES = ("digital signature", "client auth")


class MovingClock:
    """The real time, moved by as much as a test says, or stopped."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.stopped: datetime | None = None

    def now(self) -> datetime:
        return (self.stopped or datetime.now(UTC)) + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead.total_seconds()


@dataclass
class Beside:
    """The fixture of a test of a controller."""

    server: Assembly
    admin: Client
    context: ControllerContext
    clock: MovingClock
    naming: Naming = ORCH
    events: EventWriter = field(init=False)

    def __post_init__(self) -> None:
        self.events = EventWriter(self.server.clients(EVENTS), self.clock)

    def made(self, *wanted: str) -> list[Running]:
        """Controllers with their own identities, not yet running."""
        return build(frozenset(wanted), self.server.clients, self.context, self.events)

    @asynccontextmanager
    async def running(self, *wanted: str) -> AsyncIterator[None]:
        """Run controllers while the block lasts."""
        tasks = [asyncio.create_task(one.run()) for one in self.made(*wanted)]
        tasks.append(asyncio.create_task(self.events.run()))
        try:
            yield
            assert not [task for task in tasks if task.done()], "a controller ended by itself"
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def until(self, look: Callable[[], Awaitable[T | None]]) -> T:
        """Wait until a look finds something."""
        async with asyncio.timeout(PATIENCE):
            while not (found := await look()):  # noqa: ASYNC110 -- asked as any client would
                await asyncio.sleep(0.002)
        return found

    async def until_like(
        self,
        type_: type[T],
        name: str,
        namespace: str = "",
        condition: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """Wait until an object is there and as it should be."""

        async def look() -> T | None:
            found = await self.admin.find(type_, name, namespace)
            return found if found is not None and condition(found) else None

        return await self.until(look)

    async def until_gone(self, type_: type[Object], name: str, namespace: str = "") -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.admin.find(type_, name, namespace):  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.002)

    async def namespace(self, name: str) -> Namespace:
        return await self.admin.create(Namespace(metadata=ObjectMeta(name=name)))

    async def account(self, name: str, namespace: str = "default") -> ServiceAccount:
        meta = ObjectMeta(name=name, namespace=namespace)
        return await self.admin.create(ServiceAccount(metadata=meta))

    async def request(
        self,
        name: str,
        request: bytes,
        *,
        signer: str = ORCH.client_signer,
        usages: tuple[str, ...] = CLIENT_USAGES,
        user: UserInfo | None = None,
        seconds: int | None = None,
        approved: bool = False,
    ) -> CertificateSigningRequest:
        client = self.admin if user is None else self.server.clients.of_user(user)
        spec = CertificateSigningRequestSpec(
            request=request, signer_name=signer, usages=usages, expiration_seconds=seconds
        )
        made = await client.create(
            CertificateSigningRequest(metadata=ObjectMeta(name=name), spec=spec)
        )
        return await self.approve(made) if approved else made

    async def approve(self, csr: CertificateSigningRequest) -> CertificateSigningRequest:
        said = csr.with_condition("Approved", "ByTest", "said the test")
        await self.admin.update(said, "approval")
        return await self.admin.get(CertificateSigningRequest, csr.name)


async def policies_loaded(controller: ApproveRequests) -> None:
    """Let the controller load every policy and authority, without running it."""
    followers = (
        controller.policies.follow(lambda: None),
        controller.authorities.follow(lambda _: None),
    )
    following = asyncio.gather(*followers)
    async with asyncio.timeout(PATIENCE):
        await controller.policies.all_loaded.wait()
        await controller.authorities.all_loaded.wait()
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def authorities_loaded(controller: SigningController[Any]) -> None:
    """Let the controller load every authority, without running it."""
    following = asyncio.ensure_future(controller.authorities.follow(lambda _: None))
    async with asyncio.timeout(PATIENCE):
        await controller.authorities.all_loaded.wait()
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


@asynccontextmanager
async def beside(directory: Path, **settings: Any) -> AsyncIterator[Beside]:
    async with api(directory, **settings) as made:
        server = made.server
        clock = MovingClock()
        admin = server.clients.of_user(UserInfo(username="admin", groups=(MASTERS,)))
        context = controlling.controller_context(
            server.settings,
            server.files,
            clock,
            server.context.port(FollowedKeys).keys.legacy_signer,
            hsm=server.context.port(HsmKeys).keys,
        )
        yield Beside(server, admin, context, clock)
