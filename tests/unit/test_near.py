"""`make near` selects the tests of what changed, and only those."""

import subprocess
from pathlib import Path

import pytest

from tests.near import changes, near

FILES = {
    "src/orchid/cli.py": "",
    "src/orchid/features/acme/orders.py": "",
    "src/orchid/features/acme/protocol/jws.py": "",
    "src/orchid/kernel/wire/codec/documents.py": "",
    "src/orchid/kernel/wire/plain.py": "",
    "src/orchid/kernel/context.py": "",
    "tests/unit/test_cli.py": "",
    "tests/unit/test_cli_mistakes.py": "",
    "tests/unit/test_project.py": "",
    "tests/unit/kernel/test_context.py": "",
    "tests/unit/kernel/wire/test_plain.py": "",
    "tests/unit/kernel/wire/codec/test_documents.py": "",
    "tests/unit/features/acme/test_orders.py": "",
    "tests/unit/features/acme/conftest.py": "from tests.unit.features import beside\n",
    "tests/unit/features/beside.py": "",
    "tests/unit/features/nodes/test_node.py": "from tests.unit.features.beside import beside\n",
    "tests/api/test_orders.py": "from orchid.features.acme import (\n    jwk,\n    orders,\n)\n",
    "tests/api/test_jws.py": "import orchid.features.acme.protocol.jws as jws\n",
    "tests/api/test_orders_later.py": "from orchid.features.acme.orders_later import name\n",
    "tests/api/world.py": "from orchid.kernel.wire.plain import plain\n",
    "tests/security/test_page.py": 'PAGE = "docs/security.md"\n',
    "tests/conformance/test_recorded.py": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "selected"),
    [
        (
            "src/orchid/features/acme/orders.py",
            ["tests/api/test_orders.py", "tests/unit/features/acme"],
        ),
        (
            "src/orchid/features/acme/protocol/jws.py",
            ["tests/api/test_jws.py", "tests/unit/features/acme"],
        ),
        ("src/orchid/features/acme/templates/a.html", ["tests/unit/features/acme"]),
        ("src/orchid/kernel/wire/codec/documents.py", ["tests/unit/kernel/wire/codec"]),
        ("src/orchid/kernel/wire/plain.py", ["tests/unit/kernel/wire"]),
        ("src/orchid/kernel/wire/new/module.py", ["tests/unit/kernel/wire"]),
        ("src/orchid/kernel/context.py", ["tests/unit/kernel/test_context.py"]),
        ("src/orchid/cli.py", ["tests/unit/test_cli.py", "tests/unit/test_cli_mistakes.py"]),
        ("src/orchid/features/deleted/orders.py", []),
        ("tests/api/test_orders.py", ["tests/api/test_orders.py"]),
        ("tests/api/test_deleted.py", []),
        (
            "tests/unit/features/beside.py",
            ["tests/unit/features/acme", "tests/unit/features/nodes/test_node.py"],
        ),
        ("tests/conformance/recorded/list.json", []),
        ("tests/conformance/list.json", ["tests/conformance"]),
        (
            "docs/security.md",
            [
                "tests/security/test_page.py",
                "tests/unit/test_cli.py",
                "tests/unit/test_cli_mistakes.py",
                "tests/unit/test_project.py",
            ],
        ),
    ],
)
def test_a_change_selects_its_tests(root: Path, changed: str, selected: list[str]) -> None:
    """Those of its package or feature, those that name it, and of a helper those that use it."""
    assert near(root, [changed]) == selected


def test_a_folder_includes_its_files(root: Path) -> None:
    """A test is not run twice."""
    changed = ["src/orchid/features/acme/orders.py", "tests/unit/features/acme/test_orders.py"]

    assert near(root, changed) == ["tests/api/test_orders.py", "tests/unit/features/acme"]


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits on main."""
    git(tmp_path, "init", "-q", "-b", "main")
    for name in ("first", "second"):
        commit(tmp_path, name)
    return tmp_path


def commit(root: Path, name: str) -> None:
    (root / name).write_text(name)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", name)


def test_changes_of_a_branch_and_of_the_work_tree(repository: Path) -> None:
    """Committed, deleted, untracked, and not what main got meanwhile."""
    git(repository, "checkout", "-q", "-b", "work")
    commit(repository, "committed")
    git(repository, "checkout", "-q", "main")
    commit(repository, "meanwhile")
    git(repository, "checkout", "-q", "work")
    (repository / "first").unlink()
    (repository / "untracked").write_text("")

    assert changes(repository) == ("main", ["committed", "first", "untracked"])


def test_changes_on_main(repository: Path) -> None:
    """They need not be committed."""
    (repository / "first").write_text("changed")

    assert changes(repository) == ("main", ["first"])


def test_an_untracked_file_is_a_change(repository: Path) -> None:
    """A new test counts before it is added."""
    (repository / "untracked").write_text("")

    assert changes(repository) == ("main", ["untracked"])


def test_without_a_difference_it_is_the_last_commit(repository: Path) -> None:
    """And the output says so."""
    base, changed = changes(repository)

    assert base.startswith("HEAD~1")
    assert changed == ["second"]


def test_the_branch_may_have_another_copy(repository: Path) -> None:
    """A clone without a branch main has origin/main."""
    git(repository, "checkout", "-q", "-b", "work")
    git(repository, "update-ref", "refs/remotes/origin/main", "main")
    git(repository, "branch", "-q", "-D", "main")
    commit(repository, "committed")

    assert changes(repository) == ("origin/main", ["committed"])
