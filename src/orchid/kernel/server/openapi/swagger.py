"""OpenAPI 3.0 converted to Swagger 2.0, for older clients. Start with `swagger`.

Swagger has no null, no choice between schemas, and no media type beside each schema; unsupported
parts are omitted. Old clients refuse fields without a definition, so an object that stores unknown
fields shows none at all.
"""

from typing import Any, Final

from orchid.kernel.server.openapi.schemas import KEEPS_UNKNOWN, PREFIX

Document = dict[str, Any]

_METHODS: Final = ("get", "put", "post", "patch", "delete")
_UNSAID: Final = frozenset({"nullable", "default"})


def swagger(
    info: Document, paths: Document, schemas: Document, responses: Document, security: Document
) -> Document:
    """The whole API as one document."""
    return {
        "swagger": "2.0",
        "info": info,
        "paths": {path: _path_item(item) for path, item in sorted(paths.items())},
        "definitions": {name: _schema(schema) for name, schema in sorted(schemas.items())},
        "responses": {name: _response(response) for name, response in responses.items()},
        "securityDefinitions": security,
        "security": [{name: []} for name in security],
    }


def _path_item(item: Document) -> Document:
    changed: Document = {method: _operation(item[method]) for method in _METHODS if method in item}
    if "parameters" in item:
        changed["parameters"] = [_parameter(parameter) for parameter in item["parameters"]]
    return changed


def _operation(operation: Document) -> Document:
    changed = {
        key: value
        for key, value in operation.items()
        if key not in ("parameters", "requestBody", "responses")
    }
    parameters = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    body = operation.get("requestBody")
    if body:
        changed["consumes"] = list(body["content"])
        parameters.insert(0, _body(body))
    if parameters:
        changed["parameters"] = parameters
    produced = [media for r in operation["responses"].values() for media in r.get("content", ())]
    changed["produces"] = list(dict.fromkeys(produced))
    changed["responses"] = {
        code: _response(response) for code, response in operation["responses"].items()
    }
    return changed


def _body(body: Document) -> Document:
    # The last media type: the first one of patches has a body that is no object.
    schema = list(body["content"].values())[-1]["schema"]
    changed = {"name": "body", "in": "body", "schema": _schema(schema)}
    return changed | ({"required": True} if body.get("required") else {})


def _parameter(parameter: Document) -> Document:
    said = {key: value for key, value in parameter.items() if key != "schema"}
    return {**said, **parameter["schema"]}


def _response(response: Document) -> Document:
    if "$ref" in response:
        return {"$ref": response["$ref"].replace("#/components/responses/", "#/responses/")}
    first = next(iter(response["content"].values()))
    return {"description": response["description"], "schema": _schema(first["schema"])}


def _schema(schema: Document) -> Document:
    if "anyOf" in schema:
        return _schema(schema["anyOf"][0])
    if "allOf" in schema:
        (reference,) = schema["allOf"]
        said = {key: value for key, value in schema.items() if key not in {"allOf", *_UNSAID}}
        return said | _schema(reference)
    if "$ref" in schema:
        return {"$ref": "#/definitions/" + schema["$ref"].removeprefix(PREFIX)}
    changed = {key: value for key, value in schema.items() if key not in _UNSAID}
    if changed.pop(KEEPS_UNKNOWN, False):
        del changed["properties"]
        changed.pop("required", None)
        return changed
    for key in ("items", "additionalProperties"):
        if key in changed:
            changed[key] = _schema(changed[key])
    if "properties" in changed:
        changed["properties"] = {n: _schema(inner) for n, inner in changed["properties"].items()}
    return changed
