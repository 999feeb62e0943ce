"""A public key that was imported belongs to a cluster: it says nothing about Orchid's accounts.

The private key is with the API server of the cluster, or with a thief. It signed the claims of an
account of Orchid, with Orchid's own issuer, and every path accepted them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchid.features.token_keys.files.file_keys import FileKeyObjects
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import IMPORTED, VERIFYING, SigningKey, status_of
from orchid.kernel.credentials import keys
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.signing_key_status import SigningKeyTimes
from orchid.kernel.wire.struct import replace
from tests.api.clusters import CLUSTERS, REVOCATIONS, cluster
from tests.api.clusters import ISSUER as ISSUER_OF_CLUSTER
from tests.api.test_file_authorities import AUTHORITIES
from tests.api.test_signing_keys import KEYS, MERGE, is_accepted, jwks, key, make, step
from tests.api.world import Answer, Api, api
from tests.e2e.outside_issuer import OutsideIssuer
from tests.security.exchanging import VAULT, exchange, exchanging, make_policy
from tests.security.left_behind import put
from tests.security.test_introspection import introspect
from tests.security.test_past_keys import copied, key_file
from tests.security.test_revocations import WHO
from tests.unit.features.beside import beside


def signed_again(token: str, by: keys.TokenKey, **claims: Any) -> str:
    """The claims of a token, some replaced, with the signature of another key."""
    body = json.loads(keys.b64url_decode(token.split(".")[1].encode()))
    head = {"alg": by.algorithm, "kid": by.kid}
    parts = [keys.b64url_encode(json.dumps(part).encode()) for part in (head, body | claims)]
    text = b".".join(parts)
    return b".".join((text, keys.b64url_encode(by.sign(text)))).decode()


async def imported(server: Api, public: str, name: str = "clusters.prod-1", **spec: Any) -> Answer:
    body = {"metadata": {"name": name}, "spec": {"publicKey": public, **spec}}
    answer = await server.call("POST", KEYS, body)
    await server.server.feed.fresh()
    return answer


@pytest.mark.parametrize("is_bound", [True, False], ids=["of a cluster", "of none"])
async def test_an_imported_key_verifies_no_token_of_an_account(
    server: Api, *, is_bound: bool
) -> None:
    """Authentication, reviews, introspection and the JWKS document know Orchid's own keys only."""
    foreign = keys.generate()
    await server.account("builder")
    token = await server.token("builder")
    forged = signed_again(token, foreign)
    await cluster(server)

    if is_bound:
        made = await imported(server, foreign.public.pem(), cluster="prod")
    else:
        made = await imported(server, foreign.public.pem(), "tokens-2")

    assert await is_accepted(server, token)
    assert not await is_accepted(server, forged)
    assert (await server.call("POST", WHO, {}, token=forged)).status == 401
    assert (await introspect(server, forged)).json == {"active": False}
    assert foreign.kid not in await jwks(server)
    assert made.status == (201 if is_bound else 422), made.text


@pytest.fixture
def outside() -> Iterator[OutsideIssuer]:
    with OutsideIssuer() as made:
        yield made


@pytest.mark.parametrize("claimed", ["cluster", "Orchid"])
async def test_an_imported_key_is_no_key_of_an_outside_issuer(
    server_files: Path, tmp_path: Path, outside: OutsideIssuer, claimed: str
) -> None:
    """Nor does the token of a cluster, or one of Orchid, become another by an exchange."""
    foreign = keys.generate()
    async with exchanging(server_files, outside, tmp_path) as server:
        await cluster(server, issuer=outside.url if claimed == "cluster" else ISSUER_OF_CLUSTER)
        await make_policy(server, outside)
        assert (await imported(server, foreign.public.pem(), cluster="prod")).status == 201
        job = outside.github()
        claims = {} if claimed == "cluster" else {"iss": "https://orchid.test"}
        forged = signed_again(job, foreign, **claims)

        allowed = await exchange(server, job, audiences=[VAULT])
        refused = await exchange(server, forged, audiences=[VAULT])

    assert (allowed.status, refused.status) == (200, 400)


@pytest.mark.parametrize("where", ["stored", "files"])
async def test_no_cluster_has_a_key_of_orchid_or_of_another_cluster(
    tmp_path: Path, where: str
) -> None:
    """The answer names the key that is there."""
    async with api(tmp_path / "data", token_keys=where) as server:
        if (shown := server.server.context.optional(FileKeyObjects)) is not None:
            await shown.update()
            await server.server.feed.fresh()
        for name in ("prod", "test"):
            await cluster(server, name)
        own = (await key(server, "tokens-1"))["status"]["publicKey"]
        foreign = keys.generate().public.pem()
        allowed = await imported(server, foreign, cluster="prod")
        refused = [
            await imported(server, own, "clusters.prod-2", cluster="prod"),
            await imported(server, foreign, "clusters.prod-2", cluster="prod"),
            await imported(server, foreign, "clusters.test-1", cluster="test"),
        ]

    assert allowed.status == 201
    assert [one.status for one in refused] == [422] * 3
    assert "tokens-1 has the same key" in refused[0].text
    assert all("clusters.prod-1 has the same key" in one.text for one in refused[1:])


async def test_a_key_that_a_cluster_claimed_first_is_orchids_all_the_same(tmp_path: Path) -> None:
    """The files of the servers decide which keys are theirs."""
    store, own = MemoryStore(), keys.generate()
    async with api(tmp_path / "data", store=store) as server:
        await cluster(server)
        assert (await imported(server, own.public.pem(), cluster="prod")).status == 201
        saved = await copied(store)
    async with api(tmp_path / "data", store=saved, **key_file(tmp_path / "own.key", own)) as server:
        accepted = await jwks(server)

    assert own.kid in accepted


async def test_an_imported_key_changes_nothing_for_token_keys(server: Api) -> None:
    """Their numbers go on, whatever number the key of a cluster has."""
    await cluster(server)
    await imported(server, keys.generate().public.pem(), cluster="prod")
    await imported(server, keys.generate().public.pem(), "clusters.prod-2", cluster="prod")

    made = await make(server, "tokens-2", algorithm="ES256")
    refused = await step(server, "clusters.prod-1", "Active")

    assert made["spec"]["state"] == "Published"
    assert refused.status == 422
    assert "cannot sign" in refused.text


async def test_an_imported_key_ends_with_its_cluster(server: Api) -> None:
    """Another Cluster of that name does not get it."""
    await cluster(server)
    await imported(server, keys.generate().public.pem(), cluster="prod")
    mark = f"{KEYS}/clusters.prod-1"
    early = await server.call("DELETE", mark)
    owners = json.dumps({"metadata": {"ownerReferences": []}}).encode()
    taken = await server.call("PATCH", mark, owners, headers=MERGE)

    await server.call("DELETE", f"{CLUSTERS}/prod")
    await cluster(server)
    left = (await key(server, "clusters.prod-1"))["metadata"]["ownerReferences"]
    there = (await server.call("GET", f"{CLUSTERS}/prod")).json["metadata"]["uid"]
    gone = await server.call("DELETE", mark)

    assert (early.status, taken.status, gone.status) == (403, 422, 200)
    assert [one["uid"] for one in left] != [there]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"algorithm": "ES256", "cluster": "prod"}, "only a public key is of a cluster"),
        ({"secretRef": {"namespace": "a", "name": "b"}, "cluster": "prod"}, "only a public key"),
        ({"publicKey": keys.generate().public.pem(), "cluster": "other"}, "Not found"),
        ({"publicKey": keys.generate().public.pem()}, "--service-account-key-file"),
    ],
)
async def test_only_a_public_key_is_of_a_cluster_that_exists(
    server: Api, spec: dict[str, Any], text: str
) -> None:
    """Orchid never signs for a cluster."""
    await cluster(server)
    of = spec.get("cluster")
    name = f"clusters.{of}-1" if of else "tokens-2"

    answer = await server.call("POST", KEYS, {"metadata": {"name": name}, "spec": spec})

    assert answer.status == 422
    assert text in answer.text


async def test_no_authority_has_the_name_of_a_clusters_keys(server: Api) -> None:
    """Its keys would be named like those of the cluster."""
    spec = {"signerName": "example.com/web", "key": {"algorithm": "ECDSA-P256"}}
    body = {"metadata": {"name": "clusters.prod"}, "spec": {**spec, "subject": {"commonName": "W"}}}

    answer = await server.call("POST", AUTHORITIES, body)

    assert answer.status == 422
    assert "reserved" in answer.text


async def test_a_public_key_that_an_earlier_version_stored_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no cluster, and verifies tokens of every account: log and condition say what to do.

    After the advice nothing is accepted that its holder signs.
    """
    foreign = keys.generate()
    async with beside(tmp_path / "data") as world:
        server = Api(world.server)
        await server.account("builder")
        forged = signed_again(await server.token("builder"), foreign)
        times = SigningKeyTimes(verifying=world.clock.now().replace(microsecond=0))
        status = replace(status_of(foreign.public, IMPORTED), times=times)
        spec = SigningKeySpec(public_key=foreign.public.pem(), state=VERIFYING)
        meta = ObjectMeta(name="tokens-7", uid="7", creation_timestamp=times.verifying)
        await put(world, SigningKey(metadata=meta, spec=spec, status=status))
        accepted = await is_accepted(server, forged)

        async with world.running("token-key-rotation"):
            named = await world.until_like(
                SigningKey, "tokens-7", "", lambda one: bool(one.status.conditions)
            )
        named_key = {"key": {"name": "tokens-7"}, "reason": "keyCompromise"}
        body = {"metadata": {"name": "foreign"}, "spec": named_key}
        revoked = await server.call("POST", REVOCATIONS, body)
        still = await is_accepted(server, forged)

    [ready] = [one for one in named.status.conditions if one.type == "Ready"]
    assert ready.reason == "PublicKeyOnly"
    assert ready.message.endswith("orchid revoke key/tokens-7")
    assert [
        vars(one)["key"] for one in caplog.records if one.message == "tokens.public_key_only"
    ] == ["tokens-7"]
    assert revoked.status == 201, revoked.text
    assert (accepted, still) == (True, False)
