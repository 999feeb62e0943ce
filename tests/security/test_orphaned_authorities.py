"""An authority that is deleted leaves nothing for the next one of its name.

Alice may create and delete authorities for a signer of her own, and knows the private key in her
Secret. She deletes her authority `web` and lets what it owned stay. Bob creates an authority of
that name for his signer: it was Ready with the certificate of Alice, and signed with her key, and
/trust/web.pem had her root. The same with an intermediate, when she created an authority with the
name of its deleted parent.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.conditions import is_true
from orchid.kernel.wire.errors import Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.api.world import Api
from tests.security.left_behind import drop, put
from tests.unit.features.authorities.test_authority_rotation import ROTATION, new_key
from tests.unit.features.authorities.test_keep_authorities import (
    DAY,
    KEEPER,
    SIGNING,
    issued,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside, beside
from tests.unit.features.trust_bundles.test_publish_bundles import PUBLISHER, edition

GARBAGE, LISTS = "garbagecollector", "revocation-list-publisher"
RBAC = "/apis/rbac.authorization.orch.io/v1"
GROUP = "rbac.authorization.orch.io"
OF_ALICE, OF_BOB = "alice.example.com/web", "bob.example.com/web"
MAY = [
    (["create", "delete", "get", "patch"], ["identity.orch.io"], ["certificateauthorities"]),
    (["sign", "attest"], ["certificates.orch.io"], ["signers"]),
    (["create", "get"], [""], ["secrets"]),
]


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        rules = [dict(zip(("verbs", "apiGroups", "resources"), rule, strict=True)) for rule in MAY]
        server = Api(made.server)
        await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": "own"}, "rules": rules})
        subjects = [{"kind": "User", "apiGroup": GROUP, "name": name} for name in ("alice", "bob")]
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "own"}
        binding = {"metadata": {"name": "own"}, "subjects": subjects, "roleRef": role}
        await server.make(f"{RBAC}/clusterrolebindings", binding)
        await made.namespace("alice")
        yield made


def client(world: Beside, name: str) -> Client:
    return world.server.clients.of_user(UserInfo(username=name, groups=("system:authenticated",)))


async def of_alice(world: Beside) -> Authority:
    """The authority `web` of Alice, with a key that she has."""
    pair = Authority.create("Alice", now=world.clock.now(), lifetime=30 * DAY)
    alice = client(world, "alice")
    data = {"tls.crt": pair.chain_pem, "tls.key": pair.key_pem().reveal().encode()}
    await alice.create(Secret(metadata=ObjectMeta(name="ca", namespace="alice"), data=data))
    reference = {"namespace": "alice", "name": "ca"}
    await alice.create(authority("web", OF_ALICE, key=None, subject=None, secretRef=reference))
    return pair


def authority(name: str, signer: str, **spec: Any) -> CertificateAuthority:
    full = {"signerName": signer, "key": {}, "subject": {"commonName": "Bob"}, **spec}
    plain = {key: value for key, value in full.items() if value is not None}
    return convert({"metadata": {"name": name}, "spec": plain}, CertificateAuthority)


async def orphan(world: Beside, *, with_owner: bool = False) -> list[Any]:
    """Remove the authority of Alice from the store, and leave what it owned.

    `with_owner`: with the references, as while the garbage collector is busy.
    """
    left = [await world.admin.get(SigningKey, "web-1"), await edition(world, 1, "web")]
    await drop(world, await world.admin.get(CertificateAuthority, "web"))
    if not with_owner:
        left = [await put(world, one.with_meta(owner_references=())) for one in left]
    return left


async def succeeded(world: Beside) -> tuple[Authority, CertificateAuthority]:
    """The authority of Bob beside all that the one of Alice left, as after an upgrade."""
    async with world.running(KEEPER, PUBLISHER):
        pair = await of_alice(world)
        await until_ready(world)
        left = await orphan(world)
    for one in left:
        await drop(world, one)
    made = await client(world, "bob").create(authority("web", OF_BOB))
    for one in left:
        await put(world, one)
    return pair, made


@pytest.mark.parametrize("form", ["policy", "deprecated", "finalizer"])
async def test_nothing_of_a_deleted_authority_stays(world: Beside, form: str) -> None:
    """Orphan is refused in each of its forms, or the finalizer of that name does not count."""
    async with world.running(KEEPER, PUBLISHER, GARBAGE):
        pair = await of_alice(world)
        await until_ready(world)
        await edition(world, 1, "web")
        where = "/apis/identity.orch.io/v1alpha1/certificateauthorities/web"
        options: dict[str, Any] = {}
        if form == "policy":
            options = {"propagationPolicy": "Orphan"}
        elif form == "deprecated":
            options = {"orphanDependents": True}
        else:
            found = await world.admin.get(CertificateAuthority, "web")
            await world.admin.update(found.with_meta(finalizers=("orphan",)))
        answer = await Api(world.server).call("DELETE", where, options)

        assert answer.status == (200 if form == "finalizer" else 422), answer.text
        if form != "finalizer":
            assert "what it owns is deleted with it" in answer.json["message"]
            assert (await until_ready(world)).status.certificate == pair.chain_pem.decode()
            await world.admin.delete(CertificateAuthority, "web")
        await world.until_gone(SigningKey, "web-1")
        await world.until_gone(PublishedBundle, "web")


@pytest.mark.parametrize("with_owner", [False, True], ids=["without owner", "of another uid"])
async def test_a_name_with_keys_or_a_bundle_of_another_is_refused(
    world: Beside, *, with_owner: bool
) -> None:
    """The message names what is there; when it is deleted the name can be used."""
    async with world.running(KEEPER, PUBLISHER):
        await of_alice(world)
        await until_ready(world)
        key, bundle = await orphan(world, with_owner=with_owner)
        bob = client(world, "bob")

        with pytest.raises(Invalid, match="left keys, delete them: web-1"):
            await bob.create(authority("web", OF_BOB))
        await world.admin.delete(SigningKey, key.name)
        with pytest.raises(Invalid, match="a PublishedBundle has this name; delete it first"):
            await bob.create(authority("web", OF_BOB))
        await world.admin.delete(PublishedBundle, bundle.name)
        made = await bob.create(authority("web", OF_BOB))
        ready = await until_ready(world)
        own = await world.until_like(
            PublishedBundle, "web", condition=lambda one: one.metadata.uid != bundle.metadata.uid
        )

    assert "CN=Bob" in subject_of(ready)
    assert belongs_to(own, made)


def subject_of(found: CertificateAuthority) -> str:
    certificate = x509.load_pem_x509_certificate(found.status.certificate.encode())
    return certificate.subject.rfc4514_string()


async def test_what_is_left_in_the_store_counts_for_nothing(world: Beside) -> None:
    """Also if both are there, as after an upgrade: no root, no list and no signature of Alice."""
    pair, made = await succeeded(world)
    async with world.running(KEEPER, PUBLISHER, SIGNING, ROTATION, LISTS):
        ready = await until_ready(world)
        (leaf,) = await issued(world, signer=OF_BOB)
        taken = await until_not_ready(world, "BundleTaken")

        assert is_true(taken.status.conditions, "Ready")
        assert [one.name for one in ready.status.keys] == ["web-2"]
        assert "CN=Bob" in subject_of(ready)
        assert "CN=Bob" in leaf.issuer.rfc4514_string()
        assert not belongs_to(await world.admin.get(SigningKey, "web-1"), made)
        assert world.server.context.port(AuthorityKeyIndex).lists("web") == ["web"]
        (issuer,) = world.server.context.port(AuthorityKeyIndex).issuers("web", set())
        assert issuer.public_key() != pair.certificate.public_key()

        await world.admin.delete(PublishedBundle, "web")
        own = await edition(world, 1, "web")
        assert belongs_to(own, made)
        await world.until_like(
            CertificateAuthority,
            "web",
            condition=lambda one: not is_true(one.status.conditions, "BundleTaken"),
        )


async def test_a_key_does_not_change_its_authority(world: Beside) -> None:
    """A user who may change and delete keys does not give the left key to the next authority."""
    await succeeded(world)
    async with world.running(KEEPER):
        await until_ready(world)
    left, own = [await world.admin.get(SigningKey, name) for name in ("web-1", "web-2")]

    with pytest.raises(Invalid, match="a key never changes its authority"):
        await world.admin.update(left.with_meta(owner_references=own.metadata.owner_references))
    with pytest.raises(Invalid, match="its authority owns the key"):
        await world.admin.update(own.with_meta(owner_references=()))
    await world.admin.delete(SigningKey, "web-1")  # a left key is deleted in any state


async def test_nobody_creates_the_bundle_of_an_authority_but_the_server(world: Beside) -> None:
    """Before the controller does: clients of /trust/web.pem would trust the roots of Alice."""
    made = await client(world, "bob").create(authority("web", OF_BOB))
    foreign = {"metadata": {"name": "web"}, "spec": {"sources": [{"signerName": OF_ALICE}]}}
    plain = {"metadata": {"name": "web"}, "spec": {"sources": [{"signerName": OF_BOB}]}}
    platform = {"metadata": {"name": "cluster"}, "spec": foreign["spec"]}

    for body in (foreign, plain, platform):
        with pytest.raises(Invalid, match="an authority has this name"):
            await world.admin.create(convert(body, PublishedBundle))
    async with world.running(PUBLISHER, KEEPER):
        own = await edition(world, 1, "web")
    assert belongs_to(own, made)


# -- the name of a parent ------------------------------------------------------------------------

CORP, WEB = "corp.example.com/root", "corp.example.com/web"


async def family(world: Beside) -> CertificateAuthority:
    """An authority `web` below `corp`."""
    await world.admin.create(authority("corp", CORP, subject={"commonName": "Corp"}))
    await until_ready(world, "corp")
    await world.admin.create(authority("web", WEB, parent={"authority": "corp"}))
    return await until_ready(world)


async def replaced(world: Beside, *, is_remembered: bool) -> None:
    """The authority `corp` is deleted as it was possible before, and Alice has that name."""
    below = await world.admin.get(CertificateAuthority, "web")
    for name in ("corp-1", "corp"):
        there = await world.admin.find(SigningKey, name)
        if there is not None:
            await drop(world, there)
    await drop(world, await edition(world, 1, "corp"))
    await drop(world, await world.admin.get(CertificateAuthority, "corp"))
    if not is_remembered:  # by an earlier version of the server
        await put(world, replace(below, status=replace(below.status, parent=None)))
    world.clock.ahead += timedelta(seconds=2)
    subject = {"commonName": "Alice"}
    await client(world, "alice").create(authority("corp", OF_ALICE, subject=subject))


@pytest.mark.parametrize("is_remembered", [True, False], ids=["remembered", "earlier version"])
async def test_another_authority_of_the_name_of_a_parent_certifies_nothing(
    world: Beside, monkeypatch: pytest.MonkeyPatch, *, is_remembered: bool
) -> None:
    """Also after a restart: no key of the intermediate is below a root of Alice."""
    monkeypatch.setattr(world.server.clock, "now", world.clock.now)
    async with world.running(KEEPER, PUBLISHER):
        before = await family(world)
        await edition(world, 1, "corp")
    await replaced(world, is_remembered=is_remembered)
    async with world.running(KEEPER, PUBLISHER, ROTATION):
        of_alice = await until_ready(world, "corp")
        taken = await until_not_ready(world, "ParentReplaced")
        with pytest.raises(Invalid, match="another one than the parent of web"):
            await new_key(world, "web-2")
        bundles = world.admin.scan(ListSelection(ClusterTrustBundle))
        roots = {one.spec.trust_bundle async for one in bundles if one.spec.signer_name == WEB}

    assert is_true(taken.status.conditions, "Ready"), "its present key is below the old parent"
    assert roots == {
        (await world.admin.get(ClusterTrustBundle, before.status.trust_bundle)).spec.trust_bundle
    }
    assert of_alice.status.certificate not in roots


async def test_a_parent_is_not_deleted_before_its_intermediates(world: Beside) -> None:
    """The message names them. An authority that only has the name of the parent is deleted."""
    where = "/apis/identity.orch.io/v1alpha1/certificateauthorities"
    async with world.running(KEEPER, PUBLISHER, GARBAGE):
        await family(world)
        server = Api(world.server)
        for query in ("", "?dryRun=All"):
            answer = await server.call("DELETE", f"{where}/corp{query}")
            assert answer.status == 403, answer.text
            assert answer.json["message"].endswith("below it, delete them first: web")
        await world.admin.delete(CertificateAuthority, "web")
        await world.admin.delete(CertificateAuthority, "corp")
        await world.until_gone(CertificateAuthority, "corp")


async def test_an_authority_that_replaced_a_parent_is_deleted(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.server.clock, "now", world.clock.now)
    async with world.running(KEEPER, PUBLISHER):
        await family(world)
        await edition(world, 1, "corp")
    await replaced(world, is_remembered=True)

    await client(world, "alice").delete(CertificateAuthority, "corp")
