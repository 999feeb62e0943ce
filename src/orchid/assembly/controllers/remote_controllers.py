"""The controllers alone, for a remote server, with one credential for all of them."""

import asyncio
import contextlib
import logging
from pathlib import Path

from orchid.assembly import setting_files
from orchid.assembly.controllers.controlling import (
    controller_context,
    file_token_issuer,
)
from orchid.assembly.controllers.running import run_controllers
from orchid.assembly.kinds import stored_kinds
from orchid.assembly.server import wanted_controllers
from orchid.features.authorities.parts import hsm_of
from orchid.features.authorities.remote_keys import RemoteKeys
from orchid.features.rights.authorizers.union import Union
from orchid.features.rights.kinds import subject_access_review
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.client.client import Client
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.outbound.https_client import HttpsClient
from orchid.kernel.outbound.remote import InvalidRemote, Remote, read_kubeconfig
from orchid.kernel.server.in_process.clients import LEADER, user_agent
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.naming import Naming

MAX_ANSWER = 256 << 20
TIMEOUT = 60.0
KEPT_CONNECTIONS = 32
RETRY_SECONDS = 2.0

log = logging.getLogger(__name__)


async def control(settings: Settings, kubeconfig: Path, stop: asyncio.Event) -> None:
    """Run the controllers of a kubeconfig's server until `stop` is set."""
    naming = settings.naming
    setting_files.require_usable(settings, setting_files.OF_CONTROLLERS)
    files = data_directory.located(settings)
    try:
        remote = read_kubeconfig(kubeconfig)
    except InvalidRemote as problem:
        raise BadSettings(f"--kubeconfig: {problem}") from None
    reviews = subject_access_review.declare(naming, Union())
    catalog = Catalog([*stored_kinds(naming), *reviews])
    clients = RemoteClients(remote, catalog, naming)
    of_files = file_token_issuer(settings)
    keys = RemoteKeys(clients(LEADER), naming, of_files)
    await _read_first(keys, stop)
    context = controller_context(
        settings,
        files,
        SystemClock(),
        keys.signer,
        stores_authority=keys.stores_authority,
        authorities=keys.authorities if keys.stores_authority else None,
        hsm=hsm_of(settings),
    )
    reading = asyncio.ensure_future(keys.run())
    working = asyncio.ensure_future(run_controllers(wanted_controllers(settings), clients, context))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        reading.cancel()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        await clients.close()


async def _read_first(keys: RemoteKeys, stop: asyncio.Event) -> None:
    """Read the keys of the server, as soon as it can be reached."""
    while not stop.is_set():
        try:
            await keys.read()
            return
        except (ApiError, CallFailed) as problem:
            log.warning("controllers.server_not_reached", extra={"why": str(problem)})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_SECONDS)


class RemoteClients:
    """One client for all, to a remote server."""

    def __init__(self, remote: Remote, catalog: Catalog, naming: Naming) -> None:
        self._transport = HttpsClient(
            remote,
            max_answer=MAX_ANSWER,
            timeout=TIMEOUT,
            keeps=KEPT_CONNECTIONS,
            user_agent=user_agent(naming),
        )
        self._client = Client(self._transport, catalog)

    def __call__(self, name: str) -> Client:
        return self._client

    async def close(self) -> None:
        await self._transport.close()
