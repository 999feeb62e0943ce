"""The project's own files keep the promises that its documents make."""

import ast
import io
import itertools
import re
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.source_trees import source_nodes, source_trees

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PINNED = re.compile(r"^([a-z0-9-]+)(?:\[([a-z0-9, -]+)\])?==\S+( ; .+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_holds_pinned_versions_and_hashes_alone(lock: Path) -> None:
    """A lock file names no host, no path and no unpinned package."""
    lines = lock.read_text().splitlines()

    odd = [line for line in lines if not PINNED.match(line) and not HASH.match(line)]

    assert lines
    assert odd == []


def test_lock_pins_each_extra_that_a_package_asks_for() -> None:
    """Without it pip 23 takes the newest release, and refuses that because it has no hash."""
    pinned = {
        (match[1], extra)
        for lock in LOCKS
        for line in lock.read_text().splitlines()
        if (match := PINNED.match(line)) and match[2]
        for extra in match[2].split(", ")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = [
        *project["dependencies"],
        *itertools.chain(*project["optional-dependencies"].values()),
    ]
    asked = [
        requirement
        for text in [
            *direct,
            *itertools.chain(*(package.requires or [] for package in distributions())),
        ]
        if (requirement := Requirement(text)).marker is None
        or requirement.marker.evaluate({"extra": ""})
    ]

    extras = {
        (canonicalize_name(package.name), extra) for package in asked for extra in package.extras
    }

    assert ("httpx2", "http2") in extras
    assert extras - pinned == set()


def test_every_script_is_explained() -> None:
    """Each script has its line in scripts/README.md, and each line its script."""
    readme = (ROOT / "scripts" / "README.md").read_text()

    explained = set(re.findall(r"^\| `([\w-]+)` \|", readme, re.MULTILINE))

    assert explained == {path.name for path in (ROOT / "scripts").iterdir()} - {"README.md"}


def test_decisions_are_numbered_without_gaps() -> None:
    """Decisions are counted from 0001, and no number is given twice."""
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("*.md"))

    assert numbers == list(range(1, len(numbers) + 1))


def test_dataclass_does_what_a_struct_cannot() -> None:
    """To make the class takes ten times as long, at every start: decision 27."""
    reasons = ("repr=False", "compare=False", "init=False", "cached_property")
    found = {
        f"{path.name}: {node.name}": ast.unparse(node)
        for path, nodes in source_nodes().items()
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(re.match(r"dataclass\b", ast.unparse(each)) for each in node.decorator_list)
    }

    without = [name for name, text in found.items() if not any(word in text for word in reasons)]

    assert found
    assert without == []


def test_everything_installs_our_distribution() -> None:
    """`orchid` on PyPI is another project: install commands name our distribution."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    wrong = re.compile(
        r"(?<![\w/.-])orchid\[|pipx? install\b[^\n`]*?(?<![\w/.-])orchid(?![\w/.{-])"
    )
    texts = list(ROOT.glob("*.md"))
    for folder in ("docs", "src", "deploy", "scripts"):
        found_here = (ROOT / folder).rglob("*")
        texts += [path for path in found_here if path.is_file() and path.suffix != ".pyc"]

    found = [path for path in texts if wrong.search(path.read_text(errors="replace"))]

    assert name == "orchid-identity"
    assert wrong.search("pip install 'orchid[etcd]'")
    assert wrong.search("pip install orchid")
    assert not wrong.search(f"pip install '{name}[etcd]'; pip install ./orchid")
    assert [str(path) for path in found] == []


def test_every_exemption_has_its_reason() -> None:
    """A rule is switched off for a line only with the reason beside it, on the same line."""
    exempt = re.compile(r"# (?:noqa|type: ignore)\b(.*)")
    reason = re.compile(r"(?:: [A-Z]+\d+(?:, [A-Z]+\d+)*|\[[a-z-]+\]) +(?:#|--?) [\w\"'`]")
    files = [
        path for folder in ("src", "tests", "benchmarks") for path in ROOT.glob(f"{folder}/**/*.py")
    ]

    bare = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in exempt.finditer(line)
        if not reason.match(found[1])
    ]

    assert files
    assert bare == []


def test_every_file_that_a_comment_names_is_there() -> None:
    """A module says where to read on: in its own folder by name, elsewhere by the path."""
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")]
    endings = {"/".join(path.parts[-length:]) for path in files for length in range(2, 6)}
    named = re.compile(r"(?<![\w/])((?:\w+/)*\w+\.py)\b")

    def is_gone(path: Path, name: str) -> bool:
        return not (path.parent / name).exists() and name not in endings

    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in source_trees().items()
        if any(is_gone(path, name) for name in named.findall(path.read_text()))
        for text in prose_of(path.read_text(), tree)
        for name in named.findall(text)
        if is_gone(path, name)
    ]

    assert files
    assert gone == []


def prose_of(source: str, tree: ast.Module) -> Iterator[str]:
    """The docstrings and comments of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


# Values at the top of a module that change, each with the reason why nobody can notice.
CHANGING = {
    "kernel/engine/cache/entry.py: _lately_used": "what stays decoded; one budget for the process",
    "kernel/wire/codec/protobuf_content.py: budget": "per thread, and set again for each message",
}
STATEFUL = {
    "ThreadPoolExecutor", "Lock", "RLock", "Semaphore", "Event", "Queue", "count", "cycle",
    "defaultdict", "OrderedDict", "deque", "WeakKeyDictionary", "WeakValueDictionary",
}  # fmt: skip
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
    "popleft", "remove", "setdefault", "update",
}  # fmt: skip
UNBOUNDED = {
    "cache", "functools.cache", "lru_cache(maxsize=None)", "functools.lru_cache(maxsize=None)",
}  # fmt: skip


def test_modules_hold_no_state() -> None:
    """State has an owner that the assembly builds; a module has constants and functions."""
    sample = "a = {}\nb = Lock()\nc = []\ndef f(c):\n    a[1] = 2\n    c.append(3)\n"
    sample += "class D:\n    def g(self):\n        self.x = 1\nd = D()\ne = c.copy()\n"

    found = {
        f"{path.relative_to(ROOT / 'src/orchid')}: {name}"
        for path, tree in source_trees().items()
        for name in changing(tree, source_nodes()[path])
    }
    example = ast.parse(sample)

    assert set(changing(example, [*ast.walk(example)])) == {"a", "b", "d"}
    assert found == set(CHANGING)


def changing(module: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Names at the top of a module that its functions change, or whose values have state."""
    names = set()
    stateful = STATEFUL | {
        each.name for each in module.body if isinstance(each, ast.ClassDef) and changes_itself(each)
    }
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned = {target.id for target in targets if isinstance(target, ast.Name)}
            names |= assigned
            if isinstance(node.value, ast.Call) and called(node.value) in stateful:
                yield from assigned
    for function in nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from changed_in(function) & names


def changes_itself(declared: ast.ClassDef) -> bool:
    """Whether an instance changes after it was made."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        for method in declared.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name != "__init__"
        for node in ast.walk(method)
    )


def called(call: ast.Call) -> str:
    """The last word of what is called."""
    return ast.unparse(call.func).partition("[")[0].rpartition(".")[2]


def changed_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names, not the function's own, whose items or attributes it sets, or which it rebinds."""
    own = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
    changed: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Global):
            changed.update(node.names)
        elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            changed.update(name_of(node.value))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CHANGES
        ):
            changed.update(name_of(node.func.value))
    return changed - own


def name_of(value: ast.expr) -> set[str]:
    return {value.id} if isinstance(value, ast.Name) else set()


def test_caches_without_bounds_are_keyed_by_what_is_declared() -> None:
    """A cache that never forgets may grow with our own types, never with what clients send."""
    sent = re.compile(r"(str|bytes|Any|dict|HttpRequest|Request)\b")
    cached = [
        (path.relative_to(ROOT), function)
        for path, nodes in source_nodes().items()
        for function in nodes
        if isinstance(function, ast.FunctionDef)
        and {ast.unparse(one) for one in function.decorator_list} & UNBOUNDED
    ]

    found = [
        f"{path}:{function.lineno}: give the cache a size"
        for path, function in cached
        for argument in function.args.args
        if argument.annotation is not None and sent.match(ast.unparse(argument.annotation))
    ]

    assert cached
    assert found == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Not even inside a function, where nobody notices before it is called."""
    files = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts): nodes
        for path, nodes in source_nodes().items()
    }
    imports = {name: imported(nodes) & files.keys() for name, nodes in files.items()}

    list(TopologicalSorter(imports).static_order())  # raises CycleError, which names the circle

    assert imports["orchid.cli"]
    with pytest.raises(CycleError):
        list(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())


def imported(nodes: Sequence[ast.AST]) -> set[str]:
    """Everything that a file imports by a whole name: modules, and names that may be modules."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


# In every kind's file they are called alike, so that a reader finds them.
NAMED_ALIKE = {"Rules", "StatusRules"}


def test_a_class_name_stands_for_one_idea() -> None:
    """Two public classes of one name make a reader ask which one is meant."""
    places: dict[str, list[str]] = {}
    for path, tree in source_trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))

    twice = {name: found for name, found in places.items() if len(found) > 1}

    assert len(places) > len(twice)
    assert twice.keys() == NAMED_ALIKE, twice


def test_the_time_of_day_is_injected() -> None:
    """Only the system clock reads it, and the commands, each of which is a program of its own."""
    reading = {
        f"{path.relative_to(ROOT / 'src' / 'orchid')}"
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"\bdatetime\.(now|utcnow)\b|\btime\.time\(", path.read_text())
    }

    assert reading == {"kernel/base/clock.py", "kernel/terminal/times.py"}


def test_time_is_measured_by_what_was_handed_in() -> None:
    """Only clock.py uses `time.monotonic`; the assembly passes it to all others."""
    sources = [
        path
        for path in ROOT.glob("src/**/*.py")
        if path != ROOT / "src/orchid/kernel/base/clock.py"
    ]
    direct = re.compile(r"\btime\.monotonic|from time import .*\bmonotonic")

    found = [
        f"{path.relative_to(ROOT)}:{number}: take a Clock, or a Monotonic, as an argument"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if direct.search(line)
    ]

    assert direct.search("started = time.monotonic()")
    assert direct.search("from time import monotonic, sleep")
    assert sources
    assert found == []


LONGEST_FUNCTION = 50  # lines, with its docstring
LONGEST_FILE = 480  # lines, with comments and blank ones
MOST_FILES = 20  # in a folder; beyond that it usually has two subjects


def test_functions_fit_on_a_screen() -> None:
    """A longer function does several things, which deserve names."""
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, nodes in source_nodes().items()
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]

    assert long == []


def test_files_are_short() -> None:
    """Counts lines, as an editor shows them. Split a longer file where two ideas are in one."""
    lines = {
        path.relative_to(ROOT): len(path.read_text().splitlines())
        for path in ROOT.glob("src/**/*.py")
    }

    assert len(lines) > MOST_FILES
    assert {str(path): count for path, count in lines.items() if count > LONGEST_FILE} == {}


def test_folders_have_few_files() -> None:
    """A folder with many files is hard to find something in."""
    source = ROOT / "src" / "orchid"
    files = {
        str(folder.relative_to(source)): len(list(folder.glob("*.py")))
        for folder in source.rglob("*")
        if folder.is_dir()
    }

    assert "kernel/wire" in files
    assert {name: count for name, count in files.items() if count > MOST_FILES} == {}


def test_a_folder_has_at_most_fifteen_files() -> None:
    """More are not read as a list; sub-folders have the names of ideas."""
    # wire: one type or rule of the API in each file
    exempt = {"src/orchid/kernel/wire"}
    folders = {path.parent for path in ROOT.glob("src/orchid/**/*.py")}

    large = {
        str(folder.relative_to(ROOT)) for folder in folders if len([*folder.glob("*.py")]) > 15
    }

    assert large <= exempt
