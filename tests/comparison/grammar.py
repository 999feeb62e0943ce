"""Random requests: paths, query parameters, headers, bodies and patches, all from one seed.

`Grammar.request` gives the next one. Names come from a small set, so that requests meet objects
that earlier ones made. `${resourceVersion}` and `${uid}` in a body or a query stand for what the
server at hand last said of the object: the two servers count differently.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from tests.comparison.operations import Operation
from tests.comparison.sending import Request
from tests.comparison.values import POD_SPEC, Values, spoiled

JSON, YAML = "application/json", "application/yaml"
PATCHES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
ACCEPTS = (
    "*/*",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
    "text/html",
    "application/json;q=0.1, application/yaml",
)
CONTENT_TYPES = ("application/yaml", "text/plain", "application/json; charset=utf-8", "x", "a/b;c")
VERSION = "${resourceVersion}"
# What the query may say; the first of each is harmless.
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "pretty": ("true", "false", "nonsense"),
    "dryRun": ("All", "", "all", "None"),
    "fieldManager": ("tester", "x" * 129, "\t"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "nonsense"),
    "force": ("true", "false", "nonsense"),
    "labelSelector": ("compare=yes", "compare", "!compare", "compare in (a,b)", "a in", "=", "x>1"),
    "fieldSelector": (
        "metadata.name=n0", "metadata.namespace!=default", "spec.signerName=example.com/one",
        "metadata.nothing=x", "bad", "type=Opaque",
    ),
    "limit": ("2", "0", "-1", "x", "500"),
    "continue": ("", "nonsense"),
    "resourceVersion": ("0", "", VERSION, "x", "-1"),
    "resourceVersionMatch": ("NotOlderThan", "Exact", "nonsense"),
    "sendInitialEvents": ("true", "false", "x"),
    "allowWatchBookmarks": ("true", "x"),
    "watch": ("true", "false", "0", "x"),
    "timeoutSeconds": ("1", "x", "-1"),
    "timeout": ("5s", "x", "-1s"),
    "gracePeriodSeconds": ("0", "30", "-1", "x"),
    "propagationPolicy": ("Background", "Foreground", "Orphan", "nonsense"),
    "orphanDependents": ("true", "false", "x"),
}  # fmt: skip
NAMES = ("n0", "n1", "n2")
BAD_NAMES = ("Bad_Name", "a%2Fb", "x" * 260, "%20", "n0.", "-n")
AGENTS = ("compare/1", "kubectl/v1.36.0", "", "Mozilla/5.0")
IMPERSONATORS = 3  # the first may do everything, the others see `rights`
MODES = ("user-info", "serviceaccount", "arbitrary-node")
CONSTRAINED = [
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["users", "groups", "serviceaccounts", "nodes", "userextras/acme.io/scope"],
        "verbs": [
            "impersonate:user-info",
            "impersonate:serviceaccount",
            "impersonate:arbitrary-node",
        ],
    },
    {
        "apiGroups": ["", "rbac.authorization.k8s.io"],
        "resources": ["*"],
        "verbs": [
            f"impersonate-on:{mode}:{verb}" for mode in MODES for verb in ("get", "list", "create")
        ],
    },
]
PLAIN = [{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}]
IMPERSONATED = (
    {"Impersonate-User": "carol"},
    {"Impersonate-User": "bob", "Impersonate-Group": "dev"},
    {"Impersonate-User": "system:serviceaccount:default:n0"},
    {"Impersonate-User": "system:serviceaccount:default:n0", "Impersonate-Group": "g"},
    {"Impersonate-User": "system:node:n0"},
    {"Impersonate-User": "system:node:n0", "Impersonate-Uid": "1"},
    {"Impersonate-User": "carol", "Impersonate-Uid": "u1"},
    {"Impersonate-User": "carol", "Impersonate-Extra-acme.io%2Fscope": "view"},
    {"Impersonate-User": "carol", "Impersonate-Extra-Scopes": "view"},
    {"Impersonate-User": "carol", "Impersonate-Group": "system:masters"},
    {"Impersonate-User": "carol", "Impersonate-Group": ""},
    {"Impersonate-User": "system:anonymous"},
    {"Impersonate-Group": "dev"},
    {"Impersonate-Uid": "1"},
)


@dataclass(frozen=True)
class Asked:
    """A request, and what it is about."""

    request: Request
    operation: Operation
    key: str  # the path of the object, whatever part of it is asked for

    @property
    def label(self) -> str:
        return f"{self.operation.action or self.operation.method} {self.operation.resource}"


class Grammar:
    def __init__(
        self, operations: list[Operation], tokens: Mapping[str, str], tag: str, seed: int
    ) -> None:
        self._chance = random.Random(seed)
        self._operations = operations
        self._by_resource: dict[str, list[Operation]] = {}
        for one in operations:
            self._by_resource.setdefault(one.resource.partition("/")[0], []).append(one)
        self._tokens = tokens
        self._tag = tag
        self.namespaces = (f"{tag}-one", f"{tag}-two")

    def request(self) -> Asked:
        resource = self._chance.choice(sorted(self._by_resource))
        operation = self._chance.choice(self._by_resource[resource])
        namespace = self._namespace()
        name = self._name(operation)
        path = operation.path.replace("{namespace}", namespace).replace("{name}", name)
        body, content_type = self._body(operation, namespace, name)
        query = self._query(operation, content_type)
        headers = self._headers(content_type)
        target = f"{path}?{query}" if query else path
        key = _object_path(operation, path, body)
        return Asked(Request(operation.method, target, headers, body), operation, key)

    # -- where -------------------------------------------------------------------------------

    def _namespace(self) -> str:
        one, two = self.namespaces
        return self._chance.choice((one,) * 12 + (two, two, f"{self._tag}-none", "Bad_Name"))

    def _name(self, operation: Operation) -> str:
        if self._chance.random() < 0.03:
            return self._chance.choice(BAD_NAMES)
        return self._own_name(operation, self._chance.choice(NAMES))

    def _own_name(self, operation: Operation, name: str) -> str:
        """Names beside the namespaces carry the tag: two runs must not meet."""
        return name if "{namespace}" in operation.path else f"{self._tag}-{name}"

    def _query(self, operation: Operation, content_type: str) -> str:
        pairs = []
        for parameter in operation.parameters:
            values = PARAMETERS.get(parameter, ("x",))
            if self._chance.random() < 0.06:
                value = values[0] if self._chance.random() < 0.6 else self._chance.choice(values)
                if value == VERSION and "{name}" not in operation.path:
                    value = "0"  # a collection has no version of its own
                pairs.append((parameter, value))
        if content_type == PATCHES[3] and self._chance.random() < 0.9:
            pairs.append(("fieldManager", self._chance.choice(("tester", "other"))))
        if self._chance.random() < 0.02:
            pairs.append(("unknown", "x"))
        if ("watch", "true") in pairs or ("watch", "x") in pairs:
            # From what the server has in memory: an old etcd behind it cannot do more.
            pairs = [pair for pair in pairs if pair[0] not in ("timeoutSeconds", "resourceVersion")]
            pairs += [("timeoutSeconds", "1"), ("resourceVersion", "0")]
        if "{name}" not in operation.path and operation.method in ("GET", "DELETE"):
            # What else is on a server must not count.
            pairs = [pair for pair in pairs if pair[0] != "labelSelector" or "{n" in operation.path]
            if "{namespace}" not in operation.path:
                pairs.append(("labelSelector", f"compare={self._tag}"))
        return urlencode(pairs, quote_via=quote, safe="${}")

    def _headers(self, content_type: str) -> dict[str, str]:
        chance = self._chance
        user = next(iter(self._tokens))
        if chance.random() < 0.12:
            user = chance.choice(list(self._tokens))
        headers = {"Authorization": f"Bearer {self._tokens[user]}", "Accept": JSON}
        if chance.random() < 0.01:
            headers["Authorization"] = chance.choice(("Bearer nonsense", "Basic eDp5", "Bearer "))
        if chance.random() < 0.15:
            headers["Accept"] = chance.choice(ACCEPTS)
        if content_type:
            headers["Content-Type"] = content_type
        agent = chance.choice(AGENTS)
        if agent:
            headers["User-Agent"] = agent
        if chance.random() < 0.08:
            headers |= chance.choice(IMPERSONATED)
            user = chance.choice(list(self._tokens)[:IMPERSONATORS])
            headers["Authorization"] = f"Bearer {self._tokens[user]}"
        return headers

    def rights(self) -> dict[str, list[Any]]:
        """Rights of the second and the third user: impersonation, in both ways that exist."""
        constrained, plain = list(self._tokens)[1:IMPERSONATORS]
        return {constrained: CONSTRAINED, plain: PLAIN}

    # -- what --------------------------------------------------------------------------------

    def _body(self, operation: Operation, namespace: str, name: str) -> tuple[bytes | None, str]:
        chance = self._chance
        if operation.method == "GET":
            return None, ""
        if operation.method == "DELETE":
            return self._delete_options()
        if operation.method == "PATCH":
            return self._patch(operation, namespace, name)
        document = self._object(operation, namespace, name)
        if chance.random() < 0.15:
            document = spoiled(document, chance)
        if chance.random() < 0.01:
            return chance.choice((b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{} {}")), JSON
        if chance.random() < 0.05:
            return yaml.safe_dump(document).encode(), YAML
        content_type = chance.choice(CONTENT_TYPES) if chance.random() < 0.02 else JSON
        return json.dumps(document).encode(), content_type

    def _delete_options(self) -> tuple[bytes | None, str]:
        chance = self._chance
        if chance.random() < 0.7:
            return None, ""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if chance.random() < 0.3:
            options["propagationPolicy"] = chance.choice(("Background", "Orphan", "bad"))
        if chance.random() < 0.3:
            uid = chance.choice(("${uid}", "other"))
            options["preconditions"] = {"uid": uid}
        if chance.random() < 0.2:
            options["gracePeriodSeconds"] = chance.choice((0, 30, -1))
        if chance.random() < 0.1:
            options = spoiled(options, chance)
        return json.dumps(options).encode(), JSON

    def _object(self, operation: Operation, namespace: str, name: str) -> Any:
        values = Values(self._chance, operation.definitions)
        made: dict[str, Any] = {"apiVersion": operation.api_version, "kind": operation.kind}
        made |= values.of(operation.schema) or {}
        if operation.kind == "Pod":
            made["spec"] = POD_SPEC
        if operation.kind == "Node":
            made.pop("spec", None)
        if operation.kind in ("RoleBinding", "ClusterRoleBinding"):
            self._bind(made, operation)
        made["metadata"] = self._metadata(operation, namespace, name)
        if operation.resource.endswith("/status") or self._chance.random() < 0.1:
            status = values.of(_property(operation, "status"))
            if status:
                made["status"] = status
        return made

    def _bind(self, made: dict[str, Any], operation: Operation) -> None:
        chance = self._chance
        api_group = {"apiGroup": "rbac.authorization.k8s.io"}
        role = chance.choice(("view", f"{self._tag}-n0", "n0"))
        kind = chance.choice(("ClusterRole", "ClusterRole", "Role"))
        made["roleRef"] = {"kind": kind, "name": role, **api_group}
        made["subjects"] = chance.choice(
            (
                [{"kind": "User", "name": f"{self._tag}-nobody", **api_group}],
                [{"kind": "ServiceAccount", "name": "n0", "namespace": "none"}],
                [],
                [{"kind": "Group", "name": f"{self._tag}-none"}],
                [{"kind": "Robot", "name": "x"}],
            )
        )

    def _metadata(self, operation: Operation, namespace: str, name: str) -> dict[str, Any]:
        chance = self._chance
        creates = operation.method == "POST" and "{name}" not in operation.path
        own = self._own_name(operation, chance.choice(NAMES)) if creates else name
        found: dict[str, Any] = {"name": own, "labels": {"compare": self._tag}}
        odd: dict[str, Any] = {
            "namespace": chance.choice((namespace, "other")),
            "annotations": {chance.choice(("a", "acme.io/b", "bad key")): chance.choice(("1", ""))},
            "finalizers": chance.choice((["acme.io/hold"], ["bad"], [])),
            "generateName": chance.choice(("n-", "Bad_", "")),
            "resourceVersion": chance.choice(("${resourceVersion}", "1", "x", "")),
            "uid": chance.choice(("${uid}", "other")),
            "creationTimestamp": chance.choice(("2020-01-02T03:04:05Z", None, "x")),
            "deletionTimestamp": "2020-01-02T03:04:05Z",
            "generation": 7,
            "selfLink": "/x",
            "managedFields": chance.choice(([], [{}], None)),
            "ownerReferences": chance.choice(
                (
                    [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}],
                    [{"kind": "x"}],
                    [],
                )
            ),
        }
        for key, value in odd.items():
            if chance.random() < 0.04:
                found[key] = value
        if "resourceVersion" not in found and not creates and chance.random() < 0.3:
            found["resourceVersion"] = "${resourceVersion}"
        if chance.random() < 0.02:
            del found["name"]
        return found

    # -- patches -----------------------------------------------------------------------------

    def _patch(self, operation: Operation, namespace: str, name: str) -> tuple[bytes, str]:
        chance = self._chance
        form = chance.choice(PATCHES)
        if chance.random() < 0.02:
            return b"{}", chance.choice((JSON, "application/x", "application/json-patch+json;a=b"))
        if form == PATCHES[2]:
            return json.dumps(self._json_patch()).encode(), form
        document = self._object(operation, namespace, name)
        if form != PATCHES[3]:
            keep = chance.sample(sorted(document), k=chance.choice((1, 2, 3)))
            document = {key: document[key] for key in keep}
            if chance.random() < 0.5:
                document.pop("metadata", None)
        if chance.random() < 0.15:
            document = spoiled(document, chance)
        if form == PATCHES[3] and chance.random() < 0.3:
            return yaml.safe_dump(document).encode(), form
        return json.dumps(document).encode(), form

    def _json_patch(self) -> Any:
        chance = self._chance
        places = (
            "/metadata/labels/x", "/metadata/annotations", "/metadata/annotations/a", "/data",
            "/data/k1", "/spec", "/rules", "/rules/0", "/rules/-", "/metadata/name", "/kind",
            "/nothing/here", "", "/metadata/finalizers", "/immutable",
        )  # fmt: skip
        steps = []
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            what = chance.choice(("add", "replace", "remove", "test", "copy", "move", "nonsense"))
            step: dict[str, Any] = {"op": what, "path": chance.choice(places)}
            if what in ("add", "replace", "test"):
                step["value"] = chance.choice(("v", {"a": "b"}, [], None, 1, {"k1": "eA=="}))
            if what in ("copy", "move"):
                step["from"] = chance.choice(places)
            steps.append(step)
        return steps if chance.random() < 0.95 else chance.choice(({}, "x", [1], [None]))


def _property(operation: Operation, name: str) -> dict[str, Any]:
    values = Values(random.Random(0), operation.definitions)
    schema = values.resolved(operation.schema)
    found: dict[str, Any] = schema.get("properties", {}).get(name, {})
    return found


def _object_path(operation: Operation, path: str, body: bytes | None) -> str:
    """The path of the one object that a request is about; empty if there is none."""
    if "{name}" in operation.path:
        depth = operation.path.split("/").index("{name}")
        return "/".join(path.split("/")[: depth + 1])
    if operation.method == "POST" and body:
        try:
            name = yaml.safe_load(body)["metadata"]["name"]  # JSON is YAML, too
        except (yaml.YAMLError, UnicodeError, KeyError, TypeError):
            return ""
        return f"{path}/{name}" if isinstance(name, str) and name else ""
    return ""
