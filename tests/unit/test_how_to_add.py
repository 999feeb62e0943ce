"""The table "How to add" of docs/architecture.md: what was written but not listed is named here.

Each test compares what lies in a folder with the one list that has to know it, and says which line
of which file is missing.
"""

import ast
import importlib
import re
from pathlib import Path

from orchid import cli
from orchid.assembly.controllers.running import CONTROLLERS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "orchid"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
SHARED_BY_COMMANDS = {
    "kubeconfig_refresh",
    "sealing_key",
    "cluster_facts",
    "cluster_inventory",
    "cluster_setup",
    "cluster_targets",
    "host_credentials",
    "grants",
    "ledger_logs",
    "policy_history",
    "policy_reason",
    "published",
    "request_flags",
    "requesting",
    "responses",
    "revived",
    "stored_data",
    "unknown_dependents",
    "serving_flags",
    "token_exchange",
}


def modules(folder: str) -> set[str]:
    """The modules directly in a folder."""
    return {path.stem for path in (SOURCE / folder).glob("*.py")} - {"__init__"}


def imported(*files: str) -> set[str]:
    """The last word of every module of ours that these files import."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse((SOURCE / file).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orchid."):
                found.add(str(node.module).rpartition(".")[2])
                found.update(alias.name for alias in node.names)
    return found


def declares(path: Path, name: str) -> bool:
    """Whether a module assigns or defines a name at its top level."""
    body = ast.parse(path.read_text()).body
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    named = {target.id for target in targets if isinstance(target, ast.Name)}
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return name in named | defined


def test_every_kind_is_listed() -> None:
    """A file in kinds/ without its line in assembly/kinds.py is served to nobody."""
    missing = modules("kinds") - imported("assembly/kinds.py")

    assert not missing, f"list {sorted(missing)} in src/orchid/assembly/kinds.py"


def test_every_controller_is_listed() -> None:
    """A file in controllers/ declares CONTROLLER and is listed in running.py."""
    listed = {id(one) for one in CONTROLLERS}
    missing = []
    for name in modules("controllers") - {"running"}:
        module = importlib.import_module(f"orchid.controllers.{name}")
        if hasattr(module, "CONTROLLER") and id(module.CONTROLLER) not in listed:
            missing.append(name)

    assert not missing, (
        f"list {missing} in CONTROLLERS of src/orchid/assembly/controllers/running.py"
    )


def test_every_policy_is_asked() -> None:
    """A policy in admission/ or a folder below it that the assembly does not build is never asked.

    Policies are compared by class name: a file may also be imported for something else.
    """
    policies = {
        node.name
        for path in (SOURCE / "admission").rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "AdmissionPolicy" for base in node.bases)
    }

    missing = policies - imported("assembly/admission.py")

    assert policies
    assert not missing, (
        f"build {sorted(missing)} in Policies.all of src/orchid/assembly/admission.py"
    )


def test_every_authenticator_and_authorizer_is_asked() -> None:
    """One that the assembly does not build lets nobody in."""
    known = imported(*(f"assembly/{name}.py" for name in modules("assembly")))

    unknown = (modules("access/authenticators") | modules("access/authorizers")) - known
    missing = sorted(name for name in unknown if not _is_used_within_access(name))

    assert not missing, f"build {missing} in src/orchid/assembly/access.py"


def _is_used_within_access(name: str) -> bool:
    pattern = re.compile(rf"orchid\.access\.(authenticators|authorizers)\.{name}\b")
    return any(pattern.search(path.read_text()) for path in (SOURCE / "access").rglob("*.py"))


def test_every_command_is_in_the_table() -> None:
    """A file in commands/ without its row in cli.py cannot be typed."""
    listed = {command.module.rpartition(".")[2] for command in cli.COMMANDS}

    rooms = (
        "accounts",
        "certificates",
        "clients",
        "clusters",
        "hosts",
        "records",
        "rights",
        "server",
    )
    missing = {name for room in rooms for name in modules(f"commands/{room}")}
    missing -= SHARED_BY_COMMANDS | listed

    assert not missing, f"give {sorted(missing)} a row in GROUPS of src/orchid/cli.py"


def test_every_package_has_its_row() -> None:
    """The table of layers has every package, and none that is gone."""
    section = ARCHITECTURE.partition("## The layers")[2].partition("\n## ")[0]
    first_cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    listed = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}

    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    there = packages | {path.stem for path in SOURCE.glob("*.py")}

    missing = there - listed - {"__init__", "__main__", "version"}
    assert not missing, f"give {sorted(missing)} a row under 'The layers' in docs/architecture.md"
    assert listed <= there


def test_every_file_that_the_page_names_is_there() -> None:
    """A file that was moved is moved on the page too."""
    named = set(re.findall(r"`(?:src/orchid/)?([\w/]+\.py)`", ARCHITECTURE))
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in SOURCE.rglob("*.py")]
    files += [f"/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "tests").rglob("*.py")]

    gone = sorted(name for name in named if not any(file.endswith(f"/{name}") for file in files))

    assert named
    assert not gone, f"docs/architecture.md names {gone}: say where they are now"


def test_the_table_names_what_there_is() -> None:
    """Every file that the table sends a reader to exists."""
    section = ARCHITECTURE.partition("## How to add")[2].partition("\n## ")[0]

    named = re.findall(r"`((?:src|tests|docs)/[\w/.-]+\.\w+)`", section)

    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


# A word in the names of files, and the files that have another subject.
FEATURES = {
    "revo": {"features/rights/commands/revoke_grant.py"},
    "polic": {"kernel/server/audit/policy.py"},
    "ledger": set(),
    "issu": {"assembly/outside_issuers.py"},
    "rotat": set(),
    "signing_key": set(),
    "exchange": {"kernel/server/exchange.py"},  # one request
    "cluster": set(),
    "bundle": set(),
    "host": set(),
    "console": set(),
}


def test_features_name_every_file() -> None:
    """The lists of files in docs/architecture.md are complete, and each file exists."""
    section = ARCHITECTURE.partition("\n## Features\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`((?:\w+/)+\w+\.py)`", section)) - {"tests/unit/test_how_to_add.py"}
    expected = {
        name
        for word, others in FEATURES.items()
        for path in SOURCE.rglob(f"*{word}*.py")
        if (name := str(path.relative_to(SOURCE))) not in others
    }

    assert listed
    assert {name for name in listed if not (SOURCE / name).exists()} == set()
    assert expected - listed == set(), "add them to the features of docs/architecture.md"
