"""The demonstration of an authority's rotation, short; `make demo-rotation` runs all."""

from pathlib import Path

import pytest

from tests.rotation.authorities import PROGRAMS, arguments, demonstration


@pytest.mark.system_package(*PROGRAMS)
def test_no_handshake_fails_because_of_a_rotation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """nginx, curl, Java, openssl and kubectl, with roots of the first day, the eve and today."""
    chosen = arguments().parse_args(["--handshakes", "20", "--seconds", "1", "--changes", "0"])

    with demonstration(tmp_path, chosen) as shown:
        shown.run()

    said = capsys.readouterr().out
    assert "rejected: 0" in said
    for program in ("ssl", "curl", "Java", "openssl verify"):
        assert f"{program:15} new leaf, roots of" in said, said
    assert "kubectl         kubeconfig of the first day      accepted" in said
