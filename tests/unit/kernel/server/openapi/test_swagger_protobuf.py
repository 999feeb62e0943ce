"""The protobuf form of the old document, read back by another implementation of protobuf."""

from typing import Any

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from orchid.kernel.server.openapi.endpoints import V2
from orchid.kernel.server.openapi.pages import PROTOBUF_V2
from tests.unit.kernel.server.published import ask, document, published

# The messages of OpenAPI v2 as far as they are looked at here: field, number, type, repeated.
TEXT = "string"
MESSAGES: dict[str, list[tuple[str, int, str, bool]]] = {
    "Document": [
        ("swagger", 1, TEXT, False),
        ("paths", 8, "Paths", False),
        ("definitions", 9, "Schemas", False),
    ],
    "Paths": [("path", 2, "NamedPathItem", True)],
    "NamedPathItem": [("name", 1, TEXT, False), ("value", 2, "PathItem", False)],
    "PathItem": [("patch", 8, "Operation", False), ("post", 4, "Operation", False)],
    "Operation": [
        ("operation_id", 5, TEXT, False),
        ("parameters", 8, "ParametersItem", True),
        ("vendor_extension", 13, "NamedAny", True),
    ],
    "ParametersItem": [("parameter", 1, "Parameter", False)],
    "Parameter": [
        ("body_parameter", 1, "BodyParameter", False),
        ("non_body_parameter", 2, "NonBodyParameter", False),
    ],
    "BodyParameter": [("name", 2, TEXT, False), ("schema", 5, "Schema", False)],
    "NonBodyParameter": [("query_parameter_sub_schema", 3, "QueryParameter", False)],
    "QueryParameter": [("name", 4, TEXT, False), ("type", 6, TEXT, False)],
    "Schemas": [("additional_properties", 1, "NamedSchema", True)],
    "NamedSchema": [("name", 1, TEXT, False), ("value", 2, "Schema", False)],
    "Schema": [
        ("ref", 1, TEXT, False),
        ("format", 2, TEXT, False),
        ("description", 4, TEXT, False),
        ("required", 19, TEXT, True),
        ("type", 22, "TypeItem", False),
        ("items", 23, "ItemsItem", False),
        ("properties", 25, "Schemas", False),
        ("vendor_extension", 31, "NamedAny", True),
    ],
    "TypeItem": [("value", 1, TEXT, True)],
    "ItemsItem": [("schema", 1, "Schema", True)],
    "NamedAny": [("name", 1, TEXT, False), ("value", 2, "Any", False)],
    "Any": [("yaml", 2, TEXT, False)],
}


def reader() -> Any:
    """A class that reads the document."""
    file = descriptor_pb2.FileDescriptorProto(name="v2.proto", package="v2", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, type_, repeated in fields:
            said = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if type_ == TEXT:
                said.type = said.TYPE_STRING
            else:
                said.type, said.type_name = said.TYPE_MESSAGE, f".v2.{type_}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("v2.Document"))


@pytest.fixture(scope="module")
def packed() -> Any:
    """The document in its protobuf form."""
    return reader().FromString(ask(published(), V2, accept=PROTOBUF_V2).body)


def schema_of(found: Any) -> dict[str, Any]:
    """A schema of the protobuf form, as JSON has it."""
    schema: dict[str, Any] = {}
    if found.ref:
        schema["$ref"] = found.ref
    if found.format:
        schema["format"] = found.format
    if found.description:
        schema["description"] = found.description
    if found.required:
        schema["required"] = list(found.required)
    if found.type.value:
        (schema["type"],) = found.type.value
    if found.items.schema:
        schema["items"] = schema_of(found.items.schema[0])
    if found.HasField("properties"):
        schema["properties"] = {
            entry.name: schema_of(entry.value) for entry in found.properties.additional_properties
        }
    for entry in found.vendor_extension:
        schema[entry.name] = msgspec.json.decode(entry.value.yaml)
    return schema


def test_definitions_are_those_of_the_plain_form(packed: Any) -> None:
    """Every definition comes back as it is in JSON, but for what this reader does not look at."""
    plain = document(published(), V2)["definitions"]

    read = {
        entry.name: schema_of(entry.value) for entry in packed.definitions.additional_properties
    }

    assert packed.swagger == "2.0"
    assert read.keys() == plain.keys()
    for name in ("io.k8s.api.fruit.v1beta1.Tree", "io.k8s.api.fruit.v1beta1.Orchard"):
        assert read[name] == plain[name]


def test_operations_keep_their_parameters(packed: Any) -> None:
    """A client of the protobuf form finds out that a patch takes a dry run."""
    items = {entry.name: entry.value for entry in packed.paths.path}
    path = "/apis/fruit.garden.k8s.io/v1beta1/namespaces/{namespace}/orchards/{name}"

    patch = items[path].patch
    query = [
        item.parameter.non_body_parameter.query_parameter_sub_schema.name
        for item in patch.parameters[1:]
    ]

    assert patch.parameters[0].parameter.body_parameter.name == "body"
    assert "dryRun" in query
    assert patch.operation_id == "patchFruitGardenV1beta1NamespacedOrchard"
    assert {entry.name: entry.value.yaml for entry in patch.vendor_extension}[
        "x-kubernetes-action"
    ] == '"patch"'
