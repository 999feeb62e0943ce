"""The marker `starts`: tests that start a server, a process or a browser. `make quick` omits them.

Nobody has to set it. A test has it if its source, that of its fixtures, or that of functions and
classes of the tests which these use, names something in NAMES or OBJECTS.

A test of tests/unit without the marker fails if it starts a process or binds a socket. If it must,
add what it uses to these lists, or mark its module: `pytestmark = pytest.mark.starts`.
"""

import functools
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

MARKER: Final = "starts"
# modules, functions and methods that start something, by name
NAMES: Final = frozenset(
    [
        "subprocess",
        "multiprocessing",
        "fork",
        "forkpty",
        "create_subprocess_exec",
        "create_server",
        "start_server",
        "start_unix_server",
        "bind",
        "serve_forever",
        "playwright",
    ]
)
# classes and functions; a whole server in memory is a server, too
OBJECTS: Final = frozenset(
    {
        "orchid.assembly.server.Assembly",
        "orchid.features.console.web.loopback.LoopbackListener",
        "orchid.kernel.expressions.isolated.Evaluator",
        "orchid.kernel.http.listener.Listener",
        "orchid.kernel.outbound.exec_plugin.logged_in",
        "tests.unit.kernel.credentials.own_authorities.own",  # a process makes RSA keys
    }
)
EVENTS: Final = frozenset({"socket.bind", "subprocess.Popen", "os.fork", "os.posix_spawn"})
TESTS: Final = Path(__file__).parent
UNIT: Final = TESTS / "unit"
OWN: Final = (f"{TESTS}/", f"{TESTS.parent}/src/")


class Starting:
    """A plugin of pytest: it sets the marker, keeps it true, and reports what was left out."""

    def __init__(self, config: pytest.Config) -> None:
        self._left_out = 0
        self._quick = config.option.markexpr == f"not {MARKER}"
        self._started: str | None = None

    def notice(self, event: str, _arguments: tuple[object, ...]) -> None:
        """For sys.addaudithook: remember the first start within a test."""
        if event in EVENTS and self._started is None:
            self._started = f"{event} in {_caller()}"

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if isinstance(item, pytest.Function) and any(map(starts, _sources(item))):
            item.add_marker(MARKER)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._started = None
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        unmarked = item.path.is_relative_to(UNIT) and item.get_closest_marker(MARKER) is None
        if unmarked and self._started:
            pytest.fail(f"{self._started}, without the marker {MARKER}: see tests/starting.py")
        return result

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._left_out += len(items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left out"] = self._left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._left_out = getattr(node, "workeroutput", {}).get("left out", self._left_out)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._quick:
            terminalreporter.write_line(
                f"left out: {self._left_out} tests that start a server, a process or a browser, "
                "and everything beside tests/unit; properties had few examples. "
                "`make test` runs all, `make near` what is near your change."
            )


def starts(source: object) -> bool:
    """Whether a function or a class, or one of the tests that it uses, names what starts one."""
    waiting, visited = [source], {source}
    while waiting:
        names_one, used = _content(waiting.pop())
        if names_one:
            return True
        waiting += used - visited
        visited |= used
    return False


def _sources(item: pytest.Function) -> Iterator[object]:
    """The test and its fixtures, without their decorators."""
    property_test = getattr(item.function, "hypothesis", None)
    yield property_test.inner_test if property_test else inspect.unwrap(item.function)
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        yield from (inspect.unwrap(each.func) for each in definitions)


@functools.cache
def _content(source: object) -> tuple[bool, frozenset[object]]:
    """Whether the source itself names what starts something; the functions and classes it uses."""
    path = f"{getattr(source, '__module__', '')}.{getattr(source, '__qualname__', '')}"
    if path in OBJECTS or not path.startswith("tests."):
        return path in OBJECTS, frozenset()
    if isinstance(source, type):
        return False, frozenset(source.__bases__) | set(map(_function, vars(source).values()))
    if not isinstance(source, FunctionType):
        return False, frozenset()
    names = set(_names(source.__code__))
    cells = zip(source.__code__.co_freevars, source.__closure__ or (), strict=True)
    scope = source.__globals__ | {name: cell.cell_contents for name, cell in cells}
    used = (inspect.unwrap(scope[name]) for name in names if callable(scope.get(name)))
    return bool(names & NAMES), frozenset(
        each for each in used if isinstance(each, type | FunctionType)
    )


def _function(member: object) -> object:
    """The function of a method, a property or a class method."""
    member = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
    return inspect.unwrap(member) if isinstance(member, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _caller() -> str:
    """The innermost line of the tests or the product."""
    frame = sys._getframe(2)
    while frame.f_back and not frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
