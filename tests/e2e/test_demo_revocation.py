"""The demonstration of revocation, step by step, as `make demo-revocation` runs it."""

from pathlib import Path

import pytest

from tests.e2e.demo_revocation import demonstration
from tests.system_packages import require_program


@pytest.mark.system_package("etcd")
def test_a_revocation_is_felt_on_three_servers_and_by_programs_that_are_not_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step insists on what it shows; none may be left out."""
    for program in ("kubectl", "openssl", "nginx"):
        require_program(program)

    with demonstration(tmp_path) as shown:
        shown.run(rounds=3)

    said = capsys.readouterr().out
    assert said.count("says 401 on the same connection") == 6
    assert said.count("the open watch has ended") == 2
    assert said.count("TokenReview on server") == 3
    assert "certificate revoked" in said
    assert "The SSL certificate error" in said or "400 " in said
