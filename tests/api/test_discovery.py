"""Discovery: which groups, versions and resources there are, in all three forms."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import Api, api

V2 = "application/json;g=apidiscovery.orch.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


async def test_the_core_group(server: Api) -> None:
    """`/api` and `/api/v1` carry no apiVersion, on purpose."""
    versions = (await server.call("GET", "/api")).json
    resources = (await server.call("GET", "/api/v1")).json
    by_name = {resource["name"]: resource for resource in resources["resources"]}

    assert (versions["kind"], versions["versions"]) == ("APIVersions", ["v1"])
    assert versions["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"
    assert "apiVersion" not in versions
    assert list(resources)[:2] == ["kind", "groupVersion"]
    assert by_name["serviceaccounts"] == {
        "name": "serviceaccounts",
        "singularName": "serviceaccount",
        "namespaced": True,
        "kind": "ServiceAccount",
        "verbs": VERBS,
        "shortNames": ["sa"],
        "storageVersionHash": "pbx9ZvyFpBE=",
    }
    assert by_name["serviceaccounts/token"] == {
        "name": "serviceaccounts/token",
        "singularName": "",
        "namespaced": True,
        "group": "authentication.orch.io",
        "version": "v1",
        "kind": "TokenRequest",
        "verbs": ["create"],
    }
    assert list(by_name) == sorted(by_name)


async def test_groups_in_their_order(server: Api) -> None:
    """Groups by priority, versions stable first."""
    groups = (await server.call("GET", "/apis")).json
    one = (await server.call("GET", "/apis/certificates.orch.io")).json

    assert [group["name"] for group in groups["groups"]] == [
        "events.orch.io",
        "authentication.orch.io",
        "authorization.orch.io",
        "certificates.orch.io",
        "rbac.authorization.orch.io",
        "coordination.orch.io",
        "identity.orch.io",
    ]
    assert (one["kind"], one["apiVersion"]) == ("APIGroup", "v1")
    assert [version["version"] for version in one["versions"]] == ["v1", "v1beta1"]
    assert one["preferredVersion"]["groupVersion"] == "certificates.orch.io/v1"


async def test_a_group_and_version(server: Api) -> None:
    """Subresources follow their resource and have no short names of their own."""
    resources = (await server.call("GET", "/apis/certificates.orch.io/v1")).json["resources"]

    assert [resource["name"] for resource in resources] == [
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "certificatesigningrequests/status",
        "clustertrustbundles",
        "podcertificaterequests",
        "podcertificaterequests/status",
    ]
    assert resources[0]["storageVersionHash"] == "89jQaM0WrkQ="
    assert resources[1]["verbs"] == ["get", "patch", "update"]
    assert "shortNames" not in resources[1]


async def test_kinds_of_our_own_have_short_names(server: Api) -> None:
    """As `kubectl get crev` uses them; no two kinds have the same."""
    resources = (await server.call("GET", "/apis/identity.orch.io/v1alpha1")).json["resources"]
    short = {one["name"]: one["shortNames"] for one in resources if "shortNames" in one}

    assert short["credentialrevocations"] == ["crev"]
    assert short["issuedcertificates"] == ["ic"]
    names = [name for found in short.values() for name in found]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", ["/api", "/api/", "/apis"])
async def test_all_at_once(server: Api, path: str) -> None:
    """The aggregated form, with a tag by which a client need not fetch it again."""
    first = await server.call("GET", path, headers={"accept": f"{V2}, application/json"})
    tag = first.header("etag") or ""
    again = await server.call("GET", path, headers={"accept": V2, "if-none-match": tag})
    bare = await server.call("GET", path, headers={"accept": V2, "if-none-match": tag[1:-1]})
    items = first.json["items"]

    assert first.header("content-type") == V2
    assert (first.header("vary"), first.header("cache-control")) == ("Accept", "public")
    assert first.json["apiVersion"] == "apidiscovery.orch.io/v2"
    assert (again.status, again.body, again.header("etag")) == (304, b"", tag)
    assert again.header("content-type") is None
    assert bare.status == 200
    content = first.body.replace(
        b'"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.orch.io/v2",', b"", 1
    )
    digest = hashlib.sha512(content.removesuffix(b"\n")).hexdigest()
    assert tag == f'"{digest.upper()}"'
    assert [item["metadata"] for item in items][:1] == (
        [{"name": "events.orch.io"}] if path == "/apis" else [{}]
    )


async def test_aggregated_resources_say_what_they_answer(server: Api) -> None:
    """The token endpoint alone names another kind's group."""
    items = (await server.call("GET", "/api", headers={"accept": V2})).json["items"]
    resources = {r["resource"]: r for r in items[0]["versions"][0]["resources"]}
    (token,) = resources["serviceaccounts"]["subresources"]

    assert items[0]["versions"][0]["freshness"] == "Current"
    assert resources["serviceaccounts"]["scope"] == "Namespaced"
    assert resources["serviceaccounts"]["responseKind"] == {
        "group": "", "version": "", "kind": "ServiceAccount",
    }  # fmt: skip
    assert token["responseKind"] == {
        "group": "authentication.orch.io", "version": "v1", "kind": "TokenRequest",
    }  # fmt: skip


async def test_other_clauses_fall_back(server: Api) -> None:
    """A version we do not speak leads to the next clause, or to a 406."""
    beta = V2.replace("v=v2", "v=v2beta1")
    legacy = await server.call("GET", "/apis", headers={"accept": f"{beta}, application/json"})
    alone = await server.call("GET", "/apis", headers={"accept": beta})
    slash = await server.call("GET", "/apis/", headers={"accept": V2})
    stock = await server.call("GET", "/apis", headers={"accept": V2.replace("orch.io", "k8s.io")})

    assert legacy.json["kind"] == "APIGroupList"
    assert (alone.status, slash.status) == (406, 406)
    assert stock.json["apiVersion"] == "apidiscovery.k8s.io/v2"


async def test_methods_of_discovery(server: Api) -> None:
    """The list of groups does not look at the method; the others do."""
    assert (await server.call("POST", "/apis")).json["kind"] == "APIGroupList"
    assert (await server.call("BREW", "/apis/certificates.orch.io")).status == 200
    assert (await server.call("POST", "/api/v1")).status == 405
    assert (await server.call("HEAD", "/api")).status == 405


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/openid/v1/jwks"])
async def test_documents_about_the_issuer(server: Api, path: str) -> None:
    """Read with or without a slash at the end, by GET only; below them there is nothing."""
    anything = {"accept": "*/*"}
    one, other = [await server.call("GET", place, headers=anything) for place in (path, f"{path}/")]

    assert (one.status, one.body) == (200, other.body)
    for method in ("HEAD", "POST", "OPTIONS"):
        assert (await server.call(method, path, headers=anything)).status == 405
    assert (await server.call("GET", f"{path}/x", headers=anything)).json["reason"] == "NotFound"


async def test_discovery_in_yaml(server: Api) -> None:
    """Any document can be had as YAML."""
    answer = await server.call("GET", "/api", headers={"accept": "application/yaml"})

    assert answer.header("content-type") == "application/yaml"
    assert "kind: APIVersions\n" in answer.text


async def test_version(server: Api) -> None:
    """GET only, JSON only, with or without a slash."""
    answer = await server.call("GET", "/version/", token=None)
    other = await server.call("GET", "/version", headers={"accept": "application/yaml"})

    assert list(answer.json)[:3] == ["major", "minor", "gitVersion"]
    assert answer.text.startswith("{\n  ")
    assert (await server.call("POST", "/version")).status == 405
    assert other.status == 406
    assert "Available representations: application/json\n" in other.text


async def test_the_index_lists_paths(server: Api) -> None:
    """`/` says where one can go."""
    paths = (await server.call("GET", "/")).json["paths"]

    assert paths == sorted(paths)
    assert {"/api/v1", "/apis/certificates.orch.io/v1", "/livez", "/version"} <= set(paths)


async def test_the_other_naming(server_files: Path) -> None:
    """With Kubernetes' names, the groups are Kubernetes' groups."""
    async with api(server_files, naming="kubernetes") as server:
        groups = (await server.call("GET", "/apis")).json["groups"]

    assert "certificates.k8s.io" in [group["name"] for group in groups]


def test_the_accept_header_is_short_enough_to_be_read() -> None:
    """The Accept headers of current clients are much shorter than the limit."""
    from orchid.kernel.server.negotiate import LONGEST_ACCEPT

    sent: Any = ",".join((V2, V2.replace("v2", "v2beta1"), json.dumps("application/json")))

    assert len(sent) * 3 < LONGEST_ACCEPT


async def test_the_same_in_protobuf(server: Api) -> None:
    """A group, its resources, and all at once, in the numbers that clients know."""
    media = "application/vnd.kubernetes.protobuf"
    aggregated = V2.replace("application/json", media)
    base = "/apis/authentication.orch.io"
    group = await server.call("GET", base, headers={"accept": media})
    resources = await server.call("GET", f"{base}/v1", headers={"accept": media})
    everything = await server.call("GET", "/apis", headers={"accept": aggregated})

    assert group.header("content-type") == resources.header("content-type") == media
    assert group.body == (
        b"k8s\0\n\x0e\n\x02v1\x12\x08APIGroup\x12Z\n\x16authentication.orch.io"
        b"\x12\x1f\n\x19authentication.orch.io/v1\x12\x02v1"
        b'\x1a\x1f\n\x19authentication.orch.io/v1\x12\x02v1\x1a\0"\0'
    )
    assert resources.body.startswith(b"k8s\0\n\x15\n\x02v1\x12\x0fAPIResourceList\x12")
    assert (
        b'\x12:\n\x0ctokenreviews\x10\0\x1a\x0bTokenReview"\x08\n\x06create2\x0btokenreview'
        b"B\0J\0R\0"
    ) in resources.body
    assert everything.header("content-type") == aggregated
    assert (
        b'\n\x0ctokenreviews\x12\x11\n\0\x12\0\x1a\x0bTokenReview\x1a\x07Cluster"\x0btokenreview'
        b"*\x06create"
    ) in everything.body


async def test_the_core_group_is_read_and_nothing_else(server: Api) -> None:
    """Whatever form is asked for."""
    for accept in (V2, "application/json"):
        assert (await server.call("HEAD", "/api", headers={"accept": accept})).status == 405
