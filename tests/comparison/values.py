"""Random values that fit a schema, or nearly: what the bodies of requests are made of.

`Values.of(schema)` walks an OpenAPI schema. A name that says what belongs there (`request` of a
certificate request, `roleRef`, ...) is filled from `CHOICES`, or nothing would ever be valid;
everything else is made up. `spoiled` puts one fault into a document.
"""

import base64
import copy
import json
import random
from pathlib import Path
from typing import Any

from tests.comparison.operations import Document

FIXTURES: dict[str, str] = json.loads(
    (Path(__file__).parent.parent / "conformance" / "fixtures.json").read_text()
)
DEEPEST = 6
KEYS = ("k1", "k.2", "K_3", "bad key")
WORDS = ("", "a", "x", "web", "ä", "A B", "10", "true", "a.b/c", "x" * 70)
TIMES = ("2026-01-02T03:04:05Z", "2030-12-31T23:59:59Z", "2026-01-02T03:04:05.678901Z", "never")
WRONG: tuple[Any, ...] = (None, "", 0, -1, 1.5, True, [], {}, "text", ["x"], {"a": "b"}, 2**40)

REQUESTS = [text for name, text in FIXTURES.items() if name.startswith("csr_")]
CERTIFICATES = [text for name, text in FIXTURES.items() if name.startswith(("ca_", "leaf", "no"))]
VERBS = ("get", "list", "create", "*", "impersonate", "")
GROUPS = ("", "apps", "rbac.authorization.k8s.io", "*")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# What stands under a name, whatever kind it is in. A list is one to choose from.
CHOICES: dict[str, list[Any]] = {
    "request": [encoded(text) for text in REQUESTS],
    "trustBundle": CERTIFICATES,
    "certificate": [encoded(text) for text in CERTIFICATES],
    "signerName": ["example.com/one", "example.com/two", "kubernetes.io/kubelet-serving", "bad"],
    "usages": [["client auth"], ["digital signature", "server auth"], [], ["nonsense"]],
    "expirationSeconds": [600, 3600, 601, 599, 0, -1, 2**33],
    "audiences": [["api"], [], ["a", "b"], [""]],
    "boundObjectRef": [
        {"kind": "Pod", "apiVersion": "v1", "name": "none"},
        {"kind": "Secret", "apiVersion": "v1", "name": "n0"},
        {"kind": "ConfigMap", "apiVersion": "v1", "name": "n0"},
        None,
    ],
    "apiGroups": [[group] for group in GROUPS] + [[]],
    "resources": [["pods"], ["*"], ["secrets", "pods/status"], []],
    "verbs": [[verb] for verb in VERBS] + [[]],
    "resourceNames": [["n0"], []],
    "nonResourceURLs": [["/metrics"], ["*"], ["/x/*"], []],
    "namespace": ["default", "none", ""],
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "Equals"],
    "token": ["alice-token-0002", "nonsense", "", "a.b.c", "  bob-token-0003 "],
    "path": ["/metrics", "/", "x"],
    "verb": list(VERBS),
    "user": ["alice", "bob", ""],
    "groups": [["dev"], ["system:masters"], []],
    "immutable": [True, False, False, False],
    "type": ["Opaque", "", "kubernetes.io/tls", "kubernetes.io/basic-auth", "example.com/own"],
    "strategy": ["OldestEmulationVersion", ""],
    "preferredHolder": ["", "a"],
    "leaseDurationSeconds": [15, 0, -1],
    "leaseTransitions": [0, 1, -1],
    "finalizers": [["kubernetes"], []],
}

POD_SPEC = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "n0"}


class Values:
    def __init__(self, chance: random.Random, definitions: Document) -> None:
        self._chance = chance
        self._definitions = definitions

    def of(self, schema: Document, name: str = "", depth: int = 0) -> Any:
        schema = self.resolved(schema)
        if name in CHOICES and self._chance.random() < 0.9:
            return self._chance.choice(CHOICES[name])
        kind = schema.get("type", "object" if "properties" in schema else "")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            count = self._chance.choice((0, 1, 1, 2))
            return [self.of(schema.get("items", {}), "", depth + 1) for _ in range(count)]
        return self._scalar(kind, schema.get("format", ""))

    def _object(self, schema: Document, depth: int) -> Any:
        properties = schema.get("properties")
        if properties is None:
            inner = schema.get("additionalProperties")
            keys = self._chance.sample(KEYS, self._chance.choice((0, 1, 2)))
            if not isinstance(inner, dict) or depth > DEEPEST:
                return {}
            return {key: self.of(inner, "", depth + 1) for key in keys}
        required = schema.get("required", ())
        found = {}
        for name, inner in properties.items():
            likely = 0.97 if name in required else 0.5 / (1 + depth / 3)
            if name not in ("kind", "apiVersion", "metadata", "status") and (
                self._chance.random() < likely and depth < DEEPEST
            ):
                found[name] = self.of(inner, name, depth + 1)
        return found

    def _scalar(self, kind: str, form: str) -> Any:
        if kind == "boolean":
            return self._chance.random() < 0.5
        if kind in ("integer", "number"):
            return self._chance.choice((0, 1, 5, 3600, -1, 2**31, 2**53))
        if form == "byte":
            return encoded(self._chance.choice(WORDS))
        if form in ("date-time", "int-or-string"):
            return self._chance.choice(TIMES)
        return self._chance.choice(WORDS)

    def resolved(self, schema: Document) -> Document:
        while True:
            one = schema.get("allOf")
            reference = schema.get("$ref") or (one[0].get("$ref") if one else None)
            if not reference:
                return schema
            schema = self._definitions.get(reference.rpartition("/")[2], {})


def spoiled(document: Any, chance: random.Random) -> Any:
    """The document with one fault: a wrong type, a null, or something unknown or missing."""
    document = copy.deepcopy(document)
    wrong = copy.deepcopy(chance.choice(WRONG))
    places = list(_places(document))
    if not places:
        return wrong
    where, key = chance.choice(places)
    fault = chance.random()
    if fault < 0.5:
        where[key] = wrong
    elif fault < 0.75 and isinstance(where, dict):
        del where[key]
    elif isinstance(where, dict):
        where["unknownField"] = wrong
    else:
        where.append(wrong)
    return document


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield value, index
            yield from _places(inner)
