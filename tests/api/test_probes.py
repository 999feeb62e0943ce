"""The probe list of the contract (api-machinery, section 12), one test for each line."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from tests.api.world import Api
from tests.unit.access.presenting import Authority
from tests.unit.credentials import samples

SA = "/api/v1/namespaces/default/serviceaccounts"
CSR = "/apis/certificates.orch.io/v1/certificatesigningrequests"
CTB = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
MERGE = {"content-type": "application/merge-patch+json"}
JSON_PATCH = {"content-type": "application/json-patch+json"}
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}


def request(name: str, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, **meta},
        "spec": {
            "request": base64.b64encode(samples.request()).decode(),
            "signerName": "orch.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    }


def account(name: str, **more: Any) -> dict[str, Any]:
    meta = more.pop("metadata", {})
    return {
        "kind": "ServiceAccount",
        "apiVersion": "v1",
        "metadata": {"name": name, **meta},
        **more,
    }


async def test_01_unknown_paths(server: Api) -> None:
    """Below what we serve a Status, elsewhere plain text."""
    below = await server.call("GET", "/api/v1/foos")
    elsewhere = await server.call("GET", "/foo")

    assert below.status == 404
    assert below.json["details"] == {}
    assert below.json["message"] == "the server could not find the requested resource"
    assert (elsewhere.status, elsewhere.text) == (404, "404 page not found\n")
    assert elsewhere.header("content-type") == "text/plain; charset=utf-8"


async def test_02_methods(server: Api) -> None:
    """A method that a path does not have is a 405, without a word on which it has."""
    await server.account("a")
    everywhere = await server.call("POST", "/api/v1/serviceaccounts", account("b"))
    head = await server.call("HEAD", f"{SA}/a")

    assert (everywhere.status, head.status) == (405, 405)
    assert everywhere.header("allow") is None
    assert everywhere.json["details"] == {}


async def test_03_accept(server: Api) -> None:
    """The router wants a literal type; a browser's list with */* is served."""
    await server.account("a")
    wild = await server.call("GET", f"{SA}/a", headers={"accept": "application/*"})
    browser = await server.call("GET", f"{SA}/a", headers={"accept": "text/html, */*"})

    assert wild.status == 406
    assert wild.json["message"].startswith("406: Not Acceptable\n\nAvailable representations: ")
    assert (browser.status, browser.header("content-type")) == (200, "application/json")


async def test_04_content_types(server: Api) -> None:
    """A patch that is none, and an object in an unknown form, are two different 415s."""
    await server.account("a")
    patch = await server.call(
        "PATCH", f"{SA}/a", b"{}", headers={"content-type": "application/json"}
    )
    post = await server.call("POST", SA, b"{}", headers={"content-type": "text/plain"})

    assert (patch.status, patch.json["message"]) == (415, "415: Unsupported Media Type")
    assert post.status == 415
    assert post.json["message"].startswith("the body of the request was in an unknown format - ")
    assert "details" not in post.json


async def test_05_too_large(server: Api) -> None:
    """A body of more than 3 MiB is refused by its size."""
    answer = await server.call(
        "POST", SA, b" " * (3 * 1024 * 1024 + 1), headers={"content-type": "application/json"}
    )

    assert answer.status == 413
    assert answer.json["message"] == "Request entity too large: limit is 3145728"


async def test_06_empty_and_generation(server: Api) -> None:
    """A name is needed; a generation is kept."""
    empty = await server.call("POST", SA, {})
    numbered = await server.call("POST", SA, account("g", metadata={"generation": 5}))

    assert empty.status == 422
    assert "name or generateName is required" in empty.json["message"]
    assert (numbered.status, numbered.json["metadata"]["generation"]) == (201, 5)


async def test_07_version_on_create(server: Api) -> None:
    """A new object has no version yet; `0` is none."""
    seven = await server.call("POST", SA, account("v", metadata={"resourceVersion": "7"}))
    long = await server.call("POST", SA, account("v", metadata={"resourceVersion": "7" * 5000}))
    zero = await server.call("POST", SA, account("v", metadata={"resourceVersion": "0"}))

    assert (seven.status, seven.json["message"]) == (
        400,
        "resourceVersion should not be set on objects to be created",
    )
    assert long.status == 400
    assert zero.status == 201


async def test_08_managed_fields_of_a_create(server: Api) -> None:
    """Nothing to own means no entry; a label is owned with its map."""
    bare = await server.account("bare")
    labelled = await server.account("labelled", labels={"a": "b"})

    assert "managedFields" not in bare["metadata"]
    (entry,) = labelled["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
    assert (entry["manager"], entry["operation"]) == ("tests", "Update")


@pytest.mark.parametrize("labels", [None, {"a": "b"}])
async def test_09_managed_fields_of_an_approval(server: Api, labels: Any) -> None:
    """An object that nobody tracks stays untracked; else the approval is an entry of its own."""
    made = await server.make(CSR, request("r", **({"labels": labels} if labels else {})))
    condition = {"type": "Approved", "status": "True", "reason": "Test", "message": ""}
    made["status"] = {"conditions": [condition]}
    answer = await server.call("PUT", f"{CSR}/r/approval", made)

    assert answer.status == 200, answer.text
    entries = answer.json["metadata"].get("managedFields", [])
    if labels is None:
        assert entries == []
    else:
        assert [entry.get("subresource") for entry in entries] == [None, "approval"]
        assert 'k:{"type":"Approved"}' in entries[1]["fieldsV1"]["f:status"]["f:conditions"]


async def test_10_put_without_version(server: Api) -> None:
    """A bundle insists on a version, an account does not."""
    await server.account("a")
    bundle = {"metadata": {"name": "b"}, "spec": {"trustBundle": certificate()}}
    await server.make(CTB, bundle)
    refused = await server.call("PUT", f"{CTB}/b", bundle)

    assert (await server.call("PUT", f"{SA}/a", account("a"))).status == 200
    assert refused.status == 422
    assert refused.json["message"] == (
        'clustertrustbundles.certificates.orch.io "b" is invalid: metadata.resourceVersion: '
        "Invalid value: 0: must be specified for an update"
    )


async def test_11_put_wrong_uid_and_identical(server: Api) -> None:
    """Another incarnation is a conflict; the same content writes nothing and tells nobody."""
    made = await server.account("a", labels={"x": "y"})
    wrong = await server.call("PUT", f"{SA}/a", account("a", metadata={"uid": "other"}))
    async with server.watch(f"{SA}?watch=1&resourceVersion={version(made)}") as stream:
        same = await server.call("PUT", f"{SA}/a", made)
        await server.account("b")
        event = await stream.next()

    assert wrong.status == 409
    assert "Precondition failed: UID in precondition: other, UID in object meta" in wrong.text
    assert (same.status, same.json) == (200, made)
    assert event["object"]["metadata"]["name"] == "b"


async def test_12_unknown_fields(server: Api) -> None:
    """Strict refuses with all of them named, the default warns."""
    body = account("u", foo=1, metadata={"bar": 2})
    strict = await server.call("POST", f"{SA}?fieldValidation=Strict", body)
    default = await server.call("POST", SA, body)

    assert strict.status == 400
    assert strict.json["message"] == (
        'ServiceAccount in version "v1" cannot be handled as a ServiceAccount: strict decoding '
        'error: unknown field "metadata.bar", unknown field "foo"'
    )
    assert default.status == 201
    assert default.warnings == [
        '299 - "unknown field \\"metadata.bar\\""',
        '299 - "unknown field \\"foo\\""',
    ]


async def test_13_json_patch(server: Api) -> None:
    """A failed test says nothing; replacing what is missing adds it."""
    await server.account("a")
    failed = await server.call(
        "PATCH",
        f"{SA}/a",
        json.dumps([{"op": "test", "path": "/metadata/name", "value": "b"}]).encode(),
        headers=JSON_PATCH,
    )
    added = await server.call(
        "PATCH",
        f"{SA}/a",
        json.dumps([{"op": "replace", "path": "/secrets", "value": [{"name": "s"}]}]).encode(),
        headers=JSON_PATCH,
    )

    assert failed.status == 422
    assert failed.json["details"] == {}
    assert failed.json["message"] == (
        "the server rejected our request due to an error in our request"
    )
    assert (added.status, added.json["secrets"]) == (200, [{"name": "s"}])


async def test_14_strategic_patch_of_conditions(server: Api) -> None:
    """By decision conditions merge by type: one more keeps those that are there."""
    await server.make(CSR, request("r"))
    for kind in ("Approved", "Failed"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True", "reason": "R"}]}}
        subresource = "approval" if kind == "Approved" else "status"
        answer = await server.call(
            "PATCH", f"{CSR}/r/{subresource}", json.dumps(patch).encode(), headers=STRATEGIC
        )
        assert answer.status == 200, answer.text

    assert [c["type"] for c in answer.json["status"]["conditions"]] == ["Approved", "Failed"]


async def test_15_apply_refusals(server: Api) -> None:
    """Apply wants a manager, knows every field, and creates only on the main endpoint."""
    body = json.dumps(account("n")).encode()
    nobody = await server.call("PATCH", f"{SA}/n", body, headers=APPLY)
    forced = await server.call("PATCH", f"{SA}/n?force=false", b"{}", headers=MERGE)
    unknown = await server.call(
        "PATCH",
        f"{SA}/n?fieldManager=m",
        json.dumps(account("n", foo=1)).encode(),
        headers=APPLY,
    )
    status = await server.call(
        "PATCH",
        f"{CSR}/missing/status?fieldManager=m",
        b"apiVersion: certificates.orch.io/v1\nkind: CertificateSigningRequest\n"
        b"metadata: {name: missing}\n",
        headers=APPLY,
    )
    created = await server.call("PATCH", f"{SA}/n?fieldManager=m", body, headers=APPLY)

    assert nobody.status == 422
    assert nobody.json["message"].endswith(
        "fieldManager: Required value: is required for apply patch"
    )
    assert forced.status == 422
    assert "force: Forbidden: may not be specified for non-apply patch" in forced.text
    assert 400 <= unknown.status < 500
    assert ".foo: field not declared in schema" in unknown.json["message"]
    assert status.status == 404
    assert created.status == 201


async def test_16_two_appliers(server: Api) -> None:
    """Who wants what another owns is told so, or takes it by force."""

    def labelled(value: str) -> bytes:
        return json.dumps(account("c", metadata={"labels": {"a": value}})).encode()

    await server.call("PATCH", f"{SA}/c?fieldManager=one", labelled("1"), headers=APPLY)
    conflict = await server.call("PATCH", f"{SA}/c?fieldManager=two", labelled("2"), headers=APPLY)
    forced = await server.call(
        "PATCH", f"{SA}/c?fieldManager=two&force=true", labelled("2"), headers=APPLY
    )

    assert conflict.status == 409
    assert conflict.json["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "one"',
                "field": ".metadata.labels.a",
            }
        ]
    }
    assert (forced.status, forced.json["metadata"]["labels"]) == (200, {"a": "2"})


async def test_17_delete(server: Api) -> None:
    """An account answers itself, a request a Status, and what has finalizers is only marked."""
    made = await server.account("a")
    await server.make(CSR, request("r"))
    await server.account("f", finalizers=["x/y"])
    gone = await server.call("DELETE", f"{SA}/a")
    status = await server.call("DELETE", f"{CSR}/r")
    marked = await server.call("DELETE", f"{SA}/f")

    assert gone.status == 200
    assert int(version(gone.json)) > int(version(made))
    assert (status.status, status.json["status"]) == (200, "Success")
    assert "code" not in status.json
    assert status.json["details"]["kind"] == "certificatesigningrequests"
    assert marked.status == 200
    assert "deletionTimestamp" in marked.json["metadata"]
    assert marked.json["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_18_delete_collection(server: Api) -> None:
    """By decision a Status; a bad policy is refused, whether or not there is a body."""
    await server.account("a")
    for body in (None, {}):
        refused = await server.call("DELETE", f"{SA}?propagationPolicy=Foo", body)

        assert refused.status == 422
        assert 'propagationPolicy: Unsupported value: "Foo": ' in refused.json["message"]
    deleted = await server.call("DELETE", SA)

    assert (deleted.status, deleted.json["status"]) == (200, "Success")
    assert (await server.call("GET", SA)).json["items"] == []


async def test_19_pages(server: Api) -> None:
    """Pages share a version; a selector hides the count; version 0 knows no pages."""
    for name in "abc":
        await server.account(name, labels={"x": "y"})
    first = (await server.call("GET", f"{SA}?limit=1")).json["metadata"]
    second = (await server.call("GET", f"{SA}?limit=1&continue={first['continue']}")).json
    selected = (await server.call("GET", f"{SA}?limit=1&labelSelector=x")).json["metadata"]
    whole = (await server.call("GET", f"{SA}?resourceVersion=0&limit=1")).json

    assert first["remainingItemCount"] == 2
    assert second["metadata"]["remainingItemCount"] == 1
    assert second["metadata"]["resourceVersion"] == first["resourceVersion"]
    assert "continue" in selected
    assert "remainingItemCount" not in selected
    assert len(whole["items"]) == 3


async def test_20_versions_of_a_list(server: Api) -> None:
    """The far future times out, and a match needs something to match."""
    future = await server.call("GET", f"{SA}?resourceVersion=99999999999")
    alone = await server.call("GET", f"{SA}?resourceVersionMatch=Exact")

    assert (future.status, future.header("retry-after")) == (504, "1")
    assert future.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert alone.status == 422
    assert "is forbidden unless resourceVersion is provided" in alone.text


async def test_21_bad_selectors(server: Api) -> None:
    """Each kind refuses a field in its own words, and a bad label key is named."""
    simple = await server.call("GET", f"{SA}?fieldSelector=spec.foo=x")
    typed = await server.call("GET", f"{CSR}?fieldSelector=spec.foo=x")
    label = await server.call("GET", f"{SA}?labelSelector=a@=b")

    assert simple.json["message"] == (
        '"spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    assert typed.json["message"] == "field label not supported: spec.foo"
    assert label.json["message"].startswith(
        'unable to parse requirement: <nil>: Invalid value: "a@": '
    )
    assert {simple.status, typed.status, label.status} == {400}


async def test_22_watches(server: Api) -> None:
    """First what is there, then a marked bookmark; from a forgotten version an error event."""
    await server.account("a")
    async with server.watch(f"{SA}?watch=1&allowWatchBookmarks=true") as stream:
        added, bookmark = await stream.take(2)
    await server.server.store.compact(await server.server.store.revision())
    server.server.feed.forget_before(await server.server.store.revision())
    async with server.watch(f"{SA}?watch=1&resourceVersion=1") as old:
        events = await old.rest()

    assert added["type"] == "ADDED"
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {
        "k8s.io/initial-events-end": "true",
        "orch.io/initial-events-end": "true",
    }
    assert [event["type"] for event in events] == ["ERROR"]
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


async def test_23_out_of_the_selector(server: Api) -> None:
    """A change out of what one watches looks like a deletion, with the content of before."""
    made = await server.account("a", labels={"x": "1"})
    async with server.watch(f"{SA}?watch=1&labelSelector=x=1") as stream:
        await stream.next()
        patch = json.dumps({"metadata": {"labels": {"x": "2"}}}).encode()
        changed = await server.call("PATCH", f"{SA}/a", patch, headers=MERGE)
        event = await stream.next()

    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"x": "1"}
    assert event["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert version(event["object"]) == version(changed.json)


async def test_24_pretty(server: Api) -> None:
    """People with curl see indented JSON unless they say otherwise."""
    await server.account("a")
    curl = {"user-agent": "curl/8.0"}
    compact = await server.call("GET", f"{SA}/a?pretty=false", headers=curl)
    indented = await server.call("GET", f"{SA}/a", headers=curl)

    assert compact.text.count("\n") == 1
    assert indented.text.startswith('{\n  "kind": "ServiceAccount",\n')
    assert not indented.text.endswith("\n")


async def test_25_verbose_readiness(server: Api) -> None:
    """An excluded check says so."""
    answer = await server.call("GET", "/readyz?verbose&exclude=log")

    assert answer.status == 200
    assert "[+]log excluded: ok\n" in answer.text


def version(made: Any) -> str:
    found: str = made["metadata"]["resourceVersion"]
    return found


def certificate() -> str:
    pem: bytes = Authority().certificate.public_bytes(serialization.Encoding.PEM)
    return pem.decode()
