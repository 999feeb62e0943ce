"""Files that change together: one generation at a time, whatever is in the way."""

import datetime
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from orchid.features.hosts.agent import generations as written
from orchid.features.hosts.agent.generations import (
    OutputFile,
    OutputRefused,
    Permissions,
    read_current,
    write_generation,
)

NOW = datetime.datetime(2026, 11, 18, 4, 44, 0, tzinfo=datetime.UTC)


def pair(text: str) -> list[OutputFile]:
    return [
        OutputFile("tls.crt", f"certificate {text}".encode()),
        OutputFile("tls.key", f"key {text}".encode(), is_secret=True),
    ]


def write(directory: Path, text: str, **permissions: int) -> None:
    write_generation(directory, pair(text), Permissions(**permissions), NOW)


def shown(directory: Path) -> list[str]:
    return [(directory / name).read_text() for name in ("tls.crt", "tls.key")]


def generations(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("..2"))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir(mode=0o755)
    return made


def test_files_appear_and_change_together(output: Path) -> None:
    """The previous generation stays, older ones go."""
    seen = []
    for text in ("1", "2", "3"):
        write(output, text)
        seen.append(shown(output))

    assert seen == [[f"certificate {n}", f"key {n}"] for n in "123"]
    assert len(generations(output)) == 2
    assert read_current(output) == {"tls.crt": b"certificate 3", "tls.key": b"key 3"}


def test_modes_are_set_in_every_generation(output: Path) -> None:
    """Secret files have their mode, public ones 0644, the directory lets readers in."""
    write(output, "1")
    write(output, "2", secret_mode=0o640)

    modes = [(output / name).stat().st_mode & 0o777 for name in ("tls.crt", "tls.key")]
    assert modes == [0o644, 0o640]
    assert (output / "..data").stat().st_mode & 0o777 == 0o755


def test_a_file_that_is_no_longer_written_goes(output: Path) -> None:
    """Its link would lead nowhere."""
    write(output, "1")
    write_generation(output, pair("2")[:1], Permissions(), NOW)

    assert (output / "tls.crt").read_text() == "certificate 2"
    assert not os.path.lexists(output / "tls.key")


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "..data"])
def test_what_somebody_else_put_there_is_not_touched(output: Path, name: str) -> None:
    """Neither a plain file nor a link to elsewhere."""
    (output / name).write_text("mine")
    with pytest.raises(OutputRefused, match="not a link of this program"):
        write(output, "1")
    kept = (output / name).read_text()
    (output / name).unlink()
    (output / name).symlink_to("/etc/passwd")
    with pytest.raises(OutputRefused, match="not a link of this program"):
        write(output, "1")

    assert kept == "mine"
    assert generations(output) == []


@pytest.mark.parametrize(
    ("mode", "above", "text"),
    [(0o777, 0o755, "output can be"), (0o775, 0o755, "output can be"), (0o755, 0o777, "can be")],
)
def test_a_directory_that_others_can_write_is_refused(
    output: Path, mode: int, above: int, text: str
) -> None:
    """They could replace a file between two steps."""
    output.chmod(mode)
    output.parent.chmod(above)
    with pytest.raises(OutputRefused, match=f"{text}.*written by other users"):
        write(output, "1")


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path, output: Path) -> None:
    """It could lead to another place the next time."""
    link = tmp_path / "link"
    link.symlink_to(output)

    with pytest.raises(OutputRefused, match="is not a directory"):
        write(link, "1")


def test_links_above_the_directory_must_be_safe_to_the_end(tmp_path: Path, output: Path) -> None:
    """A link of the operator is followed; not one in a directory that others can write."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "hop").symlink_to(output.parent)
    (tmp_path / "link").symlink_to("shared/../shared/hop")
    directory = tmp_path / "link" / output.name

    write(directory, "1")
    shared.chmod(0o777)
    with pytest.raises(OutputRefused, match=f"{shared} can be written by other users"):
        write(directory, "2")
    shared.chmod(0o755)
    (shared / "hop").unlink()
    (shared / "hop").symlink_to("hop")
    with pytest.raises(OutputRefused, match="too many links"):
        write(directory, "2")

    assert (output / "tls.crt").read_text().endswith("1")


@pytest.mark.parametrize("name", ["..data", "a/b", "", ".", "..", "x" * 65])
def test_names_of_files_are_plain(output: Path, name: str) -> None:
    """No name reaches beyond the directory or hides."""
    with pytest.raises(OutputRefused, match="is not a name"):
        write_generation(output, [OutputFile(name, b"")], Permissions(), NOW)


@pytest.mark.parametrize("failing", ["write", "fsync", "symlink", "rename", "fchown", "mkdir"])
def test_a_failure_leaves_the_previous_files(
    output: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A full disk, say: nothing is left of the attempt, and the next one succeeds."""
    write(output, "1")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, fail)
        with pytest.raises(OutputRefused, match="No space left on device"):
            write(output, "2")
    after, left = shown(output), generations(output)
    write(output, "3")

    assert after == ["certificate 1", "key 1"]
    assert len(left) == 1
    assert shown(output) == ["certificate 3", "key 3"]


def test_contents_are_in_no_repr() -> None:
    """A key must not get into a log."""
    assert "key 1" not in repr(pair("1"))


def test_a_link_of_somebody_else_with_the_next_name_stays(output: Path) -> None:
    """It would be replaced before the change."""
    (output / "..next").symlink_to("elsewhere")

    with pytest.raises(OutputRefused, match=r"\.\.next is not a link of this program"):
        write(output, "1")

    assert (output / "..next").readlink() == Path("elsewhere")
    assert [path.name for path in output.iterdir()] == ["..next"]


def test_a_sticky_directory_is_safe_above_an_output_only(output: Path) -> None:
    """In it, another user could create the files that are missing."""
    (output / "inner").mkdir(mode=0o755)
    output.chmod(0o1777)

    write(output / "inner", "1")

    assert shown(output / "inner") == ["certificate 1", "key 1"]
    with pytest.raises(OutputRefused, match="can be written by other users"):
        write(output, "1")


def test_a_directory_of_another_user_is_refused(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could replace the files, whatever its mode is; root may own it."""
    owner = output.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(written, "ROOT", owner + 2)
    with pytest.raises(OutputRefused, match=r"belongs to another user \(uid \d+\)"):
        written.refuse_unsafe(output)

    monkeypatch.setattr(written, "passed_paths", lambda one: iter([(one, False)]))
    monkeypatch.setattr(written, "ROOT", owner)
    written.refuse_unsafe(output)


def test_a_failure_after_the_change_leaves_the_new_files(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation is current already; without it, there would be no files at all."""
    sync = os.fsync

    def failing(descriptor: int) -> None:
        if (output / "..data").exists():
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing)
        with pytest.raises(OutputRefused, match="Input/output error"):
            write(output, "1")

    assert shown(output) == ["certificate 1", "key 1"]
