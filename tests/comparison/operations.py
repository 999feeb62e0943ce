"""Operations that both servers publish in their OpenAPI documents.

Start with `common_operations`. An operation has its path, method, parameters and, where there is a
body, the schema of it. Operations of only one server are omitted; `only_one_has` lists them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.comparison.sending import Client, Request

METHODS = ("get", "post", "put", "patch", "delete")
Document = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    action: str  # what the document calls it: list, post, deletecollection, ...
    group: str
    version: str
    kind: str
    parameters: tuple[str, ...]  # of the query
    schema: Document = field(default_factory=dict, compare=False, repr=False)
    definitions: Document = field(default_factory=dict, compare=False, repr=False)

    @property
    def resource(self) -> str:
        """`serviceaccounts/token`: the path without places and names."""
        parts = self.path.split("/")
        words = parts[3:] if parts[1] == "api" else parts[4:]
        if words[:2] == ["namespaces", "{namespace}"] and len(words) > 2:
            words = words[2:]
        return "/".join(word for word in words if not word.startswith("{"))

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def common_operations(first: Client, second: Client, token: str) -> tuple[list[Operation], str]:
    """The operations of both servers, and a sentence about those that only the first has."""
    ours = {(one.method, one.path): one for one in published(first, token)}
    theirs = {(one.method, one.path) for one in published(second, token)}
    missing = sorted({path for method, path in ours.keys() - theirs})
    return [one for key, one in sorted(ours.items()) if key in theirs], ", ".join(missing)


def published(client: Client, token: str) -> Iterator[Operation]:
    index = _document(client, "/openapi/v3", token)["paths"]
    for name, entry in sorted(index.items()):
        if name.startswith(("api/", "apis/")):
            yield from _operations(_document(client, entry["serverRelativeURL"], token))


def _operations(document: Document) -> Iterator[Operation]:
    definitions = document.get("components", {}).get("schemas", {})
    for path, item in document.get("paths", {}).items():
        for method in METHODS:
            said = item.get(method, {})
            about = said.get("x-kubernetes-group-version-kind")
            if about and "/watch/" not in path:
                parameters = [*item.get("parameters", ()), *said.get("parameters", ())]
                names = [one["name"] for one in parameters if one.get("in") == "query"]
                yield Operation(
                    method.upper(),
                    path,
                    said.get("x-kubernetes-action", ""),
                    about["group"],
                    about["version"],
                    about["kind"],
                    tuple(sorted(set(names))),
                    _body_schema(said, item, definitions),
                    definitions,
                )


def _body_schema(said: Document, item: Document, definitions: Document) -> Document:
    """The schema of the object that an operation is about; a patch holds a part of it."""
    if said is item.get("patch"):
        said = item.get("get", {})
        contents = said.get("responses", {}).get("200", {}).get("content", {})
    else:
        contents = said.get("requestBody", {}).get("content", {})
    for content in contents.values():
        found: Document = content.get("schema", {})
        return found
    return {}


def _document(client: Client, path: str, token: str) -> Document:
    answer = client.send(Request("GET", path, {"Authorization": f"Bearer {token}"}))
    if answer.status != 200:
        raise SystemExit(f"{client.url}{path} answered {answer.status}")
    found: Document = json.loads(answer.body)
    return found
