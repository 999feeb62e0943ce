"""The demonstration of rotation starts, and its emergency works; `make demo-rotation` runs all."""

from pathlib import Path

import pytest

from tests.rotation.tokens import arguments, demonstration


@pytest.mark.system_package("etcd")
def test_the_demonstration_starts_and_shows_an_emergency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small, and without waiting for a rotation: every verifier takes part, nothing is rejected."""
    small = "--accounts 3 --pods 2 --tokens 12 --reviews 30 --requests 12 --watches 3 --rotations 0"

    with demonstration(tmp_path, arguments().parse_args([*small.split(), "--no-npm"])) as shown:
        shown.run()

    said = capsys.readouterr().out
    assert "rejected: 0; watches ended: 0" in said
    assert "obeys max-age  tokens-1   accepted" in said
    assert "PyJWT          tokens-1   accepted" in said
    assert said.count("refuses it after") == 3
    assert "new tokens of every server are accepted by all" in said
