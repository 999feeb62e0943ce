"""SigningKey over the whole server: import, steps and their conditions, JWKS, revocation."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys import token_keys
from orchid.features.token_keys.files.file_keys import FileKeyObjects
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.kernel.credentials import keys
from orchid.kernel.store.memory import MemoryStore
from tests.api.clusters import cluster
from tests.api.world import ADMIN, ALICE, ISSUER, Answer, Api, api

KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
LEASES = "/apis/coordination.orch.io/v1/namespaces/orch-system/leases"
JWKS = "/openid/v1/jwks"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
HOME = "orch-system"
SERVER = "orch-server-one"
MERGE = {"content-type": "application/merge-patch+json"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path / "data") as made:
        yield made


async def key(server: Api, name: str) -> Any:
    return (await server.call("GET", f"{KEYS}/{name}")).json


async def make(server: Api, name: str, **spec: Any) -> Any:
    return await server.make(KEYS, {"metadata": {"name": name}, "spec": spec})


async def step(server: Api, name: str, state: str, query: str = "", **more: Any) -> Answer:
    body = json.dumps({"spec": {"state": state}}).encode()
    return await server.call("PATCH", f"{KEYS}/{name}{query}", body, headers=MERGE, **more)


async def stepped(server: Api, name: str, state: str) -> None:
    answer = await step(server, name, state)
    assert answer.status == 200, answer.text


async def report(server: Api, kids: list[str], signs: str = "", name: str = SERVER) -> None:
    """Write the Lease of a server."""
    notes = {"identity.orch.io/keys": ",".join(kids), "identity.orch.io/signs": signs}
    await server.call("DELETE", f"{LEASES}/{name}")
    body = {"metadata": {"name": name, "annotations": notes}, "spec": {"holderIdentity": name}}
    await server.make(LEASES, body)


async def published(server: Api, name: str, since: datetime) -> None:
    """Mark a key as the controller does once every server has it."""
    times = {"published": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
    body = json.dumps({"status": {"times": times}}).encode()
    answer = await server.call("PATCH", f"{KEYS}/{name}/status", body, headers=MERGE)
    assert answer.status == 200, answer.text


async def successor(server: Api, name: str = "tokens-2") -> Any:
    """A key that may become Active."""
    made = await make(server, name, algorithm="ES256")
    await report(server, [made["status"]["keyID"]])
    await published(server, name, datetime.now(UTC) - timedelta(days=2))
    return made


def later(server: Api, monkeypatch: pytest.MonkeyPatch, **more: float) -> None:
    """Set the clock of the server forward."""
    shift = timedelta(**more)
    monkeypatch.setattr(server.server.clock, "now", lambda: datetime.now(UTC) + shift)


async def is_accepted(server: Api, token: str) -> bool:
    body = {"spec": {"token": token, "audiences": [ISSUER]}}
    review = (await server.call("POST", REVIEWS, body)).json
    return bool(review["status"].get("authenticated", False))


def kid(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


async def jwks(server: Api) -> list[str]:
    return [one["kid"] for one in (await server.call("GET", JWKS)).json["keys"]]


# --- the first key ----------------------------------------------------------------------------


async def test_a_new_installation_has_one_active_key(server: Api) -> None:
    """It is an object, its private key is in a sealed Secret, and it signs and verifies."""
    found = await key(server, "tokens-1")
    await server.account("builder")
    token = await server.token("builder")

    assert found["spec"]["state"] == "Active"
    assert found["status"]["keyID"] == kid(token)
    assert await jwks(server) == [kid(token)]
    assert await is_accepted(server, token)
    assert "PRIVATE" not in json.dumps(found)
    secret = f"/api/v1/namespaces/{HOME}/secrets/signing-key-{found['metadata']['uid']}"
    owner = (await server.call("GET", secret)).json["metadata"]["ownerReferences"][0]
    assert owner["uid"] == found["metadata"]["uid"]


async def test_the_key_file_of_an_earlier_version_keeps_its_id(tmp_path: Path) -> None:
    """After an upgrade the key in token-signing.key is tokens-1, and old tokens are accepted."""
    data = tmp_path / "data"
    store = MemoryStore()
    async with api(data, store=store, token_keys="files") as before:
        await before.account("builder")
        token = await before.token("builder", expirationSeconds=86_400)
        records = (await store.read(_all(), limit=10_000)).records
    store = MemoryStore()
    for record in records:
        await store.commit([_change(record.key, record.value)])
    async with api(data, store=store) as after:
        found = await key(after, "tokens-1")

        assert found["status"]["keyID"] == kid(token)
        assert found["status"]["source"] == "Imported"
        assert found["status"]["dependents"]["unknownUntil"] > found["status"]["times"]["active"]
        assert await is_accepted(after, token)
        assert kid(await after.token("builder")) == kid(token)


def _all() -> Any:
    from orchid.kernel.store.interface import Span

    return Span("", "~")


def _change(place: str, value: bytes) -> Any:
    from orchid.kernel.store.interface import ABSENT, Change

    return Change(place, value, ABSENT)


async def test_files_that_are_given_work_as_before(tmp_path: Path) -> None:
    """With a flag for the files nothing is imported."""
    signing = tmp_path / "mine.key"
    made = keys.generate()
    signing.write_text(made.pem().reveal())
    signing.chmod(0o600)
    async with api(tmp_path / "data", service_account_signing_key_file=str(signing)) as server:
        await server.account("builder")

        assert kid(await server.token("builder")) == made.kid
        assert await jwks(server) == [made.kid]


async def test_given_files_become_objects_if_keys_are_stored(tmp_path: Path) -> None:
    """The signing file becomes Active, the others Verifying."""
    signing, other = keys.generate(), keys.generate("EdDSA")
    paths = [tmp_path / "signing.key", tmp_path / "other.key"]
    for path, private in zip(paths, (signing, other), strict=True):
        path.write_text(private.pem().reveal())
        path.chmod(0o600)
    given = {
        "service_account_signing_key_file": str(paths[0]),
        "service_account_key_file": [str(path) for path in paths],
        "token_keys": "stored",
    }
    async with api(tmp_path / "data", **given) as server:
        first, second = await key(server, "tokens-1"), await key(server, "tokens-2")

        assert (first["spec"]["state"], first["status"]["keyID"]) == ("Active", signing.kid)
        assert (second["spec"]["state"], second["status"]["keyID"]) == ("Verifying", other.kid)
        assert await jwks(server) == [signing.kid, other.kid]


# --- creation and rights ----------------------------------------------------------------------


async def test_a_published_key_is_in_the_jwks_and_does_not_sign(server: Api) -> None:
    """Verifiers can fetch it before the first token is signed with it."""
    made = await make(server, "tokens-2", algorithm="EdDSA")
    await server.account("builder")
    first = (await key(server, "tokens-1"))["status"]["keyID"]

    assert made["status"]["algorithm"] == "EdDSA"
    assert await jwks(server) == [first, made["status"]["keyID"]]
    assert kid(await server.token("builder")) == first


async def test_a_key_has_the_next_number(server: Api) -> None:
    """Another name is refused, and the next one is named."""
    body = {"metadata": {"name": "tokens-9"}, "spec": {"algorithm": "ES256"}}
    answer = await server.call("POST", KEYS, body)

    assert answer.status == 422
    assert 'the next key is \\"tokens-2\\"' in answer.text


async def test_the_server_decides_about_the_status(server: Api) -> None:
    """A key id or a time that somebody sends is ignored."""
    sent = {"keyID": "mine", "times": {"published": "2020-01-01T00:00:00Z"}, "source": "File"}
    body = {"metadata": {"name": "tokens-2"}, "spec": {"algorithm": "ES256"}, "status": sent}
    made = await server.make(KEYS, body)

    assert made["status"]["keyID"] != "mine"
    assert "published" not in made["status"].get("times", {})
    assert made["status"]["source"] == "Made"


async def test_a_dry_run_creates_nothing(server: Api) -> None:
    """Neither the object nor the Secret."""
    body = {"metadata": {"name": "tokens-2"}, "spec": {"algorithm": "ES256"}}
    answer = await server.call("POST", f"{KEYS}?dryRun=All", body)

    assert answer.status == 201
    assert (await server.call("GET", f"{KEYS}/tokens-2")).status == 404
    assert len(await private_keys(server)) == 1


async def private_keys(server: Api) -> list[str]:
    """The Secrets with keys that sign tokens."""
    await server.server.feed.fresh()
    platform = (await server.call("GET", f"{KEYS}/cluster-1")).json["metadata"]["uid"]
    entries = server.server.feed.of(Secret).scan(HOME)
    names = [one.meta.name for one in entries if one.meta.name.startswith("signing-key-")]
    return [name for name in names if not name.endswith(platform)]


async def grant(server: Api, user: str, *verbs: str, resource: str = "signingkeys") -> None:
    group = "" if resource == "secrets" else "identity.orch.io"
    name = f"{user}-{'-'.join(verbs)}-{resource}"
    rbac = "/apis/rbac.authorization.orch.io/v1"
    rule = {"verbs": list(verbs), "apiGroups": [group], "resources": [resource]}
    await server.make(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.orch.io", "name": user}
    body = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    await server.make(f"{rbac}/clusterrolebindings", body)


async def test_importing_takes_its_own_verb(server: Api) -> None:
    """A caller who brings a key can issue tokens of any account."""
    await grant(server, "alice", "create", "update", "patch")
    spec = {"publicKey": keys.generate().public.pem(), "cluster": "prod"}
    body = {"metadata": {"name": "clusters.prod-1"}, "spec": spec}
    await cluster(server)

    refused = await server.call("POST", KEYS, body, token=ALICE)
    await grant(server, "alice", "import")
    made = await server.call("POST", KEYS, body, token=ALICE)

    assert refused.status == 403
    assert "not permitted to import" in refused.text
    assert made.status == 201
    assert made.json["spec"]["state"] == "Verifying"


async def test_an_imported_secret_is_copied(server: Api) -> None:
    """The caller must be allowed to read it; afterwards it is not needed."""
    private = keys.generate("ES384")
    secrets = "/api/v1/namespaces/default/secrets"
    text = {"tls.key": private.pem().reveal()}
    await server.make(secrets, {"metadata": {"name": "mine"}, "stringData": text})
    spec = {"secretRef": {"namespace": "default", "name": "mine"}}
    body = {"metadata": {"name": "tokens-2"}, "spec": spec}
    await grant(server, "alice", "create", "import")

    refused = await server.call("POST", KEYS, body, token=ALICE)
    await grant(server, "alice", "get", resource="secrets")
    made = await server.call("POST", KEYS, body, token=ALICE)

    assert refused.status == 403
    assert "not permitted to get the Secret" in refused.text
    assert made.json["status"]["keyID"] == private.kid
    assert len(await private_keys(server)) == 2


@pytest.mark.parametrize(("state", "verb"), [("Active", "activate"), ("Retired", "retire")])
async def test_a_step_takes_its_own_verb(server: Api, state: str, verb: str) -> None:
    """The right to update a key does not imply it."""
    await grant(server, "alice", "update", "patch")
    await make(server, "tokens-2", algorithm="ES256")

    answer = await step(server, "tokens-2", state, token=ALICE)

    assert answer.status == 403
    assert f"not permitted to {verb} this key" in answer.text


# --- Published → Active -----------------------------------------------------------------------


async def test_conditions_of_an_activation(server: Api) -> None:
    """Each one first causes a rejection with its message; then the key signs."""
    made = await make(server, "tokens-2", algorithm="ES256")
    new = made["status"]["keyID"]
    await server.account("builder")

    async def reason() -> str:
        answer = await step(server, "tokens-2", "Active")
        assert answer.status == 422, answer.text
        return answer.text

    assert "no live server reports its keys yet" in await reason()
    await report(server, [])
    assert f"1 of 1 live server without it: {SERVER}" in await reason()
    await report(server, [new])
    await report(server, [], name="orch-server-two")
    assert "1 of 2 live servers without it: orch-server-two" in await reason()
    await report(server, [new], name="orch-server-two")
    assert "the leader has not recorded yet that every server has it" in await reason()
    await published(server, "tokens-2", datetime.now(UTC))
    assert "verifiers have it only after the publish time, from" in await reason()
    await published(server, "tokens-2", datetime.now(UTC) - timedelta(days=1, seconds=1))
    await stepped(server, "tokens-2", "Active")

    assert kid(await server.token("builder")) == new
    assert (await jwks(server))[0] == new


async def test_every_reason_is_listed(server: Api) -> None:
    """An operator sees all of them in one answer."""
    await make(server, "tokens-2", algorithm="ES256")
    await report(server, [])
    await published(server, "tokens-2", datetime.now(UTC))

    text = (await step(server, "tokens-2", "Active")).text

    assert "without it" in text
    assert "publish time" in text


async def test_a_dry_run_of_a_step_changes_nothing(server: Api) -> None:
    """It answers as the step would; the controller reads its conditions from it."""
    await successor(server)

    assert (await step(server, "tokens-2", "Active", "?dryRun=All")).status == 200
    assert (await key(server, "tokens-2"))["spec"]["state"] == "Published"


async def test_the_last_activation_signs_whatever_the_clocks_say(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is later than that of every other key."""
    await successor(server)
    later(server, monkeypatch, hours=-1)
    await stepped(server, "tokens-2", "Active")
    first, second = await key(server, "tokens-1"), await key(server, "tokens-2")

    assert second["status"]["times"]["active"] > first["status"]["times"]["active"]


async def test_tokens_of_both_keys_are_accepted_through_a_rotation(server: Api) -> None:
    """The old key verifies until it is Retired, and cached verifications stay valid."""
    await server.account("builder")
    old = await server.token("builder")
    assert await is_accepted(server, old)
    await successor(server)
    await stepped(server, "tokens-2", "Active")
    new = await server.token("builder")

    assert kid(old) != kid(new)
    assert await is_accepted(server, old)
    assert await is_accepted(server, new)
    await stepped(server, "tokens-1", "Verifying")
    assert await is_accepted(server, old)


async def test_the_signer_does_not_become_verifying(server: Api) -> None:
    """Another key has to sign first."""
    answer = await step(server, "tokens-1", "Verifying")

    assert answer.status == 422
    assert "it signs: activate another key first" in answer.text


async def test_a_key_may_return_while_its_private_key_is_there(server: Api) -> None:
    """The way back from a rotation that went wrong elsewhere."""
    made = await successor(server)
    first = await key(server, "tokens-1")
    await stepped(server, "tokens-2", "Active")
    await stepped(server, "tokens-1", "Verifying")
    await report(server, [made["status"]["keyID"], first["status"]["keyID"]])
    await stepped(server, "tokens-1", "Active")
    await server.account("builder")

    assert kid(await server.token("builder")) == first["status"]["keyID"]
    await stepped(server, "tokens-2", "Verifying")
    secret = f"/api/v1/namespaces/{HOME}/secrets/signing-key-{made['metadata']['uid']}"
    await server.call("DELETE", secret)
    answer = await step(server, "tokens-2", "Active")
    assert answer.status == 422
    assert "its private key was deleted" in answer.text


# --- Verifying → Retired ----------------------------------------------------------------------


async def rotated(server: Api) -> str:
    """tokens-2 signs, tokens-1 verifies; return the id of tokens-1."""
    made = await successor(server)
    await stepped(server, "tokens-2", "Active")
    await stepped(server, "tokens-1", "Verifying")
    await report(server, [made["status"]["keyID"]], made["status"]["keyID"])
    return str((await key(server, "tokens-1"))["status"]["keyID"])


async def test_conditions_of_a_retirement(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one first causes a rejection with its message; then tokens of the key are refused."""
    await server.account("builder")
    await server.account("other")
    short = await server.token("other", expirationSeconds=3600)
    year = 365 * 86_400
    await server.token("builder", expirationSeconds=year)
    await server.token("builder", expirationSeconds=year)
    secrets = "/api/v1/namespaces/default/secrets"
    old = await rotated(server)

    async def reasons() -> str:
        answer = await step(server, "tokens-1", "Retired")
        assert answer.status == 422, answer.text
        return answer.text

    await report(server, [old], old)
    text = await reasons()
    assert f"servers sign with it: {SERVER}" in text
    assert "tokens that it signed may be live until" in text
    assert "1 token of 1 holder depends on tokens-1, the last until" in text
    assert "longest ServiceAccount default/builder (1)" in text
    await server.server.context.port(LongTokens).write()
    assert "2 tokens of 1 holder" in await reasons()
    await report(server, [old], "another")
    later(server, monkeypatch, hours=25)
    await report(server, [old], "another")
    text = await reasons()
    assert "servers sign with it" not in text
    assert "tokens that it signed may be live" not in text
    assert "2 tokens of 1 holder" in text
    await server.call("DELETE", "/api/v1/namespaces/default/serviceaccounts/builder")
    token = f"{header_of(old)}.e30.c2ln"
    marks = {"orch.io/service-account.name": "other"}
    body = {
        "metadata": {"name": "legacy", "annotations": marks},
        "type": "orch.io/service-account-token",
        "stringData": {"token": token},
    }
    await server.make(secrets, body)
    assert "1 Secret holds its tokens: default/legacy" in await reasons()
    await server.call("DELETE", f"{secrets}/legacy")
    await stepped(server, "tokens-1", "Retired")

    assert old not in await jwks(server)
    body = {"spec": {"token": short, "audiences": [ISSUER]}}
    review = (await server.call("POST", REVIEWS, body)).json["status"]
    assert "no keys found" in review["error"]


def header_of(kid: str) -> str:
    header = json.dumps({"alg": "ES256", "kid": kid}, separators=(",", ":")).encode()
    return keys.b64url_encode(header).decode()


async def test_a_key_of_a_cluster_waits_for_tokens_nobody_counted(server: Api) -> None:
    """Its tokens were issued elsewhere: a year has to pass."""
    await cluster(server)
    public = keys.generate().public.pem()
    made = await make(server, "clusters.prod-1", publicKey=public, cluster="prod")
    answer = await step(server, "clusters.prod-1", "Retired")

    until = made["status"]["dependents"]["unknownUntil"]
    assert answer.status == 422
    assert f"tokens from before its import may be live until {until}" in answer.text


async def test_the_status_has_the_dependents_as_they_are(server: Api) -> None:
    """The server counts, and ignores the numbers that a client sends."""
    await server.account("builder")
    await server.token("builder", expirationSeconds=40 * 86_400)
    body = json.dumps({"status": {"dependents": {"live": 77, "holders": 1}}}).encode()
    answer = await server.call("PATCH", f"{KEYS}/tokens-1/status", body, headers=MERGE)

    assert answer.json["status"]["dependents"]["live"] == 1
    assert answer.json["status"]["dependents"]["longest"][0]["holder"] == (
        "ServiceAccount default/builder"
    )


async def test_a_short_token_leaves_no_row(server: Api) -> None:
    """The wait before Retired covers it."""
    await server.account("builder")
    await server.token("builder", expirationSeconds=3600)

    assert (await server.server.store.read(_rows(), limit=1)).records == []


def _rows() -> Any:
    from orchid.kernel.store.interface import Span

    return Span.prefix("~tokens/")


# --- deletion ---------------------------------------------------------------------------------


async def test_only_keys_that_nobody_needs_are_deleted(server: Api) -> None:
    """An Active or Verifying key is not; a Published one is, unless it signs."""
    await rotated(server)
    await make(server, "tokens-3", algorithm="ES256")

    for name in ("tokens-1", "tokens-2"):
        answer = await server.call("DELETE", f"{KEYS}/{name}")
        assert answer.status == 403, name
        assert "only a Retired key is deleted" in answer.text
    assert (await server.call("DELETE", f"{KEYS}/tokens-3")).status == 200


# --- revocation -------------------------------------------------------------------------------


async def revoke(server: Api, name: str, token: str = ADMIN) -> Answer:
    spec = {"key": {"name": name}, "reason": "keyCompromise"}
    body = {"metadata": {"name": f"lost-{name}"}, "spec": spec}
    return await server.call("POST", REVOCATIONS, body, token=token)


async def test_a_revoked_key_is_refused_and_the_successor_signs(server: Api) -> None:
    """From the next request on; a Published key signs although nobody has activated it."""
    await server.account("builder")
    old = await server.token("builder")
    assert await is_accepted(server, old)
    made = await make(server, "tokens-2", algorithm="ES256")
    answer = await revoke(server, "tokens-1")
    new = await server.token("builder")

    assert answer.status == 201
    assert answer.json["spec"]["key"]["keyID"] == kid(old)
    assert not await is_accepted(server, old)
    assert kid(new) == made["status"]["keyID"]
    assert await is_accepted(server, new)
    assert await jwks(server) == [kid(new)]
    await stepped(server, "tokens-1", "Retired")
    await stepped(server, "tokens-2", "Active")


async def test_keys_are_selected_again_only_if_a_key_is_revoked(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To hash every key costs milliseconds, which each revocation of anything else did."""
    selections = []
    selecting = token_keys.select

    def select(*given: Any) -> Any:
        selections.append(given)
        return selecting(*given)

    await server.account("builder")
    token = await server.token("builder")
    await make(server, "tokens-2", algorithm="ES256")
    monkeypatch.setattr(token_keys, "select", select)
    spec = {"token": {"jti": "another", "namespace": "default", "name": "builder"}}
    await server.make(REVOCATIONS, {"metadata": {"name": "other"}, "spec": spec})
    accepted = await is_accepted(server, token)
    before = len(selections)
    await revoke(server, "tokens-1")
    refused = not await is_accepted(server, token)

    assert (accepted, before) == (True, 0)
    assert refused
    assert selections


async def test_a_caller_is_refused_with_a_token_of_a_revoked_key(server: Api) -> None:
    """On the same connection, with headers that the server has cached."""
    await server.account("builder")
    token = await server.token("builder")
    await make(server, "tokens-2", algorithm="ES256")
    before = await server.call("GET", "/version", token=token)
    await revoke(server, "tokens-1")
    after = await server.call("GET", "/version", token=token)

    assert (before.status, after.status) == (200, 401)


async def test_revoking_a_key_takes_its_own_verb(server: Api) -> None:
    """By name; the role for key operators does not have it."""
    await grant(server, "alice", "create", resource="credentialrevocations")
    await grant(server, "alice", "update", "activate", "retire")
    refused = await revoke(server, "tokens-1", ALICE)
    await grant(server, "alice", "revoke")
    await make(server, "tokens-2", algorithm="ES256")

    assert refused.status == 403
    assert (await revoke(server, "tokens-1", ALICE)).status == 201


async def test_the_revocation_of_a_key_is_for_good(server: Api) -> None:
    """It cannot be a hold, is not repeated, and is not deleted while the key could count."""
    await make(server, "tokens-2", algorithm="ES256")
    spec = {"key": {"name": "tokens-1"}, "reason": "certificateHold"}
    hold = await server.call("POST", REVOCATIONS, {"metadata": {"name": "h"}, "spec": spec})
    missing = await revoke(server, "tokens-9")
    await revoke(server, "tokens-1")
    deleted = await server.call("DELETE", f"{REVOCATIONS}/lost-tokens-1")
    again = await server.call(
        "POST",
        REVOCATIONS,
        {
            "metadata": {"name": "x"},
            "spec": {"key": {"name": "tokens-1"}, "reason": "keyCompromise"},
        },
    )

    assert (hold.status, missing.status, deleted.status, again.status) == (422, 422, 403, 409)


# --- published documents ----------------------------------------------------------------------


async def test_a_current_copy_of_the_keys_is_not_sent_again(server: Api) -> None:
    """An entity tag that changes with the keys, and the max-age of the setting."""
    first = await server.call("GET", JWKS)
    tag = first.header("etag")
    assert tag is not None
    same = await server.call("GET", JWKS, headers={"if-none-match": tag})
    await make(server, "tokens-2", algorithm="ES256")
    other = await server.call("GET", JWKS, headers={"if-none-match": tag})

    assert first.header("cache-control") == "public, max-age=3600"
    assert (same.status, same.body) == (304, b"")
    assert other.status == 200
    assert other.header("etag") != tag


async def test_the_max_age_is_a_setting(tmp_path: Path) -> None:
    """Both documents have it."""
    async with api(tmp_path / "data", service_account_jwks_max_age="5m") as server:
        for path in (JWKS, "/.well-known/openid-configuration"):
            answer = await server.call("GET", path)
            assert answer.header("cache-control") == "public, max-age=300"


# --- private keys -----------------------------------------------------------------------------


async def test_a_private_key_that_does_not_match_is_not_loaded(server: Api) -> None:
    """A writer of Secrets in the system namespace cannot make the server sign with another key."""
    made = await make(server, "tokens-2", algorithm="ES256")
    secret = f"/api/v1/namespaces/{HOME}/secrets/signing-key-{made['metadata']['uid']}"
    body = json.dumps({"stringData": {"tls.key": keys.generate().pem().reveal()}}).encode()
    await server.call("PATCH", secret, body, headers=MERGE)
    await server.server.feed.fresh()
    stored = server.server.context.port(FollowedKeys).keys
    fresh = type(stored)(  # as after a restart
        server.server.feed,
        server.server.context.port(Revocations),
        ISSUER,
        server.server.settings.naming,
        lambda _keys: None,
        publish_seconds=1.0,
    )

    assert made["status"]["keyID"] in stored.usable
    assert made["status"]["keyID"] not in fresh.usable
    assert fresh.signs == stored.signs


async def test_a_lost_secret_leaves_the_key_in_memory(server: Api) -> None:
    """The process goes on signing with it."""
    found = await key(server, "tokens-1")
    secret = f"/api/v1/namespaces/{HOME}/secrets/signing-key-{found['metadata']['uid']}"
    await server.account("builder")
    await server.call("DELETE", secret)
    await server.server.feed.fresh()

    assert kid(await server.token("builder")) == found["status"]["keyID"]


# --- metrics ----------------------------------------------------------------------------------


async def test_metrics_show_the_keys_and_their_use(server: Api) -> None:
    """An operator sees which key is still in use, and until when."""
    await server.account("builder")
    token = await server.token("builder", expirationSeconds=40 * 86_400)
    await server.call("GET", "/version", token=token)
    body = json.dumps({"status": {}}).encode()
    await server.call("PATCH", f"{KEYS}/tokens-1/status", body, headers=MERGE)
    page = (await server.call("GET", "/metrics")).text

    assert 'orchid_signing_key_info{key="tokens-1",state="Active"} 1' in page
    assert 'orchid_key_dependents{key="tokens-1"} 1' in page
    assert 'orchid_token_verifications_total{key="tokens-1"} 1' in page
    assert 'orchid_key_step_overdue_seconds{key="tokens-1"} 0' in page
    assert 'orchid_key_dependents_end_seconds{key="tokens-1"}' in page
    assert 'orchid_signing_key_state_seconds{key="tokens-1"}' in page


# --- keys of files ----------------------------------------------------------------------------


async def test_keys_of_files_are_shown_and_cannot_be_changed(tmp_path: Path) -> None:
    """The files decide: every write is refused, and an object goes when no server has its key."""
    first, second = tmp_path / "first.key", tmp_path / "second.key"
    for path in (first, second):
        path.write_text(keys.generate().pem().reveal())
        path.chmod(0o600)
    given = {
        "service_account_signing_key_file": str(first),
        "service_account_key_file": [str(first), str(second)],
    }
    async with api(tmp_path / "data", **given) as server:
        shown = server.server.context.optional(FileKeyObjects)
        assert shown is not None
        await shown.update()
        await shown.update()
        found = {one["metadata"]["name"]: one for one in (await listed(server))}
        changed = await step(server, "tokens-2", "Retired")
        revoked = await revoke(server, "tokens-1")
        await report(server, [one["status"]["keyID"] for one in found.values()])
        kept = await server.call("DELETE", f"{KEYS}/tokens-2")
        await report(server, [])
        gone = await server.call("DELETE", f"{KEYS}/tokens-2")

        states = {name: one["spec"]["state"] for name, one in found.items()}
        assert states == {"tokens-1": "Active", "tokens-2": "Verifying"}
        assert {one["status"]["source"] for one in found.values()} == {"File"}
        (condition,) = found["tokens-2"]["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "Ready", "True", "File",
        )  # fmt: skip
        assert (changed.status, revoked.status, kept.status, gone.status) == (422, 422, 403, 200)
        assert "change the files" in changed.text


async def listed(server: Api) -> list[Any]:
    """The keys that sign tokens."""
    await server.server.feed.fresh()
    found = (await server.call("GET", KEYS)).json["items"]
    return [one for one in found if not one["spec"].get("authority")]


async def test_an_object_of_a_file_becomes_the_stored_key(tmp_path: Path) -> None:
    """With `--token-keys stored` the key that was shown is imported under its name."""
    store, signing = MemoryStore(), tmp_path / "mine.key"
    made = keys.generate()
    signing.write_text(made.pem().reveal())
    signing.chmod(0o600)
    given = {"service_account_signing_key_file": str(signing)}
    async with api(tmp_path / "data", store=store, **given) as server:
        shown = server.server.context.optional(FileKeyObjects)
        assert shown is not None
        await shown.update()
        records = (await store.read(_all(), limit=10_000)).records
    store = MemoryStore()
    for record in records:
        await store.commit([_change(record.key, record.value)])
    async with api(tmp_path / "data", store=store, token_keys="stored", **given) as server:
        (found,) = await listed(server)

        assert found["metadata"]["name"] == "tokens-1"
        assert found["status"]["source"] == "Imported"
        assert await jwks(server) == [made.kid]


# --- keys of authorities ------------------------------------------------------------------------


async def changed(server: Api, target: str, body: Any) -> Answer:
    return await server.call("PATCH", target, json.dumps(body).encode(), headers=MERGE)


@pytest.mark.parametrize("path", ["cluster-1", "cluster-1/status"])
async def test_a_key_of_an_authority_keeps_its_owner(server: Api, path: str) -> None:
    """Without it the key would count as left over by a deleted authority, and could be deleted."""
    before = await key(server, "cluster-1")
    for owners in ([], [{**before["metadata"]["ownerReferences"][0], "uid": "another"}]):
        answer = await changed(server, f"{KEYS}/{path}", {"metadata": {"ownerReferences": owners}})
        assert answer.status == 422
        assert "its authority owns the key" in answer.text
    deleted = await server.call("DELETE", f"{KEYS}/cluster-1")
    labelled = await changed(server, f"{KEYS}/{path}", {"metadata": {"labels": {"a": "b"}}})

    assert deleted.status == 403
    assert labelled.status == 200


async def test_a_certificate_of_another_key_is_no_renewal(server: Api) -> None:
    """The key identifier alone proves nothing: the issuer of a certificate chooses it."""
    before = await key(server, "cluster-1")
    own = x509.load_pem_x509_certificate(before["status"]["certificate"].encode())
    other, name = ec.generate_private_key(ec.SECP256R1()), own.subject
    forged = (
        x509.CertificateBuilder(name, name, other.public_key(), 7)
        .not_valid_before(own.not_valid_before_utc)
        .not_valid_after(own.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            own.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value, critical=False
        )
        .sign(other, hashes.SHA256())
        .public_bytes(Encoding.PEM)
        .decode()
    )
    answer = await changed(server, f"{KEYS}/cluster-1/status", {"status": {"certificate": forged}})

    assert answer.status == 422
    assert "must be for the same key" in answer.text
