"""OpenAPI for non-resource paths: the discovery documents, the version and OpenID.

The types here only describe these documents: kernel/server/discovery/documents.py and
kernel/server/pages/site.py write them. Start with `page_documents`.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import field

from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.server.negotiate import JSON, SERVED
from orchid.kernel.server.openapi.paths import REFUSALS, PathItem, group_path, group_words
from orchid.kernel.server.openapi.schemas import META, Definitions, Schema
from orchid.kernel.server.pages import openid
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, describe


class GroupVersionForDiscovery(Wire):
    """One version of a group."""

    published_as = "meta.v1.GroupVersionForDiscovery"

    group_version: Annotated[str, describe("Group and version, joined by a slash.")] = always(str)
    version: Annotated[str, describe("The version alone.")] = always(str)


class ServerAddressByClientCIDR(Wire):
    """The server address for clients of a network."""

    published_as = "meta.v1.ServerAddressByClientCIDR"

    client_cidr: Annotated[str, describe("The network.")] = field(
        default_factory=str, name="clientCIDR"
    )
    server_address: Annotated[str, describe("Host and port.")] = always(str)


class _Typed(Wire):
    kind: Annotated[str, describe("The kind of the document.")] = ""
    api_version: Annotated[str, describe("The API version of the document.")] = ""


class APIVersions(_Typed):
    """The versions of the core group."""

    published_as = "meta.v1.APIVersions"

    versions: Annotated[tuple[str, ...], describe("The versions.")] = always(tuple)
    server_address_by_client_cidrs: Annotated[
        tuple[ServerAddressByClientCIDR, ...], describe("The server addresses.")
    ] = field(default_factory=tuple, name="serverAddressByClientCIDRs")


class APIGroup(_Typed):
    """One group of the API, and its versions."""

    published_as = "meta.v1.APIGroup"

    name: Annotated[str, describe("The name of the group.")] = always(str)
    versions: Annotated[
        tuple[GroupVersionForDiscovery, ...], describe("The versions that are served.")
    ] = always(tuple)
    preferred_version: Annotated[
        GroupVersionForDiscovery | None, describe("The preferred version.")
    ] = None
    server_address_by_client_cidrs: Annotated[
        tuple[ServerAddressByClientCIDR, ...], describe("The server addresses.")
    ] = field(default=(), name="serverAddressByClientCIDRs")


class APIGroupList(_Typed):
    """Every named group."""

    published_as = "meta.v1.APIGroupList"

    groups: Annotated[tuple[APIGroup, ...], describe("The groups.")] = always(tuple)


class APIResource(Wire):
    """One resource or subresource of a group and version."""

    published_as = "meta.v1.APIResource"

    name: Annotated[str, describe("The plural in paths; `plural/name` of a subresource.")] = always(
        str
    )
    singular_name: Annotated[str, describe("The singular name.")] = always(str)
    namespaced: Annotated[bool, describe("Whether its objects are namespaced.")] = always(bool)
    group: Annotated[str, describe("The group of the kind, if it differs.")] = ""
    version: Annotated[str, describe("The version of the kind, if it differs.")] = ""
    kind: Annotated[str, describe("The kind of its objects.")] = always(str)
    verbs: Annotated[tuple[str, ...], describe("The supported verbs.")] = always(tuple)
    short_names: Annotated[tuple[str, ...], describe("Shorter names for it.")] = ()
    categories: Annotated[tuple[str, ...], describe("Sets of resources it belongs to.")] = ()
    storage_version_hash: Annotated[str, describe("A hash of the stored version.")] = ""


class APIResourceList(_Typed):
    """The resources of one group and version."""

    published_as = "meta.v1.APIResourceList"

    group_version: Annotated[str, describe("The group and version.")] = always(str)
    resources: Annotated[tuple[APIResource, ...], describe("The resources.")] = always(tuple)


class Info(Wire):
    """Version information of the server and its API level."""

    published_as = "version.Info"

    major: Annotated[str, describe("The API level: the number before the dot.")] = always(str)
    minor: Annotated[str, describe("The API level: the number behind the dot.")] = always(str)
    git_version: Annotated[str, describe("The full version.")] = always(str)
    git_commit: Annotated[str, describe("The commit it was built from.")] = always(str)
    git_tree_state: Annotated[str, describe("Whether the tree had other changes.")] = always(str)
    build_date: Annotated[str, describe("When it was built.")] = always(str)
    go_version: Annotated[str, describe("Empty; for compatibility.")] = always(str)
    compiler: Annotated[str, describe("The interpreter.")] = always(str)
    platform: Annotated[str, describe("Operating system and processor.")] = always(str)


Pages = dict[str, dict[str, PathItem]]


def page_documents(
    catalog: Catalog, naming: Naming, definitions: Definitions, openid_paths: Iterable[str]
) -> Pages:
    """The paths of all non-resource pages, by the key of their document."""

    def discovered(type_: type[Wire], path: str, name: str, text: str) -> dict[str, PathItem]:
        schema = definitions.of_type(type_, META)
        return {path: _page(name, text, schema, SERVED)}

    pages: Pages = {
        "api": discovered(APIVersions, "/api/", "getCoreAPIVersions", "Which versions there are."),
        "apis": discovered(APIGroupList, "/apis/", "getAPIVersions", "Which groups there are."),
        "version": {
            "/version/": _page(
                "getCodeVersion", "What the server is.", definitions.of_type(Info, META), (JSON,)
            )
        },
    }
    for group, version in catalog.group_versions():
        word, path = group_words(naming, group), group_path(group, version)
        if group:
            pages[f"apis/{group}"] = discovered(
                APIGroup, f"/apis/{group}/", f"get{word}APIGroup", "Which versions there are."
            )
        name = f"get{word}{version.capitalize()}APIResources"
        pages[path.strip("/")] = discovered(
            APIResourceList, f"{path}/", name, "Which resources there are."
        )
    for path in openid_paths:
        pages[path.strip("/")] = {path: _page(*_OPENID[path])}
    return pages


def _page(name: str, text: str, schema: Schema, media: tuple[str, ...]) -> PathItem:
    return {
        "get": {
            "tags": ["pages"],
            "description": text,
            "operationId": name,
            "responses": {
                "200": {
                    "description": "OK",
                    "content": {kind: {"schema": schema} for kind in media},
                },
                **REFUSALS,
            },
        }
    }


_OPENID: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    openid.CONFIGURATION_PATH: (
        "getServiceAccountIssuerOpenIDConfiguration",
        "How to verify tokens of service accounts: the issuer, and where its keys are.",
        {"type": "object"},
        (JSON,),
    ),
    openid.KEY_SET_PATH: (
        "getServiceAccountIssuerOpenIDKeyset",
        "The keys that verify tokens of service accounts, as a JSON Web Key Set.",
        {"type": "object"},
        (openid.JWK_SET, JSON),
    ),
}
