"""Mistakes that are drawn at random, so that nobody who wrote the tests has chosen them.

Start with `draw`. It lists every small change that this file knows (`changes`) in files or folders,
and picks some by a seed; those in conditions that refuse are three times as likely (`REFUSING`):

    comparison    == and !=, < and <=, in and not in, is and is not
    condition     and / or swapped, a part or `not` left out, the condition of an if negated,
                  a filter of a comprehension left out
    guard         an if that refuses never does
    constant      True and False swapped, a number one higher, another default, another key
    arguments     two variables of a call swapped
    element       one of a list, tuple, set or dict left out
    first         any instead of all, a loop that ends after the first
    statement     a call, raise, return, break or continue, or an await left out

A change may leave the behaviour as it was; only a reader can say so of one that survives. Give it a
row with `changes_nothing` in the lists beside this file, and it is not drawn again (`run.py`).
"""

import ast
import copy
import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeGuard

TREE = Path(__file__).parent.parent.parent
DEFAULT = ("src/orchid",)
REFUSING = 3  # how much likelier such a change is
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
SELECTING = {"all": "any", "any": "all", "max": "min", "min": "max"}
LEAVING = (ast.Raise, ast.Return, ast.Break, ast.Continue)
VARIABLES = (ast.Name, ast.Attribute, ast.Subscript)
OF_FILE = re.compile(r"^\+\+\+ (\S+)\n((?:[-+@\\].*\n)*)", re.MULTILINE)
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class Drawn:
    """One mistake: the text between two positions of a file becomes another."""

    path: str  # below the tree
    line: int
    start: int  # in bytes, as `ast` counts
    end: int
    before: str
    after: str
    refuses: bool = False

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}: {before}  ->  {after}"

    def applied(self, source: str) -> str:
        data = source.encode()
        if data[self.start : self.end] != self.before.encode():
            raise ValueError(f"{self.path} has changed at line {self.line}")
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


class Change(NamedTuple):
    """A node and the text that takes its place."""

    node: ast.expr | ast.stmt
    after: str
    refuses: bool = False


def draw(count: int, seed: int, places: Sequence[str] = DEFAULT, since: str = "") -> list[Drawn]:
    """So many mistakes in these files and folders; the same for the same source.

    With `since`, only in lines that are newer than that commit.
    """
    found = []
    new = _new_lines(since) if since else {}
    for path in _files(places):
        name, source = str(path.relative_to(TREE)), path.read_text()
        found += [one for one in changes(name, source) if not since or one.line in new[name]]
    chance = random.Random(seed)
    drawn = sorted(found, key=lambda one: chance.random() ** (1 / (REFUSING if one.refuses else 1)))
    return drawn[: -count - 1 : -1]


def _files(places: Iterable[str]) -> list[Path]:
    found = set()
    for place in places:
        path = (TREE / place).resolve()
        if not path.exists():
            raise FileNotFoundError(f"--in {place}: there is no such file or folder")
        found |= set(path.rglob("*.py")) if path.is_dir() else {path}
    return sorted(found)


def _new_lines(since: str) -> dict[str, Container[int]]:
    """By file. The diff is of the whole tree, or it would not see where a file came from."""
    options = ("--unified=0", "--find-renames", "-l0", "--no-prefix")
    command = ["git", "diff", *options, since, "--", "*.py"]
    diff = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout
    lines: dict[str, Container[int]] = defaultdict(set)
    for name, hunks in (each.groups() for each in OF_FILE.finditer(diff)):
        ranges = [(int(first), int(count or 1)) for first, count in HUNK.findall(hunks)]
        lines[name] = {first + number for first, count in ranges for number in range(count)}
    return lines


def changes(path: str, source: str) -> Iterator[Drawn]:
    """Every change of a file that is known here."""
    data, starts = source.encode(), [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    refusing, keys = _refusing(tree), _Keys(tree)
    for node in _nodes(tree):
        for part, after, refuses in (*_replaced(node), *keys.replaced(node)):
            assert part.end_lineno is not None
            assert part.end_col_offset is not None
            start = starts[part.lineno - 1] + part.col_offset
            end = starts[part.end_lineno - 1] + part.end_col_offset
            before = data[start:end].decode()
            text = after.replace(BEFORE, before)
            yield Drawn(path, part.lineno, start, end, before, text, refuses or part in refusing)


BEFORE = "\0"  # in the text that takes the place of a node: its own


def _refusing(tree: ast.AST) -> set[ast.AST]:
    """All nodes of conditions that refuse: of an if that leaves, and of an answer yes or no."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.body[-1], LEAVING):
            found.update(ast.walk(node.test))
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Compare | ast.BoolOp):
            found.update(ast.walk(node.value))
    return found


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
    return is_call or isinstance(node, LEAVING)


def _replaced(node: ast.AST) -> Iterator[Change]:
    """A node, or a part of it, and the text that takes its place."""
    if isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield from _other_condition(node)
    elif isinstance(node, ast.If | ast.IfExp):
        yield from _other_branch(node)
    elif isinstance(node, ast.comprehension):
        yield from (Change(each, "True") for each in node.ifs)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield Change(node, str(not node.value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield Change(node, str(node.value + 1))
    elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
        yield from _fewer_elements(node)
    elif isinstance(node, ast.Await):
        yield Change(node, f"({ast.unparse(node.value)})")
    elif isinstance(node, ast.Call):
        yield from _other_arguments(node)
    elif isinstance(node, ast.arguments):
        yield from _other_defaults(node)
    elif isinstance(node, ast.For | ast.AsyncFor) and not isinstance(node.body[-1], LEAVING):
        last = node.body[-1]
        yield Change(last, f"{BEFORE}\n{' ' * last.col_offset}break")
    if _may_be_left_out(node):
        yield Change(node, "pass", isinstance(node, ast.Raise))


def _other_condition(node: ast.Compare | ast.BoolOp | ast.UnaryOp) -> Iterator[Change]:
    """The opposite, or nearly so; the other word; and each part left out."""
    if isinstance(node, ast.Compare):
        if len(node.ops) == 1:
            other = copy.copy(node)
            other.ops = [SWAPPED[type(node.ops[0])]()]
            yield Change(node, f"({ast.unparse(other)})")
        return
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            yield Change(node, f"({ast.unparse(node.operand)})")
        return
    parts = [f"({ast.unparse(value)})" for value in node.values]
    word, opposite = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
    yield Change(node, f"({opposite.join(parts)})")
    for number in range(len(parts)):
        yield Change(node, f"({word.join(parts[:number] + parts[number + 1 :])})")


def _other_branch(node: ast.If | ast.IfExp) -> Iterator[Change]:
    if not isinstance(node.test, ast.Compare):
        yield Change(node.test, f"(not ({ast.unparse(node.test)}))")
    if isinstance(node, ast.If) and isinstance(node.body[-1], LEAVING):
        yield Change(node.test, "False")


def _fewer_elements(node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> Iterator[Change]:
    """Each element left out of two or more; of a tuple if it lists what is known beforehand."""
    if isinstance(node, ast.Dict):
        if len(node.values) > 1:
            for number in range(len(node.values)):
                fewer = [each[:number] + each[number + 1 :] for each in (node.keys, node.values)]
                yield Change(node, ast.unparse(ast.Dict(*fewer)))
        return
    if len(node.elts) > 1 and (not isinstance(node, ast.Tuple) or all(map(_is_fixed, node.elts))):
        for number in range(len(node.elts)):
            other = copy.copy(node)
            other.elts = node.elts[:number] + node.elts[number + 1 :]
            yield Change(node, ast.unparse(other))


def _is_fixed(node: ast.AST) -> bool:
    """A constant, or a name that looks like one or like a class."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return isinstance(node, ast.Constant) or name[:1].isupper()


def _other_arguments(node: ast.Call) -> Iterator[Change]:
    """Two neighbours swapped if both are variables; and another word for all, any, max and min."""
    if isinstance(node.func, ast.Name) and node.func.id in SELECTING:
        yield Change(node.func, SELECTING[node.func.id])
    for arguments in (node.args, [each.value for each in node.keywords]):
        several = [each for each in arguments if isinstance(each, VARIABLES)]
        for one, next_one in pairwise(several):
            if _is_fixed(one) == _is_fixed(next_one):
                yield Change(node, _swapped(node, {one: next_one, next_one: one}))


def _swapped(node: ast.Call, others: dict[ast.expr, ast.expr]) -> str:
    """The call with other nodes in the place of some arguments."""
    named = [ast.keyword(each.arg, others.get(each.value, each.value)) for each in node.keywords]
    return ast.unparse(ast.Call(node.func, [others.get(each, each) for each in node.args], named))


def _other_defaults(node: ast.arguments) -> Iterator[Change]:
    """Another text, and for None a 1; numbers and yes or no are changed as everywhere."""
    for default in (*node.defaults, *node.kw_defaults):
        if isinstance(default, ast.Constant):
            if isinstance(default.value, str):
                yield Change(default, repr(f"{default.value}x"))
            elif default.value is None:
                yield Change(default, "1")


class _Keys:
    """Texts by which a file looks into mappings; each becomes the next of them."""

    def __init__(self, tree: ast.AST) -> None:
        self._next: dict[str, str] = defaultdict(lambda: "other")
        keys = sorted({key.value for node in ast.walk(tree) for key in self._keys(node)})
        self._next.update(pairwise(keys))

    def replaced(self, node: ast.AST) -> Iterator[Change]:
        for key in self._keys(node):
            yield Change(key, repr(self._next[key.value]))

    @staticmethod
    def _keys(node: ast.AST) -> Iterator["_Text"]:
        """The key of `mapping["key"]` and of `mapping.get("key")`."""
        if isinstance(node, ast.Subscript):
            found = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = node.args[:1] if node.func.attr in ("get", "pop", "setdefault") else []
        else:
            found = []
        yield from (each for each in found if _is_string(each))


class _Text(ast.Constant):
    value: str


def _is_string(node: ast.AST) -> TypeGuard[_Text]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
