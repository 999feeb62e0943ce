"""A server with its front door /trust/, over files that are made once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.features.trust_bundles.server import TrustServer
from tests.unit.features.beside import Beside, beside


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trusted") / "data"


@pytest.fixture
async def publishing(server_files: Path) -> AsyncIterator[Beside]:
    """A server whose bundles are published and served."""
    async with beside(server_files) as made, made.running("bundle-publisher"):
        serving = asyncio.create_task(made.server.context.port(TrustServer).run())
        try:
            yield made
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
