"""Secrets go to files that only their owner can read, or others' files are pointed out."""

import sys
from pathlib import Path

import pytest

from orchid.kernel.terminal.flags import print_or_write


@pytest.mark.parametrize(("mode", "is_remarked"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_secret_in_a_file_for_others_is_pointed_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: int,
    is_remarked: bool,
) -> None:
    """As `orchid host new NAME > FILE` makes one under the usual umask."""
    file = tmp_path / "join.kubeconfig"
    file.touch(mode)
    file.chmod(mode)
    with file.open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        print_or_write("secret", None)

    assert file.read_text() == "secret\n"
    assert ("--out FILE" in capsys.readouterr().err) == is_remarked


def test_a_secret_on_a_terminal_or_in_a_pipe_needs_no_remark(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_or_write("secret", None)

    assert capsys.readouterr() == ("secret\n", "")


def test_a_written_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "join.kubeconfig"

    print_or_write("secret", file)

    assert file.read_text() == "secret"
    assert file.stat().st_mode & 0o777 == 0o600
