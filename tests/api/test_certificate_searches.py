"""CertificateSearch: the inventory by words and filters, for callers who may list it."""

from typing import Any

import pytest

from tests.api.world import BOB, Api
from tests.security.test_revoked_users import allowed, grant

SEARCHES = "/apis/identity.orch.io/v1alpha1/certificatesearches"


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        ([allowed("issuedcertificates", "list", group="identity.orch.io")], 201),
        ([allowed("issuedcertificates", "get", group="identity.orch.io")], 403),
        ([allowed("certificatesearches", "create", group="identity.orch.io")], 403),
        ([], 403),
    ],
)
async def test_the_right_to_list_the_inventory_is_needed_and_enough(
    server: Api, rules: list[dict[str, Any]], status: int
) -> None:
    """A search returns nothing that a list would not, and never more."""
    for rule in rules:
        await grant(server, "bob", rule)

    answer = await server.call("POST", SEARCHES, {"spec": {"text": "x"}}, token=BOB)

    assert answer.status == status, answer.text
    if status == 201:
        assert answer.json["status"] == {"items": [], "matches": 0}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"text": "a " * 17}, 'spec.text: Invalid value: "a a'),
        ({"text": "a" * 1001}, "at most 16 words and 1000 characters"),
        ({"state": "Lost"}, 'spec.state: Unsupported value: "Lost"'),
        ({"sort": "size"}, 'spec.sort: Unsupported value: "size"'),
        ({"limit": 0}, "spec.limit: Invalid value: 0: must be between 1 and 1000"),
        ({"limit": 1001}, "spec.limit: Invalid value: 1001: must be between 1 and 1000"),
        ({"endsWithin": "soon"}, 'spec.endsWithin: Invalid value: "soon"'),
        ({"endsWithin": "-1h"}, "spec.endsWithin"),
        ({"after": "%%"}, "spec.after: Invalid value"),
    ],
)
async def test_a_malformed_search_gets_422(server: Api, spec: dict[str, Any], message: str) -> None:
    """With the field and the reason."""
    answer = await server.call("POST", SEARCHES, {"spec": spec})

    assert answer.status == 422, answer.text
    assert message in answer.json["message"]


async def test_a_filter_has_at_most_a_hundred_values(server: Api) -> None:
    """400, as for every list that is too long."""
    answer = await server.call("POST", SEARCHES, {"spec": {"requesters": ["x"] * 101}})

    assert answer.status == 400
    assert ".spec.requesters: there may be at most 100 items" in answer.json["message"]
