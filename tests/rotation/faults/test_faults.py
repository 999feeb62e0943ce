"""A few rounds of each sort of key on the embedded store; `make rotation-faults` runs all."""

import json
from pathlib import Path

import pytest

from orchid.kernel.store.interface import Change
from tests.rotation.faults.killed_server import Fuse, described
from tests.rotation.faults.run import run

SHORT = ("sealing", "ledger", "import")  # the others take minutes: `make rotation-faults`


@pytest.mark.parametrize("subject", SHORT)
@pytest.mark.system_package("openssl")
def test_a_rotation_goes_on_after_a_kill(subject: str) -> None:
    """Whatever was written last: no credential is rejected, and the rotation completes."""
    report = run(subject, "sqlite", 1, seed=7)

    print(report)  # noqa: T201 - shown when it fails
    assert report.violations == []
    assert report.rounds >= 1
    assert sum(report.done.values()) > 0


def test_a_server_dies_after_the_write_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only commits of the rotation count, and the last one is described."""
    died: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, number: died.append(number))
    fuse = Fuse(2, "identity/signingkeys/", tmp_path / "report")
    key = {"spec": {"state": "Active"}, "status": {"times": {"published": "x", "active": "y"}}}
    step = Change("identity/signingkeys/tokens-12", json.dumps(key).encode(), 1)

    for change in (step, Change("core/pods/ci/a", b"{}", 0)):
        fuse.committed([change])
    assert died == []
    fuse.committed([step])

    assert died == [9]
    text = "write identity/signingkeys/tokens-N Active (active,published)"
    assert (tmp_path / "report").read_text().strip() == text
    assert described(Change("core/secrets/ci/s20", None, 1)) == "delete core/secrets/ci/sN"
