"""Fixtures of the end-to-end tests: servers that end with the test that started them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import Server, running_server


class StartServer(Protocol):
    def __call__(self, *flags: str, port: int | None = None) -> Server: ...


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers on the test's own data directory, one after the other, with static tokens."""
    with ExitStack() as running:

        def start(*flags: str, port: int | None = None) -> Server:
            tokens = ("--token-auth-file", str(TOKENS))
            server = running_server(tmp_path / "data", *tokens, *flags, port=port)
            return running.enter_context(server)

        yield start
