"""The tests of the listener run on both event loops: uvloop, which we use, and asyncio's own.

All other tests of the server need no socket, and asyncio's own loop is enough for them.
"""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

SOCKET_TESTS = ("test_listen", "test_tls")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if not item.path.name.startswith(SOCKET_TESTS):
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
