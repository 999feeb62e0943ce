"""Errors become answers in few files, and docs/architecture.md lists all of them."""

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.server.failures import failed
from orchid.kernel.wire.errors import MethodNotAllowed, NoSuchRoute

ROOT = Path(__file__).resolve().parents[4]
SOURCE = ROOT / "src" / "orchid"
FIRST_ERROR = 400
# Where an answer takes its status; a definition is named by its module and its own name.
ANSWERS = {
    ("kernel.http.messages", "Response"): 0,
    ("kernel.http.messages", "Stream"): 0,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = tuple[str, str]


def test_errors_become_answers_where_the_page_says() -> None:
    """Every function that chooses the status of a failure is in a file of the table."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Where errors become answers")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([\w/]+)\.py` \|", section, re.MULTILINE))
    modules = [Module(path) for path in SOURCE.rglob("*.py")]
    makers = answer_makers(modules)

    found = {
        module.name.replace(".", "/")
        for module in modules
        if module.sends_error_events()
        or any(
            not is_success(status) and passed_on(within, status) is None
            for within, status in module.statuses(makers)
        )
    }

    assert listed
    assert found == listed


class Module:
    """One module, as text; it is parsed if it names something of interest."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        self._text = path.read_text()
        self._parsed = False

    def _parse(self) -> None:
        if self._parsed:
            return
        self._parsed = True
        tree = ast.parse(self._text)
        self._nodes = list(ast.walk(tree))
        functions = [node for node in self._nodes if isinstance(node, Function)]
        self._around = {id(node): one for one in functions for node in ast.walk(one)}
        self._defined = {one.name: (self.name, one.name) for one in functions}
        self._constants = {
            ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]): value
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(value := node.value, ast.Constant)
        }
        for node in self._nodes:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("orchid."):
                origin = str(node.module).removeprefix("orchid.")
                self._defined |= {one.name: (origin, one.name) for one in node.names}
        calls = [_called(node) for node in self._nodes if isinstance(node, ast.Call)]
        self._calls = [
            (self._around.get(id(call)), self._defined[name], arguments)
            for call, name, arguments in calls
            if name in self._defined
        ]

    def statuses(self, makers: dict[Definition, int]) -> Iterator[tuple[Function | None, ast.expr]]:
        """Each status with which an answer is made, and the function around it."""
        names = "|".join(name for _, name in makers)
        if not re.search(rf"\b(?:{names})[(,]", self._text):  # called, or an argument of partial
            return
        self._parse()
        for within, called, arguments in self._calls:
            position = makers.get(called)
            if position is not None and position < len(arguments):
                status = arguments[position]
                yield within, self._constants.get(ast.unparse(status), status)

    def sends_error_events(self) -> bool:
        """Whether the Status of an error is put into an event."""
        if ".failure(" not in self._text:
            return False
        self._parse()
        return any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "failure"
            and any(ast.unparse(one).endswith(".status()") for one in node.args)
            for node in self._nodes
        )

    def makers(self, known: dict[Definition, int]) -> dict[Definition, int]:
        """The functions here that answer with the status that their caller chooses."""
        found = ((within, passed_on(within, status)) for within, status in self.statuses(known))
        return {
            (self.name, within.name): position
            for within, position in found
            if within is not None and position is not None
        }


def _called(call: ast.Call) -> tuple[ast.Call, str, list[ast.expr]]:
    """A call, the name of the function that it calls in the end, and that function's arguments."""
    called, arguments = call.func, call.args
    if ast.unparse(called) in ("functools.partial", "partial"):
        called, *arguments = arguments
    return call, ast.unparse(called).removeprefix("self."), arguments


def answer_makers(modules: list[Module]) -> dict[Definition, int]:
    makers = dict(ANSWERS)
    while True:
        more = {key: at for module in modules for key, at in module.makers(makers).items()}
        if more.keys() <= makers.keys():
            return makers
        makers |= more


def passed_on(within: Function | None, status: ast.expr) -> int | None:
    """The position of the parameter that the status is; None if the function chooses it."""
    if within is None or not isinstance(status, ast.Name):
        return None
    names = [one.arg for one in within.args.args if one.arg != "self"]
    return names.index(status.id) if status.id in names else None


def is_success(status: ast.expr) -> bool:
    if isinstance(status, ast.IfExp):
        return is_success(status.body) and is_success(status.orelse)
    if isinstance(status, ast.Constant):
        return isinstance(status.value, int) and status.value < FIRST_ERROR
    return ast.unparse(status) == "websocket.SWITCHING"


@pytest.mark.parametrize(
    ("problem", "status", "header"),
    [
        (NoSuchRoute(), 404, b""),
        (MethodNotAllowed(), 405, b"Allow: GET, HEAD"),
        (asyncio.CancelledError(), 503, b""),
        (RuntimeError("secret"), 500, b""),
    ],
)
def test_an_exception_out_of_a_handler_is_answered_in_plain_text(
    problem: BaseException, status: int, header: bytes
) -> None:
    """The exception is in the log, not in the answer."""
    answer = failed(HttpRequest("GET", "/", "/", "", {}, Peer("127.0.0.1:1")), problem)

    assert answer.status == status
    assert answer.headers.startswith(b"Content-Type: text/plain")
    assert header in answer.headers
    assert answer.body.endswith(b"\n")
    assert b"secret" not in answer.body
