"""The source as syntax trees: parsed and walked once for all tests of a process that read it."""

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


@cache
def source_trees() -> Mapping[Path, ast.Module]:
    """The trees of all files of the source."""
    return {path: ast.parse(path.read_text()) for path in sorted(ROOT.glob("src/orchid/**/*.py"))}


@cache
def source_nodes() -> Mapping[Path, Sequence[ast.AST]]:
    """The nodes of those trees, in the order of ast.walk."""
    return {path: tuple(ast.walk(tree)) for path, tree in source_trees().items()}
