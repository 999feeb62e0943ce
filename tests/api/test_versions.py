"""A kind in two versions: the same objects, stored once, served under both apiVersions.

ClusterTrustBundle is the one that has two; nothing but its own file knows that.
"""

import datetime
from typing import Any

import pytest

from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.codec.protobuf import message_of, opened, sealed
from tests.api.world import Api

OLD = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
NEW = "/apis/certificates.orch.io/v1/clustertrustbundles"
BOTH = (OLD, NEW)
PROTOBUF = "application/vnd.kubernetes.protobuf"
ANCHORS = Authority.create("anchor", now=datetime.datetime.now(datetime.UTC)).certificate_pem
APPLY = {"content-type": "application/apply-patch+yaml"}
MERGE = {"content-type": "application/merge-patch+json"}


def version(target: str) -> str:
    return target.removeprefix("/apis/").rpartition("/")[0]


def bundle(name: str, target: str, **meta: Any) -> dict[str, Any]:
    return {
        "kind": "ClusterTrustBundle",
        "apiVersion": version(target),
        "metadata": {"name": name, **meta},
        "spec": {"trustBundle": ANCHORS.decode()},
    }


def said(document: Any) -> tuple[str, str]:
    return document["kind"], document["apiVersion"]


def owners(document: Any) -> list[tuple[str, str, str]]:
    """Manager, operation and version of each entry."""
    return [
        (entry["manager"], entry["operation"], entry["apiVersion"].rpartition("/")[2])
        for entry in document["metadata"]["managedFields"]
    ]


@pytest.mark.parametrize("written", BOTH)
@pytest.mark.parametrize("read", BOTH)
async def test_what_is_written_in_one_version_is_read_in_every(
    server: Api, written: str, read: str
) -> None:
    """The apiVersion is that of the path; all else is the same."""
    made = await server.make(written, bundle("a", written))
    got = (await server.call("GET", f"{read}/a")).json
    listed = (await server.call("GET", read)).json

    assert said(made) == ("ClusterTrustBundle", version(written))
    assert said(got) == ("ClusterTrustBundle", version(read))
    assert said(listed) == ("ClusterTrustBundleList", version(read))
    assert got == {**made, "apiVersion": version(read)}
    assert [{**said_of(read), **item} for item in listed["items"]] == [got]


def said_of(target: str) -> dict[str, str]:
    return {"kind": "ClusterTrustBundle", "apiVersion": version(target)}


async def test_an_object_is_stored_once(server: Api) -> None:
    """Objects of both versions are stored in the form of one version, under one key."""
    for name, target in zip("ab", BOTH, strict=True):
        await server.make(target, bundle(name, target))
    entries = server.server.feed.of(ClusterTrustBundle).entries

    assert list(entries) == [
        "certificates/clustertrustbundles/a",
        "certificates/clustertrustbundles/b",
    ]
    assert {entry.object.api_version for entry in entries.values()} == {version(OLD)}
    again = await server.call("POST", NEW, bundle("a", NEW))
    assert (again.status, again.json["reason"]) == (409, "AlreadyExists")


@pytest.mark.parametrize("target", BOTH)
async def test_a_body_is_of_the_version_of_its_path(server: Api, target: str) -> None:
    """The other version is known, and is refused by its name."""
    other = OLD if target == NEW else NEW
    answer = await server.call("POST", target, bundle("a", other))

    assert answer.status == 400
    assert answer.json["message"] == (
        f"the API version in the data ({version(other)}) does not match the expected API version "
        f"({version(target)})"
    )


@pytest.mark.parametrize("target", BOTH)
async def test_a_watch_speaks_its_own_version(server: Api, target: str) -> None:
    """Two watchers of the same changes, each in the version it asked for."""
    other = OLD if target == NEW else NEW
    await server.make(OLD, bundle("a", OLD))
    async with (
        server.watch(f"{target}?watch=1&allowWatchBookmarks=1") as stream,
        server.watch(f"{other}?watch=1&resourceVersion=0") as beside,
    ):
        await server.make(NEW, bundle("b", NEW))
        await server.call("DELETE", f"{OLD}/b")
        events = await stream.take(4)
        seen = await beside.take(3)

    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "ADDED", "DELETED"]
    assert {said(event["object"]) for event in events} == {("ClusterTrustBundle", version(target))}
    assert {said(event["object"]) for event in seen} == {("ClusterTrustBundle", version(other))}


@pytest.mark.parametrize("target", BOTH)
async def test_protobuf_says_the_version_that_was_asked_for(server: Api, target: str) -> None:
    """The same message in another envelope, in both directions."""
    await server.make(OLD, bundle("a", OLD))
    accept = {"accept": PROTOBUF}
    one = await server.call("GET", f"{target}/a", headers=accept)
    many = await server.call("GET", target, headers=accept)
    envelope, message = opened(one.body)
    sent = message_of(ClusterTrustBundle).decode(message, kind="", api_version="")
    packed = sealed(
        version(target),
        "ClusterTrustBundle",
        message_of(ClusterTrustBundle).encode(sent.with_meta(name="b", resource_version="")),
    )
    made = await server.call("POST", target, packed, headers={"content-type": PROTOBUF})

    assert (envelope.kind, envelope.api_version) == ("ClusterTrustBundle", version(target))
    assert opened(many.body)[0].api_version == version(target)
    assert (made.status, said(made.json)) == (201, ("ClusterTrustBundle", version(target)))


@pytest.mark.parametrize("target", BOTH)
async def test_the_object_behind_a_row_is_of_the_version(server: Api, target: str) -> None:
    """A Table of a list and of an object, with whole objects behind its rows."""
    await server.make(OLD, bundle("a", OLD))
    accept = {"accept": "application/json;as=Table;g=meta.orch.io;v=v1"}
    for path in (target, f"{target}/a"):
        table = (await server.call("GET", f"{path}?includeObject=Object", headers=accept)).json

        assert [said(row["object"]) for row in table["rows"]] == [
            ("ClusterTrustBundle", version(target))
        ]


async def test_managed_fields_say_the_version_of_the_writer(server: Api) -> None:
    """Owners of another version of the same object keep what they own."""
    await server.make(f"{OLD}?fieldManager=first", bundle("a", OLD))
    patched = await server.call(
        "PATCH",
        f"{NEW}/a?fieldManager=second",
        b'{"metadata":{"labels":{"x":"y"}}}',
        headers=MERGE,
    )
    label = bundle("a", NEW, labels={"x": "z"})
    del label["spec"]
    refused = await server.call("PATCH", f"{NEW}/a?fieldManager=third", label, headers=APPLY)
    applied = await server.call(
        "PATCH", f"{NEW}/a?fieldManager=third&force=true", label, headers=APPLY
    )
    label["apiVersion"] = version(OLD)
    moved = await server.call("PATCH", f"{OLD}/a?fieldManager=third", label, headers=APPLY)

    first = ("first", "Update", "v1beta1")
    assert owners(patched.json) == [first, ("second", "Update", "v1")]
    assert 'conflict with "second" using certificates.orch.io/v1' in refused.json["message"]
    assert owners(applied.json)[:2] == [("third", "Apply", "v1"), first]
    assert (moved.status, owners(moved.json)) == (200, owners(applied.json))


async def test_an_update_that_changes_nothing_is_none_in_any_version(server: Api) -> None:
    """To send back what was read in the other version writes nothing."""
    made = await server.make(OLD, bundle("a", OLD))
    read = (await server.call("GET", f"{NEW}/a")).json
    put = await server.call("PUT", f"{NEW}/a", read)

    assert put.status == 200
    assert put.json == {**made, "apiVersion": version(NEW)}


@pytest.mark.parametrize("target", BOTH)
async def test_a_patch_and_a_delete_answer_in_their_version(server: Api, target: str) -> None:
    """Also a dry run, and an object that only gets marked."""
    await server.make(OLD, bundle("a", OLD, finalizers=["example.com/x"]))
    patch = b'{"metadata":{"labels":{"x":"y"}}}'
    answers = [
        await server.call("PATCH", f"{target}/a?dryRun=All", patch, headers=MERGE),
        await server.call("PATCH", f"{target}/a", patch, headers=MERGE),
        await server.call("DELETE", f"{target}/a"),
    ]

    assert {said(answer.json) for answer in answers} == {("ClusterTrustBundle", version(target))}


async def test_discovery_shows_both_versions(server: Api) -> None:
    """In every form: per version, and aggregated; stable before beta."""
    lists = [
        (await server.call("GET", f"/apis/certificates.orch.io/{v}")).json
        for v in ("v1", "v1beta1")
    ]
    accept = "application/json;g=apidiscovery.orch.io;v=v2;as=APIGroupDiscoveryList"
    groups = (await server.call("GET", "/apis", headers={"accept": accept})).json["items"]
    (group,) = [one for one in groups if one["metadata"]["name"] == "certificates.orch.io"]

    found = [
        {r["name"]: r for r in document["resources"]}["clustertrustbundles"] for document in lists
    ]
    assert found[0] == found[1]
    assert [
        (one["version"], "clustertrustbundles" in [r["resource"] for r in one["resources"]])
        for one in group["versions"]
    ] == [("v1", True), ("v1beta1", True)]


async def test_openapi_describes_both_versions(server: Api) -> None:
    """Paths and definitions of their own, in both documents."""
    swagger = (await server.call("GET", "/openapi/v2")).json
    for v in ("v1", "v1beta1"):
        document = (await server.call("GET", f"/openapi/v3/apis/certificates.orch.io/{v}")).json
        name = f"certificates.{v}.ClusterTrustBundle"
        (schema,) = [s for n, s in document["components"]["schemas"].items() if n.endswith(name)]
        path = f"/apis/certificates.orch.io/{v}/clustertrustbundles"

        assert schema["x-kubernetes-group-version-kind"] == [
            {"group": "certificates.orch.io", "kind": "ClusterTrustBundle", "version": v}
        ]
        assert path in document["paths"]
        assert path in swagger["paths"]
        assert [n for n in swagger["definitions"] if n.endswith(name)]
