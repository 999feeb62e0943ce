"""A test that starts a server, a process or a browser has the marker `starts`, and no other."""

import contextlib
import functools
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import hypothesis
import pytest
from hypothesis import strategies

from orchid.kernel.http.listener import Listener
from tests.starting import UNIT, Starting, starts


def process() -> None:
    subprocess.run(["true"], check=True)


def within() -> Callable[[], None]:
    def inner() -> None:
        process()

    return inner


class Server:
    @classmethod
    def started(cls) -> "Server":
        process()
        return cls()


class OtherServer(Server):
    pass


@contextlib.contextmanager
def server() -> Iterator[Server]:
    yield OtherServer()


def serves() -> None:
    with server():
        pass


def first(*, more: bool = True) -> None:
    if more:
        second()
    process()


def second() -> None:
    first(more=False)


def listens(state: Any) -> Any:
    return Listener(state, state)


def reads() -> bool:
    return Path("subprocess").exists()


def connects() -> None:
    socket.create_connection(("127.0.0.1", 1))


@pytest.mark.parametrize("source", [process, within, OtherServer, serves, first, second, listens])
def test_what_starts_something_is_recognised(source: object) -> None:
    """Also through other functions, classes and decorators of the tests, in whichever order."""
    assert starts(source)


@hypothesis.settings(max_examples=1)
@hypothesis.given(server=strategies.just(OtherServer()))
def test_a_property_is_recognised(request: pytest.FixtureRequest, server: OtherServer) -> None:
    """Its own code counts, not that of the library around it."""
    assert isinstance(server, Server)
    assert request.node.get_closest_marker("starts")


def test_a_function_within_another_is_recognised() -> None:
    """As a decorator makes one."""
    inner = process

    @functools.wraps(reads)
    def outer() -> None:
        inner()

    vars(outer).clear()  # __wrapped__, which leads to the function itself
    assert starts(outer)


@pytest.mark.parametrize("source", [reads, connects, Path, SimpleNamespace, len, None])
def test_nothing_else_is(source: object) -> None:
    """A text, a client, and what is not of the tests."""
    assert not starts(source)


@pytest.fixture
def served() -> Iterator[Server]:
    with server() as running:
        yield running


@pytest.mark.usefixtures("served")
def test_a_fixture_sets_the_marker(request: pytest.FixtureRequest) -> None:
    """Of every test that uses it."""
    assert request.node.get_closest_marker("starts")


def test_without_a_start_there_is_no_marker(request: pytest.FixtureRequest) -> None:
    """As here."""
    assert not request.node.get_closest_marker("starts")


def call(marked: bool, event: str, path: Path = UNIT / "test_example.py") -> None:
    """The hooks of a test during which the event happens."""
    config = SimpleNamespace(option=SimpleNamespace(markexpr=""))
    plugin = Starting(cast(pytest.Config, config))
    item = SimpleNamespace(path=path, get_closest_marker=lambda _: marked or None)
    protocol = plugin.pytest_runtest_protocol()
    next(protocol)
    test = plugin.pytest_runtest_call(cast(pytest.Item, item))
    next(test)
    plugin.notice(event, ())
    with contextlib.suppress(StopIteration):
        test.send(None)


@pytest.mark.parametrize("event", ["socket.bind", "subprocess.Popen", "os.fork"])
def test_a_start_without_the_marker_fails(event: str) -> None:
    """The message says where it was."""
    with pytest.raises(pytest.fail.Exception, match=rf"{event} in .*{__name__.split('.')[-1]}\.py"):
        call(False, event)


def test_a_start_with_the_marker_passes() -> None:
    """So does one of another folder, and an event that starts nothing."""
    call(True, "socket.bind")
    call(False, "socket.bind", UNIT.parent / "api" / "test_example.py")
    call(False, "socket.connect")


@pytest.mark.starts
def test_the_hook_notices_real_starts() -> None:
    """A socket and a process: the names of events are those of Python."""
    events: set[str] = set()
    running = True

    def notice(event: str, _arguments: object) -> None:
        if running:
            events.add(event)

    sys.addaudithook(notice)
    process()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
    running = False

    assert {"subprocess.Popen", "socket.bind"} <= events
