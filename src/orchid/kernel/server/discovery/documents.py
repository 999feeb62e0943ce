"""Discovery documents: groups, versions and resources. Created once, from the catalog.

Three formats: a document per group and version, the list of groups, and the aggregated document of
current clients.
"""

import base64
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Endpoint, Kind

# Groups in the order of preference for clients; others come last.
_PRIORITY = ("events", "authentication", "authorization", "certificates", "rbac", "coordination")

Resource = dict[str, Any]

_in_order = msgspec.json.encode  # keys in this order, as in Kubernetes


class Discovery:
    """The documents as JSON bytes, by path."""

    def __init__(self, catalog: Catalog, address: str) -> None:
        self.groups = sorted({k.group for k in catalog.kinds if k.group}, key=_priority)
        self._catalog = catalog
        self.documents: dict[str, bytes] = {"/api": _core_versions(address)}
        for group, version in catalog.group_versions():
            self.documents[_path(group, version)] = self._resource_list(group, version)
        for group in self.groups:
            head = {"kind": "APIGroup", "apiVersion": "v1"}
            self.documents[f"/apis/{group}"] = _in_order(head | self._group(group))
        groups = [self._group(group) for group in self.groups]
        self.documents["/apis"] = _in_order(
            {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        )

    def aggregated(self, path: str) -> bytes:
        """The items of an APIGroupDiscoveryList for /api or /apis, without kind and apiVersion."""
        groups = [""] if path == "/api" else self.groups
        return _in_order(
            {"metadata": {}, "items": [self._group_discovery(group) for group in groups]}
        )

    def _versions(self, group: str) -> list[str]:
        found = {kind.version for kind in self._catalog.kinds if kind.group == group}
        return sorted(found, key=_maturity)

    def _kinds(self, group: str, version: str) -> list[Kind[Any]]:
        kinds = (k for k in self._catalog.kinds if (k.group, k.version) == (group, version))
        return sorted(kinds, key=lambda kind: kind.plural)

    def _group(self, group: str) -> dict[str, Any]:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for version in self._versions(group)
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resource_list(self, group: str, version: str) -> bytes:
        resources = [r for kind in self._kinds(group, version) for r in _resources(kind)]
        head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
        api_version = f"{group}/{version}" if group else version
        return _in_order(head | {"groupVersion": api_version, "resources": resources})

    def _group_discovery(self, group: str) -> dict[str, Any]:
        return {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "resources": [_discovered(kind) for kind in self._kinds(group, version)],
                    "freshness": "Current",
                }
                for version in self._versions(group)
            ],
        }


def _path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _priority(group: str) -> tuple[int, str]:
    word = group.partition(".")[0]
    return (_PRIORITY.index(word) if word in _PRIORITY else len(_PRIORITY), group)


def _maturity(version: str) -> tuple[int, str]:
    """Sort key: clients prefer stable versions, then beta, then alpha."""
    return (("alpha" in version) * 2 + ("beta" in version), version)


def _core_versions(address: str) -> bytes:
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return _in_order(
        {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
    )


def _resources(kind: Kind[Any]) -> Iterable[Resource]:
    resource: Resource = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": sorted(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if kind.acts is None:
        resource["storageVersionHash"] = storage_version_hash(kind)
    yield resource
    for endpoint in sorted(kind.endpoints, key=lambda endpoint: endpoint.name):
        yield _subresource(kind, endpoint)


def _subresource(kind: Kind[Any], endpoint: Endpoint) -> Resource:
    resource: Resource = {
        "name": f"{kind.plural}/{endpoint.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
    }
    if endpoint.kind:
        resource |= {"group": endpoint.kind.group, "version": endpoint.kind.version}
    resource |= {"kind": (endpoint.kind or kind).name, "verbs": sorted(endpoint.verbs)}
    return resource


def _discovered(kind: Kind[Any]) -> Resource:
    resource: Resource = {
        "resource": kind.plural,
        "responseKind": {"group": "", "version": "", "kind": kind.name},
        "scope": kind.scope.value,
        "singularResource": kind.singular,
        "verbs": sorted(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if kind.endpoints:
        resource["subresources"] = [
            {
                "subresource": endpoint.name,
                "responseKind": {
                    "group": endpoint.kind.group if endpoint.kind else "",
                    "version": endpoint.kind.version if endpoint.kind else "",
                    "kind": (endpoint.kind or kind).name,
                },
                "verbs": sorted(endpoint.verbs),
            }
            for endpoint in sorted(kind.endpoints, key=lambda endpoint: endpoint.name)
        ]
    return resource


def storage_version_hash(kind: Kind[Any]) -> str:
    name = f"{kind.stored.group}/{kind.stored.version}/{kind.name}"
    digest = hashlib.sha256(name.encode()).digest()
    return base64.b64encode(digest[:8]).decode()
