"""A path that has lost a word on its way does not mean everything."""

import pytest

from tests.api.world import Api

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/api/v1/namespaces//serviceaccounts", "Namespace parameter required."),
        (f"{ACCOUNTS}/", "Name parameter required."),
    ],
)
async def test_a_delete_without_its_last_word_deletes_nothing(
    server: Api, target: str, message: str
) -> None:
    """A path with an empty namespace or name, as from a faulty script, must not mean all."""
    await server.account("a")
    await server.make("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await server.account("b", "other")

    answer = await server.call("DELETE", target)
    left = (await server.call("GET", "/api/v1/serviceaccounts")).json["items"]

    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert answer.json["message"] == message
    assert {item["metadata"]["name"] for item in left} >= {"a", "b"}
