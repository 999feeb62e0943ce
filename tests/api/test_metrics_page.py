"""GET /metrics of a whole server."""

import re
from pathlib import Path

import orchid
from tests.api.world import api


async def test_every_metric_of_ours_is_on_the_page(server_files: Path) -> None:
    """A metric that no page shows was forgotten in the assembly."""
    source = Path(orchid.__file__).parent
    counted = {
        name
        for path in source.rglob("*.py")
        if source / "features" / "hosts" / "agent" not in path.parents  # it writes a file
        for name in re.findall(r'"(orchid_[a-z_]+)"', path.read_text())
        if path.parent.name != "exchange"  # only with --token-exchange-config
    }
    async with api(server_files) as server:
        page = (await server.call("GET", "/metrics")).text

    missing = counted - set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))

    assert counted
    assert not missing, f"{sorted(missing)} must be in `metrics` of the FEATURE that counts them"
