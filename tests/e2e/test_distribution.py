"""Files of `make dist`: the same bytes each time, a wheel that runs, a bill of materials."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from orchid.cli import COMMANDS
from orchid.kernel.base.version import __version__

pytestmark = pytest.mark.system_package("git")

ROOT = Path(__file__).resolve().parents[2]
NAME = f"orchid_identity-{__version__}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that scripts/dist fills; it has compared two builds before it gives one."""
    folder = tmp_path_factory.mktemp("dist")
    signing = {"MINISIGN_KEY": str(signing_key(folder.parent))} if shutil.which("minisign") else {}
    done = subprocess.run(
        [ROOT / "scripts" / "dist", folder],
        env={**os.environ, "PYTHON": sys.executable, **signing},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


def signing_key(folder: Path) -> Path:
    """A secret key of minisign without a password; its public half is beside it."""
    secret = folder / "minisign.key"
    command = ["minisign", "-G", "-W", "-f", "-p", str(folder / "minisign.pub"), "-s", str(secret)]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    return secret


@pytest.fixture(scope="module")
def bill(built: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((built / f"{NAME}.cdx.json").read_bytes())
    return found


def test_sums_are_those_of_the_files(built: Path) -> None:
    """Users can compare a downloaded file with the list."""
    listed = dict(
        reversed(line.split()) for line in (built / "SHA256SUMS").read_text().splitlines()
    )

    files = {path.name: path for path in built.glob(f"{NAME}*")}

    parts = ("-py3-none-any.whl", ".tar.gz", "-man.tar.gz", ".cdx.json")
    assert set(listed) == {f"{NAME}{part}" for part in parts}
    assert listed == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    }


@pytest.mark.system_package("minisign")
def test_signature_of_the_sums_is_verified_and_a_changed_line_is_not(
    built: Path, tmp_path: Path
) -> None:
    """With `minisign`, as somebody who downloads a release does."""
    changed = tmp_path / "SHA256SUMS"
    changed.write_text((built / "SHA256SUMS").read_text().replace("a", "b"))
    shutil.copy(built / "SHA256SUMS.minisig", tmp_path)
    command = ["minisign", "-V", "-p", str(built.parent / "minisign.pub"), "-m"]

    good, bad = (
        subprocess.run([*command, file], capture_output=True, text=True, check=False, timeout=60)
        for file in (built / "SHA256SUMS", changed)
    )

    assert good.returncode == 0, good.stderr
    assert f"orchid-identity {__version__}" in good.stdout
    assert bad.returncode != 0


def test_two_builds_that_differ_are_refused(tmp_path: Path) -> None:
    """The comparison is real: a build that depends on where it is made ends with a failure."""
    restless = tmp_path / "python"
    restless.write_text(
        f'#!/bin/sh\n"{sys.executable}" "$@" || exit 1\n'
        'for last; do :; done\n[ "$2" = hatchling ] && pwd > "$last/where" || true\n'
    )
    restless.chmod(0o755)

    done = subprocess.run(
        [ROOT / "scripts" / "dist", tmp_path / "dist"],
        env={**os.environ, "PYTHON": str(restless)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 1
    assert "two builds of one commit differ" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_wheel_holds_the_package_and_runs(built: Path, tmp_path: Path) -> None:
    """The wheel alone, without the checkout, is the program."""
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        wheel.extractall(tmp_path)  # noqa: S202 -- built by the fixture above
    outside = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "from orchid import cli; print(cli.__file__); cli.main(['--version'])"

    said = subprocess.run(
        [sys.executable, "-c", code],
        env=outside,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert said.stdout.splitlines() == [
        str(tmp_path / "orchid" / "cli.py"),
        f"orchid {__version__}",
    ]


def test_every_command_has_its_manual_page(built: Path) -> None:
    """The pages are those of the commit, and `man` can read them."""
    with tarfile.open(built / f"{NAME}-man.tar.gz") as archive:
        names = set(archive.getnames())
        page = archive.extractfile("man1/orchid-csr.1")
        text = page.read().decode() if page else ""

    assert {f"man1/orchid-{command.name}.1" for command in COMMANDS} <= names
    assert text.startswith('.TH "ORCHID-CSR" 1')


def test_source_archive_holds_what_is_in_the_commit(built: Path) -> None:
    """The sdist has sources, tests, documents and what is needed to deploy; nothing ignored."""
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"pyproject.toml", "LICENSE", "src/orchid/cli.py", "docs/operations.md"} <= names
    assert not [name for name in names if ".venv" in name or "__pycache__" in name]


def test_bill_names_every_locked_package(bill: dict[str, Any]) -> None:
    """Each package of the runtime's lock file is a required component, with all its hashes."""
    lock = (ROOT / "requirements" / "runtime.txt").read_text()
    required = [each for each in bill["components"] if each["scope"] == "required"]

    hashes = {each["content"] for c in required for each in c["externalReferences"][0]["hashes"]}

    assert {f"{c['name']}=={c['version']}" for c in required} == set(
        re.findall(r"^([^\s;\\]+==[^\s;\\]+)", lock, re.MULTILINE)
    )
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", lock))


def test_bill_goes_with_its_wheel(built: Path, bill: dict[str, Any]) -> None:
    """The document names the distribution as pyproject.toml does, with the hash of the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    subject = bill["metadata"]["component"]
    wheel = (built / f"{NAME}-py3-none-any.whl").read_bytes()

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert (subject["name"], subject["version"]) == (project["name"], __version__)
    assert subject["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel).hexdigest()}]
    assert bill["dependencies"][0]["dependsOn"] == [c["bom-ref"] for c in bill["components"]]
