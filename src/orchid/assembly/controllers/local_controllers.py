"""The controllers of this process, as clients of its own request chain."""

import asyncio

from orchid.assembly.controllers.controlling import controller_context
from orchid.assembly.controllers.running import run_controllers
from orchid.assembly.server import Assembly
from orchid.features.authorities.file_signers import certificates_of
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.ledger.known_keys import note_keys
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.ports import HsmKeys


async def control(server: Assembly) -> None:
    """Run the configured controllers until cancelled; again when the cluster CA is imported."""
    platform = server.context.optional(PlatformAuthority)
    if platform is not None and not platform.is_stored:
        imported = asyncio.Event()
        platform.changed.append(imported.set)
        running = asyncio.ensure_future(_control(server, is_stored=False))
        waiting = asyncio.ensure_future(imported.wait())
        try:
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            running.cancel()
            waiting.cancel()
            await asyncio.wait((running, waiting))
    await _control(server, is_stored=platform is not None)


async def _control(server: Assembly, *, is_stored: bool) -> None:
    context = controller_context(
        server.settings,
        server.files,
        server.clock,
        server.context.port(FollowedKeys).keys.legacy_signer,
        server=server.context,
        stores_authority=is_stored,
        hsm=server.context.port(HsmKeys).keys,
    )
    if not is_stored:
        authorities = certificates_of(context.signers)
        await note_keys(server.store, "authority", authorities, server.clock.now())
    await run_controllers(server.wanted_controllers, server.clients, context)
