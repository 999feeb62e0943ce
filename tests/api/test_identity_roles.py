"""The shipped roles for requesting, approving, looking up and revoking: each is enough, no more."""

import base64
from typing import Any

import pytest

from tests.api.world import BOB, Api
from tests.unit.kernel.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
IDENTITY = "/apis/identity.orch.io/v1alpha1"
RBAC = "rbac.authorization.orch.io"
APPROVED = {"type": "Approved", "status": "True", "reason": "Test"}
REQUEST = {
    "metadata": {"name": "new"},
    "spec": {
        "request": base64.b64encode(samples.request("bob", ())).decode(),
        "signerName": "orch.io/orch-apiserver-client",
        "usages": ["client auth"],
    },
}
APPROVAL = {"metadata": {"name": "old"}, "status": {"conditions": [APPROVED]}}
REVOCATION = {
    "metadata": {"name": "r"},
    "spec": {"account": {"namespace": "default", "name": "a0"}, "reason": "superseded"},
}
WORK = {
    "request": ("POST", REQUESTS, REQUEST),
    "approve": ("PUT", f"{REQUESTS}/old/approval", APPROVAL),
    "look up": ("GET", f"{IDENTITY}/issuedcertificates", None),
    "revoke": ("POST", f"{IDENTITY}/credentialrevocations", REVOCATION),
    "read the ledger": ("GET", "/ledger/key", None),
}
ROLES = {
    "certificate-requester": {"request"},
    "certificate-approver": {"approve"},
    "certificate-inventory-viewer": {"look up"},
    "credential-revoker": {"look up", "revoke"},
    "ledger-viewer": {"read the ledger"},
}


async def granted(server: Api, role: str) -> None:
    binding = {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "bob"}],
    }
    await server.make(f"/apis/{RBAC}/v1/clusterrolebindings", binding)


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_allows_its_work_and_no_other(server: Api, role: str) -> None:
    """A user with one of them needs no other role for that work."""
    await server.account("a0")
    old: dict[str, Any] = {**REQUEST, "metadata": {"name": "old"}}
    await server.make(REQUESTS, old)
    await granted(server, role)

    answers = {
        work: await server.call(method, target, body, token=BOB)
        for work, (method, target, body) in WORK.items()
    }

    refused = {work for work, answer in answers.items() if answer.status == 403}
    assert WORK.keys() - refused == ROLES[role]
    assert {answer.status for work, answer in answers.items() if work not in refused} <= {200, 201}
