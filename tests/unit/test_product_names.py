"""Names that carry the product are written in kernel/wire/naming.py and nowhere else.

Only string literals count: a docstring or a comment may say in prose whose client it speaks of.
"kubeconfig" is the name of a file format, and "orchid" is our own.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "orchid"
NAMING = SOURCE / "kernel" / "wire" / "naming.py"
PRODUCT = re.compile(
    r"kubernetes | kubelet | kubectl | k8s | orchlet | orchctl"
    r"| (?<![a-z]) (kube|orch) (?![a-z])",  # kube-apiserver, orch.io, /orch/, ~/.kube
    re.IGNORECASE | re.VERBOSE,
)


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string and bytes literal with its line, except docstrings."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")


def offences(path: Path) -> list[str]:
    source = path.read_text()
    found = literals(ast.parse(source)) if PRODUCT.search(source) else ()
    return [f"{path.name}:{line}: {text!r}" for line, text in found if PRODUCT.search(text)]


def test_no_other_module_writes_a_product_name() -> None:
    """Names of either set are only in the naming module."""
    modules = [path for path in sorted(SOURCE.rglob("*.py")) if path != NAMING]

    assert len(modules) > 100
    assert [offence for module in modules for offence in offences(module)] == []


def test_the_naming_module_is_what_the_walk_would_find() -> None:
    """The walk recognises the names it looks for; otherwise it would find nothing, anywhere."""
    found = "\n".join(offences(NAMING))

    for word in ("orch.io", "k8s.io", "kubernetes.io", "orchlet", "kubelet", "kubectl"):
        assert word in found


@pytest.mark.parametrize(
    ("text", "is_product"),
    [
        ("kube-system", True),
        ("system:kube-scheduler", True),
        ("orch-root-ca.crt", True),
        ("X-Kubernetes-Pf-Flowschema-Uid", True),
        ("application/vnd.kubernetes.protobuf", True),
        ("orch", True),
        ("kubeconfig", False),
        ("orchid-data", False),
        ("orchestrate", False),
    ],
)
def test_what_counts_as_a_product_name(text: str, is_product: bool) -> None:
    """Parts of a name count; the file format, our own name and ordinary words do not."""
    assert bool(PRODUCT.search(text)) is is_product


def test_prose_does_not_count() -> None:
    """A docstring may name a product; the same word in an expression may not."""
    tree = ast.parse('"""Speaks to kubectl."""\nname = f"kubectl {1}"\nother = b"kubelet"\n')

    assert sorted(text for _, text in literals(tree)) == ["kubectl ", "kubelet"]
