"""The kinds of identity.orch.io in the versions that users can build on, beside v1alpha1."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.engine.kind import Kind
from orchid.kernel.wire.schema import Anything, Fields, Leaf, Mapping, Node, Sequence
from tests.api.test_approval_reviews import terms
from tests.api.test_certificate_authorities import grant, may
from tests.api.world import ALICE, Api

GROUP = "identity.orch.io"
ALPHA = "v1alpha1"
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
STABLE_FIELDS = Path(__file__).parent.parent / "data" / "api" / "identity-v1.txt"
VERSIONS = {
    "approvalpolicies": "v1",
    "approvalreviews": "v1",
    "credentialrevocations": "v1",
    "issuedcertificates": "v1",
    "certificateauthorities": "v1beta1",
    "clusters": "v1beta1",
    "publishedbundles": "v1beta1",
    "signingkeys": "v1beta1",
    "tokenreviewbatches": "v1beta1",
}
SPECS: dict[str, dict[str, Any]] = {
    "approvalpolicies": {"signerNames": ["example.com/a"], "allows": {"commonName": "a"}},
    "credentialrevocations": {"token": {"jti": "an-id"}, "reason": "certificateHold"},
    "certificateauthorities": {
        "signerName": "example.com/a",
        "key": {"algorithm": "ECDSA-P256"},
        "subject": {"commonName": "A"},
    },
    "clusters": {"issuer": "https://a.example"},
    "publishedbundles": {"sources": [{"name": "a"}]},
    "signingkeys": {"algorithm": "ES256"},
}
NAMES = {"signingkeys": ("tokens-2", "tokens-2")}
CREATED = sorted(SPECS)


def path(plural: str, version: str, *parts: str) -> str:
    return "/".join((f"/apis/{GROUP}/{version}/{plural}", *parts))


def named(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def of_version(document: dict[str, Any], version: str) -> dict[str, Any]:
    return {**document, "apiVersion": f"{GROUP}/{version}"}


async def test_every_kind_has_the_documented_versions(server: Api) -> None:
    """As docs/compatibility.md lists; a kind that is not in its table is v1alpha1 only."""
    rows = re.findall(
        r"^\| ([\w, ]+) \| `(v1\w*)` \| `v1alpha1` \|$", PAGE.read_text(), re.MULTILINE
    )
    documented = {kind: version for kinds, version in rows for kind in kinds.split(", ")}
    found: dict[str, list[str]] = {}
    plurals: dict[str, str] = {}
    for kind in server.server.catalog.kinds:
        if kind.group == GROUP and kind.version != ALPHA:
            found.setdefault(kind.type.__name__, []).append(kind.version)
            plurals[kind.plural] = kind.version

    assert documented
    assert found == {kind: [version] for kind, version in documented.items()}
    assert plurals == VERSIONS


@pytest.mark.parametrize("plural", CREATED)
async def test_an_object_is_the_same_in_both_versions(server: Api, plural: str) -> None:
    """Created in either version, read and deleted in the other; stored as v1alpha1."""
    version = VERSIONS[plural]
    one, other = NAMES.get(plural, ("a", "b"))
    for name, written, read in ((one, version, ALPHA), (other, ALPHA, version)):
        made = await server.make(path(plural, written), named(name, SPECS[plural]))
        got = (await server.call("GET", path(plural, read, name))).json
        entry = server.server.feed.of(kind_of(server, plural).type).entries[
            f"identity/{plural}/{name}"
        ]
        deleted = await server.call("DELETE", path(plural, read, name))

        assert made["apiVersion"] == f"{GROUP}/{written}"
        assert got == of_version(made, read)
        assert entry.object.api_version == f"{GROUP}/{ALPHA}"
        assert deleted.status == 200, deleted.text


def kind_of(server: Api, plural: str) -> Kind[Any]:
    return server.server.catalog.by_resource[GROUP, ALPHA, plural]


@pytest.mark.parametrize(
    ("plural", "spec"),
    [("approvalreviews", terms()), ("tokenreviewbatches", {"tokens": ["nonsense"]})],
)
async def test_a_review_answers_in_the_version_of_its_path(
    server: Api, plural: str, spec: dict[str, Any]
) -> None:
    """With the same result."""
    answers = [
        await server.make(path(plural, version), {"spec": spec})
        for version in (VERSIONS[plural], ALPHA)
    ]

    assert [one["apiVersion"] for one in answers] == [
        f"{GROUP}/{VERSIONS[plural]}",
        f"{GROUP}/{ALPHA}",
    ]
    assert answers[0]["status"] == answers[1]["status"]


async def test_rights_are_asked_in_every_version(server: Api) -> None:
    """A version is no way around admission: `revoke` and `attest` are needed in each."""
    create = [may(["create"], GROUP, plural) for plural in CREATED]
    await grant(server, "alice", *create)
    for plural in ("credentialrevocations", "certificateauthorities"):
        for version in (VERSIONS[plural], ALPHA):
            body = named("a", SPECS[plural])
            answer = await server.call("POST", path(plural, version), body, token=ALICE)

            assert (answer.status, answer.json["reason"]) == (403, "Forbidden")


async def test_clients_prefer_the_stable_version(server: Api) -> None:
    """Stable before beta before alpha, in the documents that clients choose by."""
    group = (await server.call("GET", f"/apis/{GROUP}")).json
    accept = "application/json;g=apidiscovery.orch.io;v=v2;as=APIGroupDiscoveryList"
    items = (await server.call("GET", "/apis", headers={"accept": accept})).json["items"]
    (aggregated,) = [one for one in items if one["metadata"]["name"] == GROUP]

    order = ["v1", "v1beta1", ALPHA]
    assert [one["version"] for one in group["versions"]] == order
    assert group["preferredVersion"]["version"] == "v1"
    assert [one["version"] for one in aggregated["versions"]] == order


async def test_openapi_describes_every_version(server: Api) -> None:
    """Each with its paths and definitions."""
    swagger = (await server.call("GET", "/openapi/v2")).json
    for plural, version in VERSIONS.items():
        for one in (version, ALPHA):
            document = (await server.call("GET", f"/openapi/v3/apis/{GROUP}/{one}")).json

            assert path(plural, one) in document["paths"]
            assert path(plural, one) in swagger["paths"]


async def test_fields_of_a_stable_version_stay(server: Api) -> None:
    """A line of the file is a promise: its field keeps its name, its type and its place."""
    promised = STABLE_FIELDS.read_text().splitlines()
    found = [
        f"{kind.name}{line}"
        for kind in server.server.catalog.kinds
        if (kind.group, kind.version) == (GROUP, "v1")
        for line in fields(kind.schema)
    ]

    broken = sorted(set(promised) - set(found))
    new = sorted(set(found) - set(promised))
    assert not broken, "these fields of v1 are promised, and gone or of another type"
    assert not new, f"add these fields of v1 to {STABLE_FIELDS.name}"
    assert promised == sorted(promised)


def fields(node: Node, place: str = "") -> Iterator[str]:
    """A line for each field: its path and its type. Metadata is the same in every kind."""
    match node:
        case Fields(fields=inner):
            for name, one in inner.items():
                if (place, name) not in (("", "metadata"), ("", "kind"), ("", "apiVersion")):
                    yield from fields(one.node, f"{place}.{name}")
        case Sequence(items=inner):
            yield from fields(inner, f"{place}[]")
        case Mapping(values=inner):
            yield from fields(inner, f"{place}{{}}")
        case Leaf(scalar=scalar):
            yield f"{place} {scalar}"
        case Anything():
            yield f"{place} any"
