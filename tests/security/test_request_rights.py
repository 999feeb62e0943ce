"""Rights on a request and its signer: verbs by callers, impersonated or not.

Alice creates the request. She and Bob have every right there is for its signer, short of being
administrators; Carol has none. Each row of the table is one verb, each column one caller.
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.api.test_approval_policies import POLICIES, body
from tests.api.world import ADMIN, ALICE, BOB, Answer, Api, api
from tests.data import hostile
from tests.unit.kernel.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
BUNDLES = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
AUTHORITIES = "/apis/identity.orch.io/v1alpha1/certificateauthorities"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
RBAC = "/apis/rbac.authorization.orch.io/v1"
GROUP = "rbac.authorization.orch.io"
SIGNER = "example.com/web"
CAROL = "viewer-token-0008"

RULES = [
    {
        "apiGroups": ["certificates.orch.io"],
        "resources": [
            "certificatesigningrequests",
            "certificatesigningrequests/approval",
            "certificatesigningrequests/status",
            "clustertrustbundles",
        ],
        "verbs": ["create", "get", "update"],
    },
    {
        "apiGroups": ["certificates.orch.io"],
        "resources": ["signers"],
        "resourceNames": [SIGNER],
        "verbs": ["approve", "sign", "attest", "revoke"],
    },
    {
        "apiGroups": ["identity.orch.io"],
        "resources": ["approvalpolicies"],
        "resourceNames": ["web"],
        "verbs": ["use"],
    },
    {
        "apiGroups": ["identity.orch.io"],
        "resources": ["credentialrevocations"],
        "verbs": ["create"],
    },
    {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]},
]

# Who calls, and as whom.
CALLERS: dict[str, tuple[str, dict[str, str]]] = {
    "owner": (ALICE, {}),
    "other": (BOB, {}),
    "admin": (ADMIN, {}),
    "nobody": (CAROL, {}),
    "owner as other": (ALICE, {"impersonate-user": "bob"}),
    "other as owner": (BOB, {"impersonate-user": "alice"}),
    "owner as admin": (ALICE, {"impersonate-user": "root", "impersonate-group": "system:masters"}),
    "admin as owner": (ADMIN, {"impersonate-user": "alice"}),
    "admin as other": (ADMIN, {"impersonate-user": "bob"}),
    "admin as nobody": (ADMIN, {"impersonate-user": "viewer"}),
    "nobody as owner": (CAROL, {"impersonate-user": "alice"}),
}

# yes; no: the right is missing; eyes: the caller created the request.
TABLE = """
                  create  use  approve  sign  attest  revoke
owner             yes     yes  eyes     yes   yes     yes
other             yes     yes  yes      yes   yes     yes
admin             yes     yes  yes      yes   yes     yes
nobody            no      no   no       no    no      no
owner as other    yes     yes  eyes     yes   yes     yes
other as owner    yes     yes  eyes     yes   yes     yes
owner as admin    yes     yes  eyes     yes   yes     yes
admin as owner    yes     yes  eyes     yes   yes     yes
admin as other    yes     yes  yes      yes   yes     yes
admin as nobody   no      no   no       no    no      no
nobody as owner   no      no   no       no    no      no
"""


def cells() -> list[tuple[str, str, str]]:
    head, *rows = TABLE.strip("\n").splitlines()
    verbs = head.split()
    found = []
    for row in rows:
        caller, answers = row[:18].strip(), row[18:].split()
        found += [(caller, verb, cell) for verb, cell in zip(verbs, answers, strict=True)]
    return found


def spec() -> dict[str, Any]:
    made = samples.request("", (), alternative_names=(x509.DNSName("a.web.example.com"),))
    return {
        "request": base64.b64encode(made).decode(),
        "signerName": SIGNER,
        "usages": ["digital signature", "server auth"],
        "expirationSeconds": 3600,
    }


def condition(type_: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": "ByTest"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path / "data") as made:
        await made.make(f"{RBAC}/clusterroles", {"metadata": {"name": "all"}, "rules": RULES})
        subjects = [{"kind": "User", "apiGroup": GROUP, "name": name} for name in ("alice", "bob")]
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "all"}
        binding = {"metadata": {"name": "all"}, "subjects": subjects, "roleRef": role}
        await made.make(f"{RBAC}/clusterrolebindings", binding)
        await made.make(POLICIES, body("web"))
        await made.make(REQUESTS, {"metadata": {"name": "r"}, "spec": spec()}, token=ALICE)
        yield made


Call = Callable[..., Awaitable[Answer]]


async def create(server: Api, call: Call) -> Answer:
    return await call("POST", REQUESTS, {"metadata": {"name": "new"}, "spec": spec()})


async def use(server: Api, call: Call) -> Answer:
    answer = await call(
        "POST", f"{REQUESTS}?dryRun=All", {"metadata": {"name": "new"}, "spec": spec()}
    )
    assert answer.status == 403 or "would approve this request" in answer.warnings[0]
    return answer


async def approve(server: Api, call: Call) -> Answer:
    found = (await server.call("GET", f"{REQUESTS}/r")).json
    found["status"] = {"conditions": [condition("Approved")]}
    return await call("PUT", f"{REQUESTS}/r/approval", found)


async def sign(server: Api, call: Call) -> Answer:
    found = (await server.call("GET", f"{REQUESTS}/r")).json
    found["status"] = {"conditions": [condition("Approved")]}
    approved = (await server.call("PUT", f"{REQUESTS}/r/approval", found)).json
    approved["status"]["conditions"].append(condition("Failed"))
    return await call("PUT", f"{REQUESTS}/r/status", approved)


async def attest(server: Api, call: Call) -> Answer:
    anchor = hostile.pem.encode("CERTIFICATE", hostile.certificate_der(hostile.AUTHORITY)).decode()
    bundle = {"signerName": SIGNER, "trustBundle": anchor}
    return await call("POST", BUNDLES, {"metadata": {"name": "example.com:web:a"}, "spec": bundle})


async def revoke(server: Api, call: Call) -> Answer:
    """The certificates of a signer of ours, all of them."""
    authority = {"signerName": SIGNER, "key": {}, "subject": {"commonName": "Web CA"}}
    await server.make(AUTHORITIES, {"metadata": {"name": "web"}, "spec": authority})
    taken = {"authority": {"signerName": SIGNER}, "reason": "cACompromise"}
    return await call("POST", REVOCATIONS, {"metadata": {"name": "a"}, "spec": taken})


VERBS: dict[str, Callable[[Api, Call], Awaitable[Answer]]] = {
    "create": create,
    "use": use,
    "approve": approve,
    "sign": sign,
    "attest": attest,
    "revoke": revoke,
}


@pytest.mark.parametrize(("caller", "verb", "cell"), cells())
async def test_verbs_by_callers(server: Api, caller: str, verb: str, cell: str) -> None:
    """Each cell of the table above."""
    token, headers = CALLERS[caller]

    async def call(method: str, target: str, sent: Any) -> Answer:
        return await server.call(method, target, sent, token=token, headers=headers)

    answer = await VERBS[verb](server, call)

    assert answer.status in ((200, 201) if cell == "yes" else (403,)), answer.text
    assert ("created this request and may not approve it" in answer.text) is (cell == "eyes")


async def test_a_setting_opens_it_for_all(tmp_path: Path) -> None:
    """Where people approve what they ask for themselves."""
    async with api(tmp_path / "data", approve_own_requests=True) as made:
        await made.make(f"{RBAC}/clusterroles", {"metadata": {"name": "all"}, "rules": RULES})
        subject = {"kind": "User", "apiGroup": GROUP, "name": "alice"}
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "all"}
        binding = {"metadata": {"name": "all"}, "subjects": [subject], "roleRef": role}
        await made.make(f"{RBAC}/clusterrolebindings", binding)
        await made.make(REQUESTS, {"metadata": {"name": "r"}, "spec": spec()}, token=ALICE)

        answer = await approve(
            made, lambda method, target, sent: made.call(method, target, sent, token=ALICE)
        )

    assert answer.status == 200


async def test_no_other_verb_revokes(server: Api) -> None:
    """The verbs approve, sign and attest do not include revoke."""
    role = (await server.call("GET", f"{RBAC}/clusterroles/all")).json
    for rule in role["rules"]:
        rule["verbs"] = [verb for verb in rule["verbs"] if verb != "revoke"]
    await server.call("PUT", f"{RBAC}/clusterroles/all", role)

    answer = await revoke(
        server, lambda method, target, sent: server.call(method, target, sent, token=BOB)
    )

    assert answer.status == 403
