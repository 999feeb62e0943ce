"""The tests of the listener run on both event loops: uvloop, which we use, and asyncio's own."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

SOCKET_TESTS = ("test_listen", "test_tls")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    if not item.path.name.startswith(SOCKET_TESTS):
        return None
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
