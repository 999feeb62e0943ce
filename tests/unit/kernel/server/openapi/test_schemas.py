"""The schema of a kind follows its declaration."""

from typing import Any

import pytest

from orchid.kernel.server.openapi.endpoints import V3
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.server.published import document, published

API = "io.k8s.api.fruit.v1beta1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
REFER = "#/components/schemas/"


@pytest.fixture(scope="module")
def schemas() -> Any:
    """The definitions of the document of the kind's group."""
    found = document(published(), f"{V3}/apis/fruit.garden.k8s.io/v1beta1")
    return found["components"]["schemas"]


@pytest.fixture(scope="module")
def spec(schemas: Any) -> Any:
    """The fields of the kind's spec."""
    return schemas[f"{API}.OrchardSpec"]["properties"]


def test_definitions_have_the_names_that_clients_look_for(schemas: Any) -> None:
    """A definition is named by group, version and type; shared ones are under meta."""
    assert {
        f"{API}.Orchard",
        f"{API}.OrchardList",
        f"{API}.OrchardSpec",
        "io.k8s.api.authentication.v1.Harvest",
        "io.k8s.api.core.v1.FenceSpec",
        f"{META}.ObjectMeta",
        f"{META}.DeleteOptions",
        f"{META}.Status",
        f"{META}.Time",
    } <= schemas.keys()


def test_definitions_follow_the_naming() -> None:
    """In the other naming the same definitions are under its own domain."""
    found = document(published(ORCH), f"{V3}/apis/fruit.garden.orch.io/v1beta1")

    names = found["components"]["schemas"]

    assert "io.orch.api.fruit.v1beta1.Orchard" in names
    assert all(name.startswith("io.orch.") for name in names)


def test_document_holds_only_what_its_paths_need() -> None:
    """The document of the version has no definition of the kind's group."""
    found = document(published(), f"{V3}/version")

    assert not any(name.startswith(API) for name in found["components"]["schemas"])


def test_kind_says_which_it_is(schemas: Any) -> None:
    """Clients find the definition of a kind by its group, version and kind."""
    known = {"group": "fruit.garden.k8s.io", "kind": "Orchard", "version": "v1beta1"}

    assert schemas[f"{API}.Orchard"]["x-kubernetes-group-version-kind"] == [known]
    assert schemas[f"{API}.OrchardList"]["x-kubernetes-group-version-kind"] == [
        known | {"kind": "OrchardList"}
    ]


def test_descriptions_come_from_the_declaration(schemas: Any) -> None:
    """Types are described by the first paragraph of their docstring, fields by their word."""
    tree = schemas[f"{API}.Tree"]

    assert tree["description"] == "A tree. And more of it."
    assert tree["properties"]["name"]["description"] == "What it is called."


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("rows", {"list-type": "atomic"}),
        ("sorts", {"list-type": "set", "patch-strategy": "merge"}),
        (
            "trees",
            {
                "list-type": "map",
                "list-map-keys": ["name"],
                "patch-merge-key": "name",
                "patch-strategy": "merge",
            },
        ),
        ("conditions", {"list-type": "map", "list-map-keys": ["name"]}),
    ],
)
def test_lists_say_how_they_merge(spec: Any, field: str, words: dict[str, Any]) -> None:
    """Apply reads the list type, a strategic merge patch the merge key."""
    said = {
        key.removeprefix("x-kubernetes-"): value
        for key, value in spec[field].items()
        if key.startswith("x-")
    }

    assert said == words


def test_what_is_owned_as_a_whole_is_atomic(schemas: Any) -> None:
    """A field with one owner as a whole is declared so in its definition."""
    assert "x-kubernetes-map-type" not in schemas[f"{API}.Tree"]
    assert schemas["io.k8s.api.core.v1.FenceSpec"]["x-kubernetes-map-type"] == "atomic"


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ("seeds", {"type": "string", "format": "byte"}),
        ("marks", {"type": "object", "additionalProperties": {"type": "string"}}),
        ("watered", {"$ref": f"{REFER}{META}.MicroTime"}),
        ("anything", {}),
        ("season", {"type": "string", "default": "autumn"}),
        (
            "planted",
            {
                "allOf": [{"$ref": f"{REFER}{META}.Time"}],
                "description": "When.",
                "nullable": True,
            },
        ),
        ("owner", {"type": "string", "description": "Whose.", "nullable": True}),
    ],
)
def test_field_has_the_schema_of_its_type(spec: Any, field: str, schema: dict[str, Any]) -> None:
    """Types, formats, null and what the kind's own defaulting puts in."""
    assert spec[field] == schema


def test_integers_have_their_size(schemas: Any) -> None:
    """Numbers of 32 and 64 bits have different formats."""
    assert schemas[f"{API}.Tree"]["properties"]["height"]["format"] == "int32"
    assert schemas["io.k8s.api.core.v1.FenceSpec"]["properties"]["posts"]["format"] == "int64"


def test_required_fields(schemas: Any) -> None:
    """A plain field that is always written is required, and what says that it is."""
    assert schemas[f"{API}.Tree"]["required"] == ["name"]
    assert schemas[f"{API}.OrchardSpec"]["required"] == ["owner"]
    assert schemas[f"{API}.Orchard"]["required"] == ["spec"]
