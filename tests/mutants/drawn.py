"""Mistakes that are drawn at random, so that nobody who wrote the tests has chosen them.

Start with `draw`. It reads the source of the packages that decide about credentials and rights
(`PACKAGES`), lists every small change that this file knows (`changes`), and picks some by a seed:

    comparison    == and !=, < and <=, in and not in, is and is not
    condition     and / or swapped, `not` left out, the condition of an if negated
    constant      True and False swapped, a number one higher
    statement     a call, raise, return, break or continue left out

The tests of a change (`noticing`) are those that the lists beside this file name for its module,
its own unit tests, and every unit, API and security test that imports it. A change may leave the
behaviour as it was; only a reader can say so of one that survives.
"""

import ast
import copy
import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

HERE = Path(__file__).parent
TREE = HERE.parent.parent
SOURCE = TREE / "src" / "orchid"
PACKAGES = (
    *("access", "admission", "approval", "controllers", "credentials", "engine", "kinds"),
    *("ledger", "server", "store", "tlog", "wire"),
)
TESTED_BY = ("unit", "security", "api")
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CONTROLLER_NAME = re.compile(r'^    name="(.+)",$', re.MULTILINE)  # by which tests run it
LEFT_OUT = (ast.Raise, ast.Return, ast.Break, ast.Continue)


@dataclass(frozen=True)
class Drawn:
    """One mistake: the text between two positions of a file becomes another."""

    file: str  # below src/orchid
    line: int
    start: int  # in bytes, as `ast` counts
    end: int
    before: str
    after: str
    tests: tuple[str, ...] = ()

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.file}:{self.line}: {before}  ->  {after}"

    def applied(self, source: str) -> str:
        data = source.encode()
        if data[self.start : self.end] != self.before.encode():
            raise ValueError(f"{self.file} has changed at line {self.line}")
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def draw(count: int, seed: int, only: str = "") -> list[Drawn]:
    """So many mistakes in files whose name contains a text; the same for the same source."""
    files = [path for name in PACKAGES for path in sorted((SOURCE / name).rglob("*.py"))]
    names = [name for path in files if only in (name := str(path.relative_to(SOURCE)))]
    found = [one for name in names for one in changes(name, (SOURCE / name).read_text())]
    picked = random.Random(seed).sample(found, min(count, len(found)))
    return [Drawn(**{**vars(one), "tests": noticing(one.file)}) for one in picked]


def changes(file: str, source: str) -> Iterator[Drawn]:
    """Every change of a file that is known here."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for node in _nodes(ast.parse(source)):
        for part, after in _replaced(node):
            assert part.end_lineno is not None
            assert part.end_col_offset is not None
            start = starts[part.lineno - 1] + part.col_offset
            end = starts[part.end_lineno - 1] + part.end_col_offset
            before = source.encode()[start:end].decode()
            yield Drawn(file, part.lineno, start, end, before, after)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run; not annotations, texts, or what is only logged."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield from _nodes(child)


def _is_text(node: ast.AST) -> bool:
    """A formatted string, or a call that only writes to the log."""
    logs = isinstance(node, ast.Expr) and ast.unparse(node.value).startswith("log.")
    return logs or isinstance(node, ast.JoinedStr)


def _may_be_left_out(node: ast.AST) -> TypeGuard[ast.stmt]:
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    return is_call or isinstance(node, LEFT_OUT)


def _replaced(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """A node, or a part of it, and the text that takes its place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = copy.deepcopy(node)
        other.ops = [SWAPPED[type(node.ops[0])]()]
        yield node, f"({ast.unparse(other)})"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, f"({word.join(f'({ast.unparse(value)})' for value in node.values)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.If | ast.IfExp) and not isinstance(node.test, ast.Compare):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield node, str(node.value + 1)
    elif _may_be_left_out(node):
        yield node, "pass"


@cache
def _texts() -> dict[str, str]:
    """Every test that may notice a mistake, and its source."""
    paths = (path for kind in TESTED_BY for path in (TREE / "tests" / kind).rglob("test_*.py"))
    return {str(path.relative_to(TREE)): path.read_text() for path in paths}


@cache
def _listed() -> list[tuple[str, list[str]]]:
    """Files and their tests, by the lists beside this file."""
    lists = [tomllib.loads(path.read_text())["mutant"] for path in HERE.glob("*.toml")]
    return [(row["file"], row["tests"]) for rows in lists for row in rows]


def noticing(file: str) -> tuple[str, ...]:
    """The tests that should notice a mistake in a file of src/orchid; never none."""
    module = "orchid." + file.removesuffix(".py").replace("/", ".")
    folder, _, name = module.rpartition(".")
    imports = (module, f"from {folder} import {name}", f"    {name},\n")
    own = Path("tests/unit", file).with_name(f"test_{Path(file).name}")
    found = {str(own)} if (TREE / own).exists() else set()
    found.update(test for listed, tests in _listed() if listed == file for test in tests)
    source = (SOURCE / file).read_text() if (SOURCE / file).exists() else ""
    named = CONTROLLER_NAME.findall(source) if file.startswith("controllers/") else []
    for path, text in _texts().items():
        imported = (
            imports[0] in text or imports[1] in text or (folder in text and imports[2] in text)
        )
        run = "unit/controllers" in path and any(f'"{name}"' in text for name in named)
        if imported or run:
            found.add(path)
    nearest = next(each for each in own.parents if (TREE / each).is_dir())
    return tuple(sorted(found)) or (str(nearest),)
