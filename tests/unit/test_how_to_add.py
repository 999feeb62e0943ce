"""The table "How to add" of docs/architecture.md: what was written but not listed is named here.

Each test compares what lies in a folder with the one list that has to know it, and says which line
of which file is missing.
"""

import ast
import importlib
import re
from pathlib import Path

import msgspec

from orchid import cli
from orchid.assembly.features import FEATURES
from orchid.assembly.settings import SECTIONS, EverySetting

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "orchid"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
# Kinds that are not stored: `served_kinds` of their features give them what they act with.
ACTING = {
    "approval_review", "certificate_search", "self_subject_review", "self_subject_rules_review",
    "subject_access_review", "token_exchange_review", "token_request", "token_review",
}  # fmt: skip


def modules(pattern: str) -> dict[str, Path]:
    """The modules in the folders of a pattern, by their names in Python."""
    return {
        ".".join(("orchid", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path in SOURCE.glob(f"{pattern}/*.py")
        if path.stem != "__init__"
    }


def assembled() -> set[str]:
    """Every name that assembly/ and the features' parts import, and its module."""
    names = set()
    patterns = "assembly/**/*.py", "features/*/feature.py", "features/*/parts.py", "kernel/*.py"
    for path in (path for pattern in patterns for path in SOURCE.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
                names.update(alias.name for alias in node.names)
    return names


def test_every_feature_is_listed() -> None:
    """A folder without its line in assembly/features.py adds nothing to the server."""
    folders = {path.parent.name for path in SOURCE.glob("features/*/__init__.py")}
    listed = [feature.name for feature in FEATURES]

    assert sorted(folders) == sorted(listed)
    for feature in FEATURES:
        assert (ROOT / "docs" / feature.documentation).exists(), feature.name


def test_every_kind_is_declared_by_its_feature() -> None:
    """A kind that no feature declares is served to nobody."""
    declared = {
        declare.__module__.rpartition(".")[2] for feature in FEATURES for declare in feature.kinds
    }
    files = {
        path.stem
        for path in SOURCE.glob("features/*/kinds/**/*.py")
        if re.search(r"^def declare\(", path.read_text(), re.MULTILINE)
    }

    missing = files - declared - ACTING

    assert files
    assert not missing, f"declare {sorted(missing)} in the FEATURE of its feature.py"


def test_every_controller_is_declared_by_its_feature() -> None:
    """A file of controllers/ that declares CONTROLLER is in the FEATURE of its folder."""
    listed = {id(one) for feature in FEATURES for one in feature.controllers}
    missing = [
        name
        for name in modules("features/*/controllers")
        if hasattr(module := importlib.import_module(name), "CONTROLLER")
        and id(module.CONTROLLER) not in listed
    ]

    assert listed
    assert not missing, f"declare the CONTROLLER of {missing} in its feature.py"


def test_every_file_of_default_roles_is_declared_by_its_feature() -> None:
    """What a roles.py declares, and no feature, is in no role."""
    missing = [
        feature.name
        for feature in FEATURES
        if (SOURCE / "features" / feature.name / "roles.py").exists()
        and feature.roles.__module__ != f"orchid.features.{feature.name}.roles"
    ]

    assert not missing, f"declare the roles of {missing} in its feature.py"


def test_every_section_of_settings_is_listed() -> None:
    """A section that no list has would be no flag of `orchid serve`."""
    declared = {
        getattr(importlib.import_module(name), class_.name)
        for name, path in modules("features/*").items()
        if path.stem == "settings"
        for class_ in ast.parse(path.read_text()).body
        if isinstance(class_, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Section" for base in class_.bases)
    }
    names = {field.encode_name for field in msgspec.structs.fields(EverySetting)}

    assert declared
    assert declared == set(SECTIONS), "list it in SECTIONS of src/orchid/assembly/settings.py"
    assert {section.after for section in SECTIONS} <= names
    for section in SECTIONS:
        assert {field.encode_name for field in msgspec.structs.fields(section)} <= names


def test_every_policy_is_asked() -> None:
    """A policy that the assembly does not build is never asked."""
    policies = {
        node.name
        for path in modules("features/*/policies").values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "AdmissionPolicy" for base in node.bases)
    }

    missing = policies - assembled()

    assert policies
    assert not missing, f"build {sorted(missing)} in `policies` of the FEATURE of its folder"


def test_every_authenticator_and_authorizer_is_asked() -> None:
    """One that neither the assembly nor another one builds lets nobody in."""
    folders = (
        "features/*/authenticators",
        "features/*/authorizers",
        "kernel/access/authenticators",
    )
    files = {name: path for folder in folders for name, path in modules(folder).items()}
    used = assembled()
    for path in files.values():
        used.update(re.findall(r"^from (orchid\.[\w.]+) import", path.read_text(), re.MULTILINE))

    missing = sorted(files.keys() - used)

    assert files
    assert not missing, f"build {missing} in `authenticators` of the FEATURE of its folder"


def test_every_command_is_in_the_table() -> None:
    """A file in commands/ without its row in cli.py cannot be typed."""
    listed = {command.module for command in cli.COMMANDS}
    folders = ("commands/*", "features/*/commands")

    missing = {
        name
        for folder in folders
        for name, path in modules(folder).items()
        if {"configure", "run"} <= defined_in(path) and name not in listed
    }

    assert listed
    assert not missing, f"give {sorted(missing)} a row in GROUPS of src/orchid/cli.py"


def defined_in(path: Path) -> set[str]:
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_every_package_has_its_row() -> None:
    """The tables of layers have every package, and none that is gone."""
    section = ARCHITECTURE.partition("## The layers")[2].partition("\n## ")[0]
    first_cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    listed = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}

    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    packages |= {path.parent.name for path in SOURCE.glob("kernel/*/__init__.py")}
    files = {path.stem for folder in (SOURCE, SOURCE / "kernel") for path in folder.glob("*.py")}

    assert listed == packages | files - {"__init__", "__main__"}


def test_every_feature_has_its_row() -> None:
    """The table of features has the first lines of each feature.py, in the order of the list."""
    section = ARCHITECTURE.partition("## The features\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.*) \|$", section, re.MULTILINE)

    assert rows == [
        (feature.name, *first_lines(SOURCE / "features" / feature.name / "feature.py"))
        for feature in FEATURES
    ]


def first_lines(path: Path) -> tuple[str, str]:
    """The first sentence of a feature.py, and the file with which to start reading."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    sentence = text.partition("\n")[0]
    start = re.search(r"^Read first (\S+)$", text, re.MULTILINE)
    assert start is not None, f"{path} does not say where to start reading"
    assert (path.parent / start[1]).exists(), f"{path} names {start[1]}, which does not exist"
    return sentence, f"`{start[1]}`"


def test_what_a_feature_uses_is_in_its_first_lines() -> None:
    """`Uses` of feature.py has each feature from which a file of the folder imports."""
    for feature in FEATURES:
        folder = SOURCE / "features" / feature.name
        text = ast.get_docstring(ast.parse((folder / "feature.py").read_text())) or ""
        listed = re.search(r"^Uses +((?:.|\n +)+)$", text, re.MULTILINE)
        uses = set(re.findall(r"\w+", listed[1])) if listed else set()
        imported = {
            name
            for path in folder.rglob("*.py")
            for name in re.findall(
                r"^ *from orchid\.features\.(\w+)", path.read_text(), re.MULTILINE
            )
        }

        assert uses == imported - {feature.name}, feature.name


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
