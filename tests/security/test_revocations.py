"""The attack: use a revoked credential, or revoke the credential of another user."""

import base64
import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.credentials.authorities.issuer_chain import spki_of
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.text import timestamp
from tests.api.world import ALICE, Answer, Api
from tests.security.certified import (
    HOUR,
    Certified,
    cluster_authority,
    issued,
    other_authority,
    twin,
)
from tests.security.test_watches_end import prepared, watching
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.credentials import samples

REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
ISSUED = "/apis/identity.orch.io/v1alpha1/issuedcertificates"
REQUESTS = f"/apis/{ORCH.certificates}/v1/certificatesigningrequests"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
FUTURE, PAST = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"


async def revoke(
    server: Api, name: str, spec: dict[str, Any], token: str | None = None, **meta: Any
) -> Answer:
    body = {"metadata": {"name": name, **meta}, "spec": spec}
    sent = {} if token is None else {"token": token}
    return await server.call("POST", REVOCATIONS, body, **sent)


async def revoked(server: Api, name: str, **spec: Any) -> dict[str, Any]:
    answer = await revoke(server, name, spec)
    assert answer.status == 201, answer.text
    found: dict[str, Any] = answer.json
    return found


async def known(server: Api, **how: Any) -> int:
    """The status of a request that anybody may make whom the server knows."""
    return (await server.call("POST", WHO, {}, **{"token": None, **how})).status


def fingerprint(certified: Certified) -> str:
    return hashlib.sha256(certified.der).hexdigest()


def jti_of(token: str) -> str:
    payload = token.split(".")[1]
    found: str = json.loads(base64.urlsafe_b64decode(payload + "=="))["jti"]
    return found


def authority_key(server: Api) -> ec.EllipticCurvePrivateKey:
    """The key of the authority whose certificates the server accepts."""
    key = (server.server.files.path / "ca.key").read_bytes()
    found = serialization.load_pem_private_key(key, password=None)
    assert isinstance(found, ec.EllipticCurvePrivateKey)
    return found


async def on_record(
    server: Api, user: str, name: str = "asked", lifetime: timedelta = HOUR
) -> tuple[str, Peer]:
    """A certificate that was asked for, approved and issued; its number, and who shows it."""
    certified = issued(cluster_authority(server.server.files.path), user, lifetime=lifetime)
    key = serialization.load_pem_private_key(certified.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    spec = {
        "request": base64.b64encode(samples.request(user, key=key)).decode(),
        "signerName": ORCH.client_signer,
        "usages": ["client auth"],
    }
    made = await server.make(REQUESTS, {"metadata": {"name": name}, "spec": spec})
    condition = {"type": "Approved", "status": "True", "reason": "Test"}
    made["status"] = {"conditions": [condition]}
    answer = await server.call("PUT", f"{REQUESTS}/{name}/approval", made)
    assert answer.status == 200, answer.text
    approved = answer.json
    approved["status"]["certificate"] = base64.b64encode(certified.chain).decode()
    answer = await server.call("PUT", f"{REQUESTS}/{name}/status", approved)
    assert answer.status == 200, answer.text
    sha256 = fingerprint(certified)
    found = await server.call("GET", f"{ISSUED}?fieldSelector=spec.sha256={sha256}")
    return found.json["items"][0]["metadata"]["name"], certified.peer


async def test_a_revoked_certificate_is_refused_on_the_same_connection(server: Api) -> None:
    """The proof of a connection does not outlive the revocation; other connections continue."""
    authority = cluster_authority(server.server.files.path)
    jane, other = issued(authority, "jane"), issued(authority, "jane")
    peer = jane.peer
    before = await known(server, peer=peer)

    answer = await revoke(server, "stolen", {"certificate": {"sha256": fingerprint(jane)}})

    assert before == 201
    assert answer.status == 201
    assert "no certificate with this fingerprint was issued here" in answer.warnings[0]
    assert await known(server, peer=peer) == 401
    assert await known(server, peer=other.peer) == 201


@pytest.mark.parametrize("by", ["sha256", "serialNumber", "requestName"])
async def test_a_certificate_is_named_by_what_one_knows_of_it(server: Api, by: str) -> None:
    """The server adds the rest, and the end is the certificate's own."""
    serial, peer = await on_record(server, "jane")
    record = (await server.call("GET", f"{ISSUED}/{serial}")).json["spec"]
    named = {
        "sha256": {"sha256": record["sha256"]},
        "serialNumber": {"serialNumber": serial, "signerName": ORCH.client_signer},
        "requestName": {"requestName": "asked"},
    }[by]

    made = await revoked(server, "stolen", certificate=named, reason="keyCompromise")

    assert made["spec"]["certificate"] == {
        "sha256": record["sha256"],
        "signerName": ORCH.client_signer,
        "serialNumber": serial,
        "requestName": "asked",
        "authorityKey": record["authorityKey"],
        "keySha256": record["key"]["sha256"],
    }
    assert made["status"]["expires"] == record["notAfter"]
    assert await known(server, peer=peer) == 401


async def test_a_revoked_token_is_refused_and_reviewed_as_such(server: Api) -> None:
    """By its id; other tokens of the account stay valid."""
    await server.account("robot")
    token, other = await server.token("robot"), await server.token("robot")
    named = {"jti": jti_of(token), "namespace": "default", "name": "robot"}

    await revoked(server, "leaked", token=named)

    review = await server.call("POST", REVIEWS, {"spec": {"token": token}})
    assert await known(server, token=token) == 401
    assert await known(server, token=other) == 201
    assert not review.json["status"].get("authenticated")
    assert "has been revoked" in review.json["status"]["error"]


async def test_a_tokens_id_counts_for_the_account_that_was_named_only(server: Api) -> None:
    """The right to revoke tokens of one account does not cover a token of another by its id."""
    await server.account("robot")
    await server.account("other")
    token = await server.token("robot")

    await revoked(
        server, "wrong", token={"jti": jti_of(token), "namespace": "default", "name": "other"}
    )

    assert await known(server, token=token) == 201


async def test_all_tokens_of_an_account_go_and_the_next_one_works(server: Api) -> None:
    """Times count whole seconds: one that is issued in the same second must not be hit."""
    await server.account("robot")
    old = await server.token("robot")

    await revoked(server, "all", account={"namespace": "default", "name": "robot"})
    new = await server.token("robot")

    assert await known(server, token=old) == 401
    assert await known(server, token=new) == 201


async def test_tokens_of_before_a_moment_go(server: Api, clock: MovingClock) -> None:
    """Tokens that were issued later stay valid."""
    await server.account("robot")
    old = await server.token("robot")
    clock.ahead += timedelta(seconds=10)
    moment = timestamp(clock.now())
    clock.ahead += timedelta(seconds=10)
    new = await server.token("robot")

    account = {"namespace": "default", "name": "robot", "issuedBefore": moment}
    await revoked(server, "older", account=account)

    assert await known(server, token=old) == 401
    assert await known(server, token=new) == 201


async def test_all_certificates_of_a_signer_go_and_the_next_one_works(server: Api) -> None:
    """Only what was issued until then."""
    _, old = await on_record(server, "jane", "first")

    await revoked(server, "all", authority={"signerName": ORCH.client_signer})
    _, new = await on_record(server, "jane", "second")

    assert await known(server, peer=old) == 401
    assert await known(server, peer=new) == 201


async def test_what_a_revoked_signer_may_have_issued_needs_no_record(
    server: Api, clock: MovingClock
) -> None:
    """Without a record, key and notBefore decide, except for the group system:masters."""
    authority = cluster_authority(server.server.files.path)
    jane, admin = issued(authority, "jane"), issued(authority, "admin", "system:masters")
    forged = {"signerName": ORCH.client_signer, "keys": ["0" * 64]}

    made = await revoked(server, "all", authority=forged)
    clock.ahead += timedelta(minutes=6)
    later = issued(authority, "jane", now=clock.now())

    key = hashlib.sha256(spki_of(authority.certificate)).hexdigest()
    assert made["spec"]["authority"]["keys"] == [key]
    assert await known(server, peer=jane.peer) == 401
    assert await known(server, peer=admin.peer) == 201
    assert await known(server, peer=later.peer) == 201


async def test_the_revocation_of_one_signer_leaves_what_another_issued_with_its_key(
    server: Api,
) -> None:
    """Without a record, the names decide: only nodes have certificates of the node signer."""
    authority = cluster_authority(server.server.files.path)
    jane, node = issued(authority, "jane"), issued(authority, "system:node:a", "system:nodes")

    await revoked(server, "all", authority={"signerName": ORCH.node_client_signer})

    assert await known(server, peer=jane.peer) == 201
    assert await known(server, peer=node.peer) == 401


async def test_a_second_certificate_with_a_number_of_the_inventory_is_refused(server: Api) -> None:
    """An authority gives a number once (RFC 5280, 4.1.2.2): the one on record counts."""
    _, ours = await on_record(server, "jane")
    original = x509.load_der_x509_certificate(ours.certificate or b"")
    other = Peer("127.0.0.1:2", twin(original, authority_key(server)))

    assert await known(server, peer=ours) == 201
    assert await known(server, peer=other) == 401


async def test_a_certificate_of_an_authority_that_is_not_ours_is_refused_by_fingerprint(
    server: Api,
) -> None:
    """It cannot be named by a number, which means nothing to us."""
    foreign = issued(other_authority(), "jane")
    by_number = {"serialNumber": "7", "signerName": "example.com/x"}

    refused = await revoke(server, "a", {"certificate": by_number})
    allowed = await revoke(server, "b", {"certificate": {"sha256": fingerprint(foreign)}})

    assert (refused.status, allowed.status) == (422, 201)
    assert 'serialNumber: Not found: "7"' in refused.text.replace("\\", "")


async def test_open_watches_of_a_revoked_credential_end(server: Api) -> None:
    """Both kinds of credential, without waiting for the next change of a right."""
    await prepared(server)
    token = await server.token("robot")
    jane = issued(cluster_authority(server.server.files.path), "jane")
    async with (
        watching(server, token) as by_token,
        watching(server, peer=jane.peer) as by_certificate,
    ):
        await revoked(server, "token", token={"jti": jti_of(token)})
        await server.server.watches.check_all()
        between = (by_token.ended, by_certificate.ended)
        await revoked(server, "certificate", certificate={"sha256": fingerprint(jane)})
        await server.server.watches.check_all()

        assert between == ("finish", None)
        assert by_certificate.ended == "finish"


async def test_a_revocation_is_reason_to_look_at_watches_at_once(server: Api) -> None:
    """Also one that is new, while new roles and accounts are none."""
    await prepared(server)
    async with watching(server, await server.token("robot")):
        server.server.watches._changed.clear()

        await revoked(server, "some", certificate={"sha256": "0" * 64})

        assert server.server.watches._changed.is_set()


async def test_a_hold_is_lifted_by_deleting_it_and_nothing_else_is(server: Api) -> None:
    """Not even an administrator revives what was revoked for good."""
    serial, peer = await on_record(server, "jane")
    named = {"serialNumber": serial, "signerName": ORCH.client_signer}
    await revoked(server, "hold", certificate=named, reason="certificateHold")
    held = await known(server, peer=peer)
    lifted = await server.call("DELETE", f"{REVOCATIONS}/hold")
    again = await known(server, peer=peer)
    await revoked(server, "good", certificate=named, reason="keyCompromise")

    deleted = await server.call("DELETE", f"{REVOCATIONS}/good")
    all_deleted = await server.call("DELETE", REVOCATIONS)

    assert (held, lifted.status, again) == (401, 200, 201)
    assert (deleted.status, all_deleted.status) == (403, 403)
    assert "only certificateHold can be lifted" in deleted.text
    assert await known(server, peer=peer) == 401


async def test_a_revocation_whose_work_is_done_can_go(server: Api, clock: MovingClock) -> None:
    """After the certificate's own end there is nothing left to refuse."""
    serial, _ = await on_record(server, "jane")
    named = {"serialNumber": serial, "signerName": ORCH.client_signer}
    await revoked(server, "old", certificate=named)

    clock.ahead += timedelta(hours=2)

    assert (await server.call("DELETE", f"{REVOCATIONS}/old")).status == 200


async def test_a_revocation_of_tokens_stays_when_their_account_is_gone(
    server: Api, clock: MovingClock
) -> None:
    """Also when the account is created again: a restore brings the first one back."""
    await server.account("robot")
    token = await server.token("robot")
    named = {"namespace": "default", "name": "robot"}
    await revoked(server, "all", account=named)
    await revoked(server, "one", token={"jti": "x", **named})
    statuses = []

    async def deleted() -> None:
        for name in ("all", "one"):
            statuses.append((await server.call("DELETE", f"{REVOCATIONS}/{name}")).status)

    await deleted()
    await server.call("DELETE", "/api/v1/namespaces/default/serviceaccounts/robot")
    await deleted()
    clock.ahead += timedelta(seconds=2)
    await server.account("robot")
    await deleted()
    refused = await known(server, token=token)
    clock.ahead += timedelta(hours=25)
    await deleted()

    assert statuses == [403] * 6 + [200] * 2
    assert refused == 401


async def test_a_signers_revocation_stays_as_long_as_a_certificate_of_its(
    server: Api, clock: MovingClock
) -> None:
    """By the inventory at that moment, not by what was known when it was made."""
    await revoked(server, "none", authority={"signerName": ORCH.client_signer})
    nothing = await server.call("DELETE", f"{REVOCATIONS}/none")
    await on_record(server, "jane")
    await revoked(server, "some", authority={"signerName": ORCH.client_signer})
    early = await server.call("DELETE", f"{REVOCATIONS}/some")

    clock.ahead += timedelta(hours=2)
    late = await server.call("DELETE", f"{REVOCATIONS}/some")

    assert (nothing.status, early.status, late.status) == (200, 403, 200)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, "exactly one of"),
        ({"token": {"jti": "a"}, "certificate": {"sha256": "0" * 64}}, "exactly one of"),
        ({"certificate": {}}, "say which"),
        ({"certificate": {"sha256": "A" * 64}}, "64 lower-case"),
        ({"certificate": {"serialNumber": "12"}}, "Not found"),
        ({"certificate": {"requestName": "never"}}, "Not found"),
        ({"token": {}}, "spec.token.jti: Required"),
        ({"token": {"jti": "x" * 257}}, "Too long"),
        ({"token": {"jti": "x", "name": "y"}}, "spec.token.namespace: Required"),
        ({"account": {"name": "default"}}, "spec.account.namespace: Required"),
        ({"authority": {}}, "spec.authority.signerName: Required"),
        ({"authority": {"signerName": "example.com/never"}}, "Not found"),
        ({"certificate": {"sha256": "0" * 64}, "reason": "bored"}, "Unsupported value"),
        ({"certificate": {"sha256": "0" * 64}, "reason": "removeFromCRL"}, "Unsupported value"),
        ({"certificate": {"sha256": "0" * 64}, "message": "x" * 1025}, "Too long"),
        (
            {
                "authority": {
                    "signerName": ORCH.client_signer,
                    "issuedBefore": FUTURE,
                }
            },
            "must not be in the future",
        ),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    server: Api, spec: dict[str, Any], text: str
) -> None:
    """Each with the field and the reason, and nothing is stored."""
    answer = await revoke(server, "bad", spec)

    assert answer.status == 422, answer.text
    assert text in answer.json["message"]
    assert (await server.call("GET", f"{REVOCATIONS}/bad")).status == 404


async def test_tokens_of_the_future_cannot_be_revoked(server: Api) -> None:
    """The account still gets tokens, and its existing token stays valid."""
    account = {"namespace": "default", "name": "builder"}
    place = f"/api/v1/namespaces/{account['namespace']}/serviceaccounts"
    await server.make(place, {"metadata": {"name": account["name"]}})
    token = (await server.call("POST", f"{place}/builder/token", {})).json["status"]["token"]

    answer = await revoke(server, "bad", {"account": {**account, "issuedBefore": FUTURE}})

    assert answer.status == 422, answer.text
    assert "spec.account.issuedBefore" in answer.json["message"]
    assert "must not be in the future" in answer.json["message"]
    assert await known(server, token=token) == 201


async def test_what_is_revoked_never_changes(server: Api) -> None:
    """Neither by an update nor by what a client claims of the end."""
    made = await revoked(server, "x", certificate={"sha256": "0" * 64})
    forged = {
        "metadata": {"name": "y"},
        "spec": {"certificate": {"sha256": "2" * 64}},
        "status": {"expires": PAST},
    }

    changed = {**made, "spec": {"certificate": {"sha256": "1" * 64}}}
    updated = await server.call("PUT", f"{REVOCATIONS}/x", changed)
    created = await server.call("POST", REVOCATIONS, forged)
    status = await server.call(
        "PUT", f"{REVOCATIONS}/x/status", {**made, "status": {"expires": PAST}}
    )

    assert updated.status == 422
    assert "field is immutable" in updated.text
    assert made["status"]["expires"] != PAST
    assert created.json["status"]["expires"] == made["status"]["expires"]
    assert status.json["status"]["expires"] == made["status"]["expires"]


GRANTS: dict[str, dict[str, Any]] = {
    "signer": {
        "apiGroups": [ORCH.certificates],
        "resources": ["signers"],
        "resourceNames": [ORCH.client_signer],
        "verbs": ["revoke"],
    },
    "domain": {
        "apiGroups": [ORCH.certificates],
        "resources": ["signers"],
        "resourceNames": [f"{ORCH.client_signer.partition('/')[0]}/*"],
        "verbs": ["revoke"],
    },
    "signers": {"apiGroups": [ORCH.certificates], "resources": ["signers"], "verbs": ["revoke"]},
    "approve": {
        "apiGroups": [ORCH.certificates],
        "resources": ["signers"],
        "verbs": ["approve", "sign", "attest"],
    },
    "account": {
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "resourceNames": ["robot"],
        "verbs": ["revoke"],
    },
    "accounts": {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["revoke"]},
    "delete": {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["delete", "create"]},
}


@pytest.mark.parametrize(
    ("grant", "may"),
    [
        ("signer", {"certificate", "authority"}),
        ("domain", {"certificate", "authority"}),
        ("signers", {"certificate", "authority", "fingerprint"}),
        ("approve", set[str]()),
        ("account", {"account", "token"}),
        ("accounts", {"account", "token", "any token"}),
        ("delete", set[str]()),
    ],
)
async def test_revoking_takes_the_verb_on_what_is_hit(
    server: Api, grant: str, may: set[str]
) -> None:
    """The right to create revocations alone takes nothing back, and no other verb does."""
    serial, _ = await on_record(server, "jane")
    await server.account("robot")
    create = {
        "apiGroups": ["identity.orch.io"],
        "resources": ["credentialrevocations"],
        "verbs": ["create"],
    }
    rbac = "/apis/rbac.authorization.orch.io/v1"
    role = {"metadata": {"name": "revoker"}, "rules": [create, GRANTS[grant]]}
    await server.make(f"{rbac}/clusterroles", role)
    reference = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "revoker"}
    subjects = [{"kind": "User", "name": "alice", "apiGroup": ORCH.rbac}]
    binding = {"metadata": {"name": "revoker"}, "subjects": subjects, "roleRef": reference}
    await server.make(f"{rbac}/clusterrolebindings", binding)
    robot = {"namespace": "default", "name": "robot"}
    wanted: dict[str, dict[str, Any]] = {
        "certificate": {"certificate": {"serialNumber": serial, "signerName": ORCH.client_signer}},
        "authority": {"authority": {"signerName": ORCH.client_signer}},
        # Naming a signer for what nobody has seen makes it no less unseen.
        "fingerprint": {"certificate": {"sha256": "0" * 64, "signerName": ORCH.client_signer}},
        "account": {"account": robot},
        "token": {"token": {"jti": "x", **robot}},
        "any token": {"token": {"jti": "x"}},
    }

    answers = {
        name.replace(" ", "-"): await revoke(server, name.replace(" ", "-"), spec, token=ALICE)
        for name, spec in wanted.items()
    }

    allowed = {name.replace("-", " ") for name, found in answers.items() if found.status == 201}
    refused = [found for found in answers.values() if found.status != 201]
    assert allowed == may
    assert all(found.status == 403 and "not permitted to revoke" in found.text for found in refused)
