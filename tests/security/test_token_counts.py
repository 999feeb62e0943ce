"""Token counts do not grow with the lifetimes that callers choose."""

import json

from orchid.features.ledger.token_counts import TokenCounts
from orchid.kernel.engine.ledger import store_keys
from tests.api.world import Api

TOKENS = 300
FEW = 8


async def test_lifetimes_that_all_differ_do_not_fill_the_ledger(server: Api) -> None:
    """Tokens of one caller that end hours, days and decades apart are counted in a few rows."""
    await server.account("busy")
    for number in range(TOKENS):
        await server.token("busy", expirationSeconds=600 + number * 14_000_000)
    counts = server.server.context.port(TokenCounts)

    await counts.write()

    records = (await server.server.store.read(store_keys.PENDING)).records
    entries = [json.loads(record.value) for record in records]
    rows = [row for entry in entries for row in entry.get("tokens", ())]
    assert len(rows) <= FEW
    assert sum(count for _, _, count in rows) == TOKENS
