"""The list of custom resources: kubectl reads it before it creates a review."""

from orchid.kernel.wire.naming import SETS
from tests.api.world import Api

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def test_there_are_no_custom_resources(server: Api) -> None:
    """An administrator gets none; other methods and names find nothing."""
    listed = await server.call("GET", f"{PATH}?limit=500")

    assert (listed.status, listed.json["kind"]) == (200, "CustomResourceDefinitionList")
    assert listed.json["items"] == []
    for method, path in (("POST", PATH), ("GET", f"{PATH}/x"), ("GET", f"{PATH}?watch=1")):
        assert (await server.call(method, path)).status == 404


async def test_the_right_to_list_them_is_needed(server: Api) -> None:
    """As in Kubernetes; discovery has no such group."""
    await server.account("reader")
    token = await server.token("reader")

    refused = await server.call("GET", PATH, token=token)
    groups = (await server.call("GET", "/apis")).json["groups"]

    assert refused.status == 403
    assert {f"apiextensions.{names.group_domain}" for names in SETS.values()} & {
        group["name"] for group in groups
    } == set()
