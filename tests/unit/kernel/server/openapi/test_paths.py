"""Every verb of a kind has its operation, under the path where it is served."""

from typing import Any

import pytest

from orchid.kernel.server.openapi.endpoints import V2, V3
from tests.unit.kernel.server.published import OPENID, document, published

ROOT = "/apis/fruit.garden.k8s.io/v1beta1"
INSIDE = f"{ROOT}/namespaces/{{namespace}}/orchards"
METHODS = ("get", "put", "post", "patch", "delete")
KNOWN = {"group": "fruit.garden.k8s.io", "kind": "Orchard", "version": "v1beta1"}


@pytest.fixture(scope="module")
def paths() -> Any:
    """The paths of the kind's group."""
    return document(published(), f"{V3}{ROOT}")["paths"]


def test_every_verb_has_an_operation(paths: Any) -> None:
    """The ids name the verb, the group, the scope and the endpoint, as generated clients do."""
    group = "FruitGardenV1beta1"
    found = {
        path: {method: item[method]["operationId"] for method in METHODS if method in item}
        for path, item in paths.items()
    }

    assert found == {
        f"{ROOT}/": {"get": f"get{group}APIResources"},
        f"{ROOT}/orchards": {"get": f"list{group}OrchardForAllNamespaces"},
        INSIDE: {
            "get": f"list{group}NamespacedOrchard",
            "post": f"create{group}NamespacedOrchard",
            "delete": f"delete{group}CollectionNamespacedOrchard",
        },
        f"{INSIDE}/{{name}}": {
            "get": f"read{group}NamespacedOrchard",
            "put": f"replace{group}NamespacedOrchard",
            "patch": f"patch{group}NamespacedOrchard",
            "delete": f"delete{group}NamespacedOrchard",
        },
        f"{INSIDE}/{{name}}/status": {
            "get": f"read{group}NamespacedOrchardStatus",
            "put": f"replace{group}NamespacedOrchardStatus",
            "patch": f"patch{group}NamespacedOrchardStatus",
        },
        f"{INSIDE}/{{name}}/harvest": {"post": f"create{group}NamespacedOrchardHarvest"},
        f"{ROOT}/watch/orchards": {"get": f"watch{group}OrchardListForAllNamespaces"},
        f"{ROOT}/watch/namespaces/{{namespace}}/orchards": {
            "get": f"watch{group}NamespacedOrchardList"
        },
        f"{ROOT}/watch/namespaces/{{namespace}}/orchards/{{name}}": {
            "get": f"watch{group}NamespacedOrchard"
        },
    }


def test_operation_says_what_it_does_and_to_what(paths: Any) -> None:
    """Clients find out by these two whether a verb is there for a kind."""
    listing, harvesting = paths[INSIDE]["get"], paths[f"{INSIDE}/{{name}}/harvest"]["post"]

    assert listing["x-kubernetes-action"] == "list"
    assert listing["x-kubernetes-group-version-kind"] == KNOWN
    assert harvesting["x-kubernetes-group-version-kind"] == {
        "group": "authentication.k8s.io",
        "kind": "Harvest",
        "version": "v1",
    }


def test_patch_takes_dry_run_and_field_validation_by_name(paths: Any) -> None:
    """Clients look for these parameters, written out, before they ask for a dry run."""
    patch = paths[f"{INSIDE}/{{name}}"]["patch"]

    names = {parameter["name"] for parameter in patch["parameters"]}

    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= names
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]


def test_every_document_has_its_page() -> None:
    """Non-resource paths are described too."""
    pages = published()

    assert "/version/" in document(pages, f"{V3}/version")["paths"]
    assert OPENID in document(pages, f"{V3}{OPENID}")["paths"]


def test_old_document_has_all_paths_and_plain_parameters() -> None:
    """Swagger says the same with the body as a parameter and one schema for each answer."""
    found = document(published(), V2)
    created = found["paths"][INSIDE]["post"]

    assert {f"{INSIDE}/{{name}}", "/version/", "/apis/", OPENID} <= found["paths"].keys()
    assert created["parameters"][0] == {
        "name": "body",
        "in": "body",
        "required": True,
        "schema": {"$ref": "#/definitions/io.k8s.api.fruit.v1beta1.Orchard"},
    }
    assert created["consumes"][0] == created["produces"][0] == "application/json"
    assert created["responses"]["default"] == {"$ref": "#/responses/Failure"}


def test_old_document_hides_the_fields_of_open_objects() -> None:
    """Old clients would refuse every other field, so they are shown none."""
    pages = published()
    old = document(pages, V2)["definitions"]["io.k8s.api.core.v1.FenceSpec"]
    new = document(pages, f"{V3}{ROOT}")["components"]["schemas"]

    assert "properties" not in old
    assert "posts" in new["io.k8s.api.core.v1.FenceSpec"]["properties"]
