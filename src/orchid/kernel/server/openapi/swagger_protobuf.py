"""The Swagger document in protobuf, for command-line clients.

Start with `encode`. The format has a message for each part of the document; `_FIELDS` has, for each
message that we use, the number and the type of its members. Maps are encoded as lists of names with
values, and untyped values (extensions, enums) as JSON text.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from orchid.kernel.wire.codec.protobuf_scalars import LENGTH, VARINT, varint

Encoder = Callable[[Any], bytes]
Members = dict[str, tuple[int, str]]

# A type is a scalar, the name of a message, or a list or map of these.
_QUERY: Members = {
    "required": (1, "bool"), "in": (2, "text"), "description": (3, "text"), "name": (4, "text"),
    "type": (6, "text"), "format": (7, "text"), "enum": (21, "list Any"),
}  # fmt: skip
_PATH: Members = {
    "required": (1, "bool"), "in": (2, "text"), "description": (3, "text"), "name": (4, "text"),
    "type": (5, "text"), "format": (6, "text"), "enum": (20, "list Any"),
}  # fmt: skip
_FIELDS: Final[dict[str, Members]] = {
    "Document": {
        "swagger": (1, "text"), "info": (2, "Info"), "paths": (8, "Paths"),
        "definitions": (9, "map Schema"), "responses": (11, "map Response"),
        "security": (12, "list SecurityRequirement"),
        "securityDefinitions": (13, "map SecurityDefinitionsItem"),
    },
    "Info": {"title": (1, "text"), "version": (2, "text"), "description": (3, "text")},
    "PathItem": {
        "get": (2, "Operation"), "put": (3, "Operation"), "post": (4, "Operation"),
        "delete": (5, "Operation"), "patch": (8, "Operation"),
        "parameters": (9, "list ParametersItem"), "x-": (10, "NamedAny"),
    },
    "Operation": {
        "tags": (1, "list text"), "description": (3, "text"), "operationId": (5, "text"),
        "produces": (6, "list text"), "consumes": (7, "list text"),
        "parameters": (8, "list ParametersItem"), "responses": (9, "Responses"),
        "deprecated": (11, "bool"), "x-": (13, "NamedAny"),
    },
    "BodyParameter": {
        "description": (1, "text"), "name": (2, "text"), "in": (3, "text"),
        "required": (4, "bool"), "schema": (5, "Schema"),
    },
    "QueryParameter": _QUERY,
    "PathParameter": _PATH,
    "Response": {"description": (1, "text"), "schema": (2, "SchemaItem")},
    "JsonReference": {"$ref": (1, "text"), "description": (2, "text")},
    "Schema": {
        "$ref": (1, "text"), "format": (2, "text"), "description": (4, "text"),
        "default": (5, "Any"), "required": (19, "list text"), "enum": (20, "list Any"),
        "additionalProperties": (21, "AdditionalPropertiesItem"), "type": (22, "TypeItem"),
        "items": (23, "ItemsItem"), "properties": (25, "map Schema"), "x-": (31, "NamedAny"),
    },
    "ApiKeySecurity": {
        "type": (1, "text"), "name": (2, "text"), "in": (3, "text"), "description": (4, "text"),
    },
}  # fmt: skip


def encode(document: dict[str, Any]) -> bytes:
    """A whole Swagger document."""
    return _message("Document", document)


def _message(name: str, value: dict[str, Any]) -> bytes:
    members = _FIELDS[name]
    out = bytearray()
    for key, member in value.items():
        if key.startswith("x-"):
            number, _ = members["x-"]
            out += _field(number, _named(key, _any(member)))
        else:
            number, shape = members[key]
            out += _member(number, shape, member)
    return bytes(out)


def _member(number: int, shape: str, value: Any) -> bytes:
    around, _, inner = shape.rpartition(" ")
    if around == "list":
        return b"".join(_field(number, _SHAPES[inner](item)) for item in value)
    if around == "map":
        encoder = _SHAPES[inner]
        pairs = (_field(1, _named(key, encoder(item))) for key, item in value.items())
        return _field(number, b"".join(pairs))
    if shape == "bool":
        return varint(number << 3 | VARINT) + varint(int(value))
    return _field(number, _SHAPES[shape](value))


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | LENGTH) + varint(len(data)) + data


def _named(name: str, value: bytes) -> bytes:
    return _field(1, name.encode()) + _field(2, value)


def _any(value: Any) -> bytes:
    return _field(2, msgspec.json.encode(value))  # JSON is YAML


def _paths(paths: dict[str, Any]) -> bytes:
    return b"".join(_field(2, _named(p, _message("PathItem", i))) for p, i in paths.items())


def _parameter(parameter: dict[str, Any]) -> bytes:
    """A parameter is wrapped in three oneofs: inline/reference, body/other, location."""
    location = parameter["in"]
    if location == "body":
        return _field(1, _field(1, _message("BodyParameter", parameter)))
    if location == "query":
        non_body = _field(3, _message("QueryParameter", parameter))
    else:
        non_body = _field(4, _message("PathParameter", parameter))
    return _field(1, _field(2, non_body))


def _responses(responses: dict[str, Any]) -> bytes:
    out = bytearray()
    for code, response in responses.items():
        if "$ref" in response:
            value = _field(2, _message("JsonReference", response))
        else:
            value = _field(1, _message("Response", response))
        out += _field(1, _named(code, value))
    return bytes(out)


def _requirement(requirement: dict[str, list[str]]) -> bytes:
    return b"".join(
        _field(1, _named(name, b"".join(_field(1, scope.encode()) for scope in scopes)))
        for name, scopes in requirement.items()
    )


_SHAPES: Final[dict[str, Encoder]] = {
    "text": str.encode,
    "Any": _any,
    "Paths": _paths,
    "ParametersItem": _parameter,
    "Responses": _responses,
    "SecurityRequirement": _requirement,
    "SecurityDefinitionsItem": lambda value: _field(2, _message("ApiKeySecurity", value)),
    # Oneofs and lists of one.
    "SchemaItem": lambda value: _field(1, _message("Schema", value)),
    "AdditionalPropertiesItem": lambda value: _field(1, _message("Schema", value)),
    "ItemsItem": lambda value: _field(1, _message("Schema", value)),
    "TypeItem": lambda value: _field(1, value.encode()),
    "Info": lambda value: _message("Info", value),
    "Operation": lambda value: _message("Operation", value),
    "Response": lambda value: _message("Response", value),
    "Schema": lambda value: _message("Schema", value),
}
