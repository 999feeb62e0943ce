"""Variables of longer functions are nouns: a reader need not look back for what they hold."""

import ast
from collections.abc import Iterable, Iterator

from tests.source_trees import ROOT, source_nodes

# Words that say how a value came here, and not what it is.
WITHOUT_A_NOUN = frozenset(["found", "one", "chosen", "wanted", "given", "known", "made", "there"])
SHORT = 5  # lines: the value is used where it is named

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(nodes: Iterable[ast.AST]) -> Iterator[Function]:
    for node in nodes:
        if isinstance(node, Function) and (node.end_lineno or 0) - node.lineno >= SHORT:
            yield node


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of the function, without those of functions and classes inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Function | ast.ClassDef):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def names_bound(function: Function) -> Iterator[str]:
    for node in own_nodes(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)):
                yield name


def test_variables_of_longer_functions_are_nouns() -> None:
    """Parameters, loop variables and captures count, too."""
    bound = [
        f"{path.relative_to(ROOT)}:{function.lineno}: {function.name} binds {name}"
        for path, nodes in source_nodes().items()
        for function in functions(nodes)
        for name in sorted({*names_bound(function)} & WITHOUT_A_NOUN)
    ]

    assert bound == []


def test_each_way_of_binding_a_name_is_seen() -> None:
    """Assignment, loop, parameter, lambda, exception, capture, comprehension and walrus."""
    source = """
async def example(found, *, one=1, **given):
    chosen = sorted(one, key=lambda known: known)
    for wanted in chosen:
        try:
            match wanted:
                case [*there]:
                    pass
        except ValueError as made:
            raise made from None
"""
    (function,) = functions(ast.walk(ast.parse(source)))

    assert {*names_bound(function)} == WITHOUT_A_NOUN
