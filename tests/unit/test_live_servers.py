"""Choices that depend on which servers are live: decision 35 lists them, with a test of each."""

import ast
import re
from pathlib import Path

import orchid

SOURCE = Path(orchid.__file__).parent
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "decisions" / "0035-sealing-keys.md"
USES = re.compile(
    r"orchid\.features\.objects\.kinds\.lease import|"
    r"server_leases import|/leases\b|\"leases\"|servers\.live"
)
DECIDES_NOTHING = {
    "features/nodes/authorizers/node.py": "the Lease of a node",
    "features/rights/bootstrap.py": "rights",
    "features/objects/roles.py": "rights",
    "features/nodes/roles.py": "rights",
    "features/objects/server_leases.py": "passes the Leases on",
    "features/nodes/policies/node_restriction.py": "the Lease of a node",
    "features/authorities/parts.py": "builds",
    "features/revoking/parts.py": "builds",
    "features/token_keys/parts.py": "builds",
    "commands/records/stored_data.py": "the prefix",
    "features/revoking/applied_revision.py": "writes its own Lease",
    "features/objects/kinds/lease.py": "declares",
    "kernel/server/fairness.py": "requests for Leases",
}


def table() -> str:
    return PAGE.read_text().partition("**Where live servers decide.**")[2]


def test_every_place_that_looks_at_leases_is_listed() -> None:
    """A new one needs a row: what happens while a dead server counts as live."""
    listed = set(re.findall(r"`(\w[\w/]+\.py)`", table().partition("\n|")[2]))
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    found = {name for name, text in texts.items() if USES.search(text)}

    assert listed
    assert found == listed | (DECIDES_NOTHING.keys() & found)
    assert DECIDES_NOTHING.keys() <= found


def test_every_test_of_the_list_exists() -> None:
    """By its file and its name."""
    listed = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", table())
    functions = {
        path: {
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for path in {path for path, _ in listed}
    }

    assert listed
    assert [(path, name) for path, name in listed if name not in functions[path]] == []
