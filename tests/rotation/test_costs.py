"""Rotation costs a request nothing; `make rotation-costs` measures 100,000 rows, too."""

from pathlib import Path

from tests.rotation.costs import all_calls, changed, counted


async def test_stored_keys_cost_a_request_no_call(tmp_path: Path) -> None:
    """Get, review and token request: as with keys in files, one key or several."""
    assert changed(await all_calls(tmp_path)) == []


async def test_rows_are_counted_by_holder(tmp_path: Path) -> None:
    """Over several pages; each holder exists and counts once."""
    assert (await counted(tmp_path / "rows", 2500)).holders == 2500
