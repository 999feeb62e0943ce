"""An approval is kept for the same names and no more."""

from tests.unit.features.acme.conftest import World
from tests.unit.features.acme.test_orders import NAME, approve, issued, settled

OTHER = "other.example.com"


async def test_an_approval_is_kept_for_the_same_names_and_no_longer_life(issuing: World) -> None:
    """An order for one more name, or with a chosen end, waits; an equal one does not."""
    client = await issuing.client()
    first = await client.order(NAME)
    await client.finalize(first, NAME)
    await approve(issuing, first)
    await settled(client, first)

    more = await client.order(NAME, OTHER)
    await client.finalize(more, NAME, OTHER)
    longer = await client.order(NAME, notAfter="2040-01-01T00:00:00Z")
    waiting = await client.finalize(longer, NAME)
    # The equal order is the newest of its names, so the request of `longer` is deleted for it.
    await issued(client, NAME)
    still = await client.post(more.header("location") or "")

    assert waiting.json["status"] == "processing"
    assert still.json["status"] == "processing"
