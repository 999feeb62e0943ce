"""The inventory, and no other object, names the approver of a request."""

import base64
import datetime
import json
from typing import Any

import pytest

from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import object_seal, seal
from orchid.kernel.store.interface import Span
from tests.api.test_ledger import sequenced
from tests.api.world import BOB, Api
from tests.security.certified import cluster_authority
from tests.unit.kernel.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
ISSUED = "/apis/identity.orch.io/v1alpha1/issuedcertificates"
SIGNER = "orch.io/orch-apiserver-client"
RBAC = "rbac.authorization.orch.io"
APPROVED = {"type": "Approved", "status": "True", "reason": "Test"}
PATCH, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
ACTING = {"impersonate-user": "carol", "impersonate-group": "system:masters"}
ADMINISTRATOR = {
    "username": "admin",
    "uid": "uid-admin",
    "groups": ["system:masters", "system:authenticated"],
}
FORMS = (
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
)


async def asked(server: Api) -> None:
    """A request of bob's, who may make one."""
    rule = {
        "apiGroups": ["certificates.orch.io"],
        "resources": ["certificatesigningrequests"],
        "verbs": ["create"],
    }
    await server.make(
        f"/apis/{RBAC}/v1/clusterroles", {"metadata": {"name": "ask"}, "rules": [rule]}
    )
    binding = {
        "metadata": {"name": "ask"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "ask"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "bob"}],
    }
    await server.make(f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    spec = {
        "request": base64.b64encode(samples.request("bob", ())).decode(),
        "signerName": SIGNER,
        "usages": ["client auth"],
    }
    body = {"metadata": {"name": "r"}, "spec": spec}
    answer = await server.call("POST", REQUESTS, body, token=BOB)
    assert answer.status == 201, answer.text


def certificate(server: Api, hours: int) -> bytes:
    """A certificate, as a program that has the authority's key would send it."""
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours - 1)
    authority = cluster_authority(server.server.files.path)
    return samples.certificate_for(authority, samples.request("bob", ()), now=now)


async def signed(server: Api, hours: int = 1) -> Any:
    """Give the request a certificate that ends in so many hours; return its record."""
    chain = base64.b64encode(certificate(server, hours)).decode()
    answer = await server.call(
        "PATCH",
        f"{REQUESTS}/r/status",
        {"status": {"certificate": chain}},
        headers={"content-type": "application/merge-patch+json"},
    )
    assert answer.status == 200, answer.text
    [record] = (await server.call("GET", ISSUED)).json["items"]
    return record["spec"]


async def approve(server: Api, headers: dict[str, str] | None = None, **condition: str) -> None:
    """Approve as `kubectl certificate approve` does."""
    body = (await server.call("GET", f"{REQUESTS}/r")).json
    body["status"] = {"conditions": [APPROVED | condition]}
    answer = await server.call("PUT", f"{REQUESTS}/r/approval", body, headers=headers)
    assert answer.status == 200, answer.text


async def test_an_approver_by_put_is_recorded(server: Api) -> None:
    """The name is the caller's, and no policy is named."""
    await asked(server)
    await approve(server)

    assert (await signed(server))["approver"] == ADMINISTRATOR


@pytest.mark.parametrize("media", [PATCH, APPLY], ids=["patch", "apply"])
async def test_an_approver_by_patch_is_recorded(server: Api, media: str) -> None:
    """A patch and an apply are approvals like a PUT."""
    await asked(server)
    query, said = "", {"status": {"conditions": [APPROVED]}}
    if media == APPLY:
        query = "?fieldManager=tests"
        said |= {"apiVersion": "certificates.orch.io/v1", "kind": "CertificateSigningRequest"}
    answer = await server.call(
        "PATCH", f"{REQUESTS}/r/approval{query}", said, headers={"content-type": media}
    )
    assert answer.status == 200, answer.text

    assert (await signed(server))["approver"] == ADMINISTRATOR


async def test_who_acts_under_another_name_is_named_beside_it(server: Api) -> None:
    """The record names both users, as the audit log does."""
    await asked(server)
    await approve(server, ACTING)

    assert (await signed(server))["approver"] == {"username": "carol", "impersonator": "admin"}


async def test_who_edits_an_approval_has_not_approved(server: Api) -> None:
    """An approval cannot be removed, so the user who wrote it first is the approver."""
    await asked(server)
    await approve(server, ACTING)
    await approve(server, message="looks good to me too")

    spec = await signed(server)
    assert spec["approver"] == {"username": "carol", "impersonator": "admin"}
    assert spec["approval"]["message"] == "looks good to me too"


async def test_no_answer_about_the_request_names_the_approver(server: Api) -> None:
    """Not in any form, nor in a watch, nor in what it was before."""
    await asked(server)
    await approve(server, ACTING)
    version = (await server.call("GET", f"{REQUESTS}/r")).json["metadata"]["resourceVersion"]
    await signed(server)
    past = f"{REQUESTS}?resourceVersion={version}&resourceVersionMatch=Exact"

    shown = [
        (await server.call("GET", place, headers={"accept": form})).body
        for place in (REQUESTS, f"{REQUESTS}/r", f"{REQUESTS}/r/status", past)
        for form in FORMS
    ]
    async with server.watch(f"{REQUESTS}?watch=1&resourceVersion=1") as stream:
        events = await stream.take(3)
    deleted = await server.call("DELETE", f"{REQUESTS}/r")

    assert all(b"bob" in body for body in shown)
    assert not [body for body in (*shown, deleted.body) if b"carol" in body]
    assert "carol" not in str(events)


async def test_the_record_alone_proves_the_entry_of_the_approval(server: Api) -> None:
    """The inventory has all sealed members, also after the request is deleted."""
    await asked(server)
    await approve(server)
    record = await signed(server)
    assert (await server.call("DELETE", f"{REQUESTS}/r")).status == 200

    waiting = (await server.server.store.read(store_keys.PENDING)).records
    entries = [json.loads(one.value) for one in waiting]
    [entry] = [one for one in entries if one["type"] == "request.approved"]
    name, uid = record["request"]["name"], record["request"]["uid"]
    said = {"name": name, "requester": "bob", "decider": record["approver"]["username"]}

    assert entry["object"] == object_seal(uid)
    assert entry["sealed"] == seal(uid, said)
    assert record["requester"]["username"] == "bob"


async def test_the_name_is_nowhere_once_both_objects_are_gone(server: Api) -> None:
    """The request and the record held it; the ledger has it sealed, with a uid that is gone."""
    await asked(server)
    await approve(server, ACTING)
    record = (await signed(server, hours=-1))["serialNumber"]
    await sequenced(server)
    store = server.server.store
    held = [one.key for one in (await store.read(Span.all())).records if b"carol" in one.value]

    for place in (f"{REQUESTS}/r", f"{ISSUED}/{record}"):
        assert (await server.call("DELETE", place)).status == 200

    left = (await store.read(Span.all())).records
    assert [key.rpartition("/")[2] for key in held] == ["r", record]
    assert not [record.key for record in left if b"carol" in record.value]
    entries = b"".join(one.value for one in left if one.key.startswith("~ledger/entries/"))
    assert b"request.approved" in entries
    assert b"certificate.issued" in entries
