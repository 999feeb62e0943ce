"""The published OpenAPI against section 4 of the specification: operations, parameters, answers."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import Api, api

WRITE = "dryRun fieldManager fieldValidation pretty"
LIST = (
    "allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion "
    "resourceVersionMatch sendInitialEvents timeoutSeconds watch"
)
DELETE = (
    "dryRun gracePeriodSeconds ignoreStoreReadErrorWithClusterBreakingPotential pretty "
    "propagationPolicy"
)
DELETE_COLLECTION = (
    f"{DELETE} continue fieldSelector labelSelector limit resourceVersion resourceVersionMatch "
    "sendInitialEvents timeoutSeconds"
)
PARAMETERS = {
    "get": "pretty",
    "list": LIST,
    "create": WRITE,
    "update": WRITE,
    "patch": f"{WRITE} force",
    "delete": DELETE,
    "deletecollection": DELETE_COLLECTION,
}
ANSWERS = {
    "get": "200",
    "list": "200",
    "create": "200 201 202",
    "update": "200 201",
    "patch": "200 201",
    "delete": "200 202",
    "deletecollection": "200",
}
METHODS = {
    "get": "get",
    "list": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
AUTHENTICATION = "/apis/authentication.orch.io/v1"
CERTIFICATES = "/apis/certificates.orch.io"
ACCOUNTS = "/api/v1/namespaces/{namespace}/serviceaccounts"
REQUESTS = f"{CERTIFICATES}/v1/certificatesigningrequests"
BUNDLES = f"{CERTIFICATES}/v1beta1/clustertrustbundles"
COLLECTION, OBJECT = "list create deletecollection", "get update patch delete"
PATHS = {
    ACCOUNTS: COLLECTION,
    "/api/v1/serviceaccounts": "list",
    f"{ACCOUNTS}/{{name}}": OBJECT,
    f"{ACCOUNTS}/{{name}}/token": "create",
    f"{AUTHENTICATION}/tokenreviews": "create",
    f"{AUTHENTICATION}/selfsubjectreviews": "create",
    REQUESTS: COLLECTION,
    f"{REQUESTS}/{{name}}": OBJECT,
    f"{REQUESTS}/{{name}}/approval": "get update patch",
    f"{REQUESTS}/{{name}}/status": "get update patch",
    BUNDLES: COLLECTION,
    f"{BUNDLES}/{{name}}": OBJECT,
}
OPERATIONS = [(path, verb) for path, verbs in PATHS.items() for verb in verbs.split()]


def parameters(item: dict[str, Any], operation: dict[str, Any], shared: Any) -> set[str]:
    found = [*item.get("parameters", []), *operation.get("parameters", [])]
    named = [shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in found]
    return {one["name"] for one in named if one.get("in") == "query"}


def new_document(path: str) -> str:
    """Where the OpenAPI v3 document of an operation is."""
    group = path.removeprefix("/").split("/{")[0].split("/")
    return "/openapi/v3/" + "/".join(group[:2] if group[0] == "api" else group[:3])


@pytest.fixture(scope="module")
def published(server_files: Path) -> Mapping[str, Any]:
    """The documents by path, from one server: no test changes what it publishes."""

    async def read() -> dict[str, Any]:
        paths = {"/openapi/v2", *map(new_document, PATHS)}
        async with api(server_files) as server:
            return {path: (await server.call("GET", path)).json for path in paths}

    return asyncio.run(read())


@pytest.mark.parametrize(("path", "verb"), OPERATIONS)
def test_an_operation_is_published_as_specified(
    published: Mapping[str, Any], path: str, verb: str
) -> None:
    """Each parameter and each answer that the specification lists, in both documents."""
    old, new = published["/openapi/v2"], published[new_document(path)]

    for document, shared in ((old, old.get("parameters", {})), (new, {})):
        item = document["paths"][path]
        operation = item[METHODS[verb]]
        assert parameters(item, operation, shared) >= set(PARAMETERS[verb].split())
        assert set(operation["responses"]) >= {*ANSWERS[verb].split(), "401"}


def test_every_operation_lists_unauthorized(published: Mapping[str, Any]) -> None:
    """Section 5: every operation lists 401 Unauthorized as a possible response."""
    document = published["/openapi/v2"]
    silent = [
        (path, method)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method != "parameters" and "401" not in operation["responses"]
    ]

    assert silent == []


@pytest.mark.parametrize(
    "name",
    [
        "api.core.v1.ConfigMapKeySelector",
        "api.core.v1.LocalObjectReference",
        "api.core.v1.ObjectFieldSelector",
        "api.core.v1.ObjectReference",
        "api.core.v1.SecretKeySelector",
        "api.rbac.v1.RoleRef",
        "api.rbac.v1.Subject",
        "apimachinery.pkg.apis.meta.v1.LabelSelector",
        "apimachinery.pkg.apis.meta.v1.OwnerReference",
    ],
)
def test_types_with_one_owner_say_so(published: Mapping[str, Any], name: str) -> None:
    """The same types as in the reference are replaced as a whole under apply."""
    definitions = published["/openapi/v2"]["definitions"]
    (found,) = [schema for full, schema in definitions.items() if full.endswith(f".{name}")]

    assert found["x-kubernetes-map-type"] == "atomic"


async def test_audiences_of_a_token_request_are_required_and_may_be_empty(server: Api) -> None:
    """The documents say what the reference's say; the server is more lenient, as it is there."""
    await server.account("robot")
    tokens = "/api/v1/namespaces/default/serviceaccounts/robot/token"

    new = (await server.call("GET", "/openapi/v3/api/v1")).json["components"]["schemas"]
    old = (await server.call("GET", "/openapi/v2")).json["definitions"]
    answer = await server.call("POST", tokens, {"spec": {}})

    for found in (new, old):
        (schema,) = (one for name, one in found.items() if name.endswith(".TokenRequestSpec"))
        assert schema["required"] == ["audiences"]
    assert answer.status == 201
