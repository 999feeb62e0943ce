"""CertificateAuthority over the whole server: from its declaration like any other kind."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.credentials.authorities.authority import Authority
from tests.api.world import ALICE, BOB, Answer, Api, api
from tests.unit.kernel.credentials import samples

AUTHORITIES = "/apis/identity.orch.io/v1alpha1/certificateauthorities"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
BUNDLES = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
RBAC = "/apis/rbac.authorization.orch.io/v1"
SECRETS = "/api/v1/namespaces/pki/secrets"
APPLY = {"content-type": "application/apply-patch+yaml"}
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.orch.io"}
MERGE = {"content-type": "application/merge-patch+json"}
SIGNER = "example.com/web"
FROM_SECRET = {"key": None, "subject": None, "secretRef": {"namespace": "pki", "name": "ca"}}


def body(name: str = "web", **spec: Any) -> dict[str, Any]:
    given = {"signerName": SIGNER, "key": {}, "subject": {"commonName": "Web CA"}, **spec}
    return {
        "apiVersion": "identity.orch.io/v1alpha1",
        "kind": "CertificateAuthority",
        "metadata": {"name": name},
        "spec": {key: value for key, value in given.items() if value is not None},
    }


async def keep(server: Api, certificate: bytes, key: str) -> None:
    """Put an authority into the Secret that `FROM_SECRET` names."""
    data = {"tls.crt": certificate, "tls.key": key.encode()}
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    made = await server.call("POST", SECRETS, {"metadata": {"name": "ca"}, "data": encoded})
    assert made.status == 201


async def grant(server: Api, user: str, *rules: dict[str, Any]) -> None:
    """Let a user do these things, and no others."""
    role = {"metadata": {"name": f"of-{user}"}, "rules": list(rules)}
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.orch.io"}
    reference = {"kind": "ClusterRole", "name": f"of-{user}", "apiGroup": subject["apiGroup"]}
    binding = {"metadata": {"name": f"of-{user}"}, "subjects": [subject], "roleRef": reference}
    for plural, sent in (("clusterroles", role), ("clusterrolebindings", binding)):
        assert (await server.call("POST", f"{RBAC}/{plural}", sent)).status == 201


def may(verbs: list[str], group: str, resource: str, *names: str) -> dict[str, Any]:
    rule = {"verbs": verbs, "apiGroups": [group], "resources": [resource]}
    return {**rule, "resourceNames": list(names)} if names else rule


async def test_one_is_created_with_defaults_and_shown(server: Api) -> None:
    """The table has the columns of the kind; Ready is empty until a controller sets it."""
    made = await server.call("POST", AUTHORITIES, body())
    table = await server.call("GET", AUTHORITIES, headers=TABLE)

    assert made.status == 201
    assert made.json["spec"]["key"] == {"algorithm": "ECDSA-P256"}
    assert made.json["spec"]["issues"]["maxDuration"] == "2160h"
    names = [column["name"] for column in table.json["columnDefinitions"]]
    assert names == ["Name", "Signer", "Key", "Ready", "Expires", "Age"]
    cells = table.json["rows"][1]["cells"][:5]
    assert cells == ["web", SIGNER, "ECDSA-P256", "False", "<unknown>"]


async def test_it_is_found_by_its_signer(server: Api) -> None:
    """`spec.signerName` can be selected."""
    await server.call("POST", AUTHORITIES, body())
    await server.call("POST", AUTHORITIES, body("other", signerName="example.com/other"))

    found = await server.call("GET", f"{AUTHORITIES}?fieldSelector=spec.signerName={SIGNER}")

    assert [one["metadata"]["name"] for one in found.json["items"]] == ["web"]


async def test_apply_makes_one_and_changes_its_terms(server: Api) -> None:
    """Apply again with other terms is a new generation; another signer is refused."""
    path = f"{AUTHORITIES}/web?fieldManager=m"
    made = await server.call("PATCH", path, body(), headers=APPLY)
    changed = await server.call(
        "PATCH", path, body(issues={"usages": ["client auth"]}), headers=APPLY
    )
    refused = await server.call("PATCH", path, body(signerName="example.com/other"), headers=APPLY)

    assert (made.status, changed.status, refused.status) == (201, 200, 422)
    assert changed.json["metadata"]["generation"] == 2
    assert refused.json["details"]["causes"][0]["field"] == "spec.signerName"


async def test_a_second_authority_for_a_signer_is_refused(server: Api) -> None:
    """Otherwise it would be undefined which authority signs a request."""
    await server.call("POST", AUTHORITIES, body())

    second = await server.call("POST", AUTHORITIES, body("second"))

    assert second.status == 422
    assert second.json["details"]["causes"][0] == {
        "reason": "FieldValueDuplicate",
        "message": f'Duplicate value: "{SIGNER}"',
        "field": "spec.signerName",
    }


def expired() -> tuple[bytes, str]:
    then = datetime.now(UTC) - timedelta(days=20)
    made = Authority.create("old", now=then, lifetime=timedelta(days=10))
    return made.certificate_pem, made.key_pem().reveal()


def mismatched() -> tuple[bytes, str]:
    now = datetime.now(UTC)
    return (
        Authority.create("a", now=now).certificate_pem,
        Authority.create("b", now=now).key_pem().reveal(),
    )


def no_authority() -> tuple[bytes, str]:
    now = datetime.now(UTC)
    leaf = Authority.create("a", now=now).issue_client("x", lifetime=timedelta(days=1), now=now)
    return leaf.chain, leaf.key.reveal()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (mismatched, "private key does not match public key"),
        (no_authority, "does not have the CA bit set"),
        (expired, "has expired"),
        (lambda: (b"hello", mismatched()[1]), "at least one CERTIFICATE PEM block"),
        (lambda: (mismatched()[0], "hello\nyou"), "does not contain a private key in PEM form"),
    ],
    ids=["other key", "no authority", "past its end", "no certificate", "no key"],
)
async def test_a_secret_that_is_no_authority_is_refused(server: Api, made: Any, says: str) -> None:
    """At create, with the reason, and nothing is stored; the key is in no message."""
    certificate, key = made()
    await keep(server, certificate, key)

    answer = await server.call("POST", AUTHORITIES, body(**FROM_SECRET))

    there = await server.call("GET", f"{AUTHORITIES}/web")
    assert (answer.status, there.status) == (422, 404)
    assert answer.json["details"]["causes"][0]["field"] == "spec.secretRef"
    assert says in answer.json["message"]
    assert key.strip().splitlines()[-2:][0] not in answer.text


async def test_a_secret_that_is_not_there_is_refused(server: Api) -> None:
    """Nothing is half made."""
    answer = await server.call("POST", AUTHORITIES, body(**FROM_SECRET))

    assert answer.status == 422
    assert 'spec.secretRef: Not found: "pki/ca"' in answer.json["message"]


async def test_a_good_secret_is_accepted(server: Api) -> None:
    """The certificate in it says the subject and the end."""
    made = Authority.create("own", now=datetime.now(UTC))
    await keep(server, made.certificate_pem, made.key_pem().reveal())

    answer = await server.call("POST", AUTHORITIES, body(**FROM_SECRET))

    assert answer.status == 201


@pytest.mark.parametrize(
    ("held", "refused"),
    [("attest", "not permitted to sign requests"), ("sign", "not permitted to attest")],
)
async def test_who_may_not_sign_and_attest_makes_no_authority(
    server: Api, held: str, refused: str
) -> None:
    """Our controllers would do both in their stead: nobody hands out more than they hold."""
    writing = may(
        ["create", "update", "get", "patch"], "identity.orch.io", "certificateauthorities"
    )
    group, every = "certificates.orch.io", "example.com/*"
    await grant(server, "alice", writing, may([held], group, "signers", every))
    await grant(server, "bob", writing, may(["sign", "attest"], group, "signers", every))

    alice = await server.call("POST", AUTHORITIES, body(), token=ALICE)
    bob = await server.call("POST", AUTHORITIES, body(), token=BOB)
    terms = {"spec": {"issues": {"usages": ["client auth"]}}}
    changed = await server.call("PATCH", f"{AUTHORITIES}/web", terms, token=ALICE, headers=MERGE)

    assert (alice.status, bob.status, changed.status) == (403, 201, 403)
    assert refused in alice.json["message"]
    assert refused in changed.json["message"]


async def test_who_may_not_read_a_secret_makes_no_authority_of_it(server: Api) -> None:
    """The server reads it in their stead, so they must be allowed to."""
    made = Authority.create("own", now=datetime.now(UTC))
    await keep(server, made.certificate_pem, made.key_pem().reveal())
    await grant(
        server,
        "bob",
        may(["create"], "identity.orch.io", "certificateauthorities"),
        may(["sign", "attest"], "certificates.orch.io", "signers", SIGNER),
    )

    answer = await server.call("POST", AUTHORITIES, body(**FROM_SECRET), token=BOB)

    assert answer.status == 403
    assert 'not permitted to get the Secret "pki/ca"' in answer.json["message"]


async def with_dependents(server: Api) -> None:
    """An authority, a request that waits for it, one of another signer, and a bundle."""
    await server.call("POST", AUTHORITIES, body())
    for name, signer in (("mine", SIGNER), ("other", "example.com/other")):
        text = base64.b64encode(samples.request("x")).decode()
        spec = {"request": text, "signerName": signer, "usages": ["client auth"]}
        await server.call("POST", REQUESTS, {"metadata": {"name": name}, "spec": spec})
    anchor = Authority.create("a", now=datetime.now(UTC)).certificate_pem.decode()
    spec = {"signerName": SIGNER, "trustBundle": anchor}
    await server.call("POST", BUNDLES, {"metadata": {"name": "example.com:web:a"}, "spec": spec})


DEPENDENTS = "on which depend 0 live certificates, 1 open request and 1 trust bundle"


async def test_deleting_one_says_what_depends_on_it(server: Api) -> None:
    """In the answer, also to a dry run; nothing is held up."""
    await with_dependents(server)

    tried = await server.call("DELETE", f"{AUTHORITIES}/web?dryRun=All")
    done = await server.call("DELETE", f"{AUTHORITIES}/web")

    for answer in (tried, done):
        assert answer.status == 200
        assert warned(answer) == [f"the authority of {SIGNER} is deleted, {DEPENDENTS}"]


async def test_changing_one_says_what_depends_on_it(server: Api) -> None:
    """Other terms do; a label does not."""
    await with_dependents(server)
    path = f"{AUTHORITIES}/web"

    terms = {"spec": {"issues": {"usages": ["client auth"]}}}
    changed = await server.call("PATCH", path, terms, headers=MERGE)
    label = {"metadata": {"labels": {"a": "b"}}}
    labelled = await server.call("PATCH", path, label, headers=MERGE)

    assert warned(changed) == [f"the authority of {SIGNER} is changed, {DEPENDENTS}"]
    assert warned(labelled) == []


def warned(answer: Answer) -> list[str]:
    return [warning.split('"')[1] for warning in answer.warnings]


@pytest.mark.parametrize("naming", ["orch", "kubernetes"])
async def test_the_group_is_the_same_in_both_namings(server_files: Path, naming: str) -> None:
    """Discovery and OpenAPI have it under one name."""
    async with api(server_files.parent / naming, naming=naming) as server:
        found = await server.call("GET", "/apis/identity.orch.io/v1alpha1")
        schema = await server.call("GET", "/openapi/v3/apis/identity.orch.io/v1alpha1")

    names = [one["name"] for one in found.json["resources"]]
    assert {"certificateauthorities", "certificateauthorities/status"} <= set(names)
    described = schema.json["components"]["schemas"]
    (terms,) = [one for name, one in described.items() if name.endswith(".IssuingTerms")]
    assert terms["properties"]["usages"]["items"]["type"] == "string"


async def test_the_creator_sets_no_status(server: Api) -> None:
    """A status at the create would make an authority Ready that no controller has checked."""
    made = await server.call("POST", AUTHORITIES, body() | {"status": {"certificate": "mine"}})

    assert made.status == 201
    assert "certificate" not in made.json["status"]
