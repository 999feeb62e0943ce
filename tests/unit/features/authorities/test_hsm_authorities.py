"""Authorities whose keys are in a hardware security module (SoftHSM), against a real server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.own_certificates import OwnCertificates
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.rights.kinds.role import ClusterRole
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding
from orchid.features.token_keys.kinds.signing_key import ACTIVE, PKCS11, VERIFYING, SigningKey
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.issuer_chain import issuer_key_id, subject_key_id
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.soft_hsm import SoftHsm
from tests.unit.features.authorities.test_authority_rotation import (
    ROTATION,
    Verifier,
    install,
    make_activatable,
    new_key,
    pem,
    signed_elsewhere,
    state,
    step,
    until_signs,
)
from tests.unit.features.authorities.test_keep_authorities import (
    KEEPER,
    SIGNER,
    SIGNING,
    create,
    issued,
    looked_at,
    until_not_ready,
    until_ready,
)
from tests.unit.features.authorities.test_platform_authority import (
    Kept,
    accepts,
    client_of,
    roots,
    serving,
    signer,
)
from tests.unit.features.beside import CLIENT_USAGES, Beside, beside
from tests.unit.features.revoking.test_published_lists import fetched

HOME = ORCH.system_namespace
IN_HSM = {"pkcs11": {"label": "web-1"}}


@pytest.fixture
def soft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SoftHsm:
    made = SoftHsm(tmp_path / "hsm")
    monkeypatch.setenv("SOFTHSM2_CONF", str(made.configuration))
    made.generate("web-1")
    return made


@pytest.fixture
async def world(server_files: Path, soft: SoftHsm) -> AsyncIterator[Beside]:
    async with beside(server_files, **soft.flags) as made:
        yield made


async def test_an_authority_begins_in_the_hsm(world: Beside, tmp_path: Path) -> None:
    """Certificates and lists are right, and nothing of the private key is in the store."""
    async with world.running(KEEPER, ROTATION, SIGNING):
        await create(world, key=IN_HSM)
        await until_ready(world)
        key = await state(world, "web-1", ACTIVE)
        chain = await issued(world)
        lists = await fetched(world, "/crl/web.pem")

    assert key.status.source == PKCS11
    assert key.status.algorithm == "ECDSA-P256"
    assert await world.admin.find(Secret, key.secret_name, HOME) is None
    assert Verifier(tmp_path).accepts(chain, key.status.certificate, lists)


async def test_a_move_into_the_hsm_is_a_rotation(
    world: Beside, soft: SoftHsm, tmp_path: Path
) -> None:
    """Verifiers that trust only the old root accept the new leaf; the way back is open."""
    soft.generate("web-2")
    async with world.running(KEEPER, SIGNING):
        await create(world)
        await until_ready(world)
        old = await issued(world, "old")
        await new_key(world, "web-2", pkcs11={"label": "web-2"})
        await make_activatable(world, "web-2")
        await step(world, "web-2", ACTIVE)
        await until_signs(world, "web-2")
        new = await issued(world, "new")
        for name in ("web-1", "web-2"):
            await step(world, name, VERIFYING)
            await world.server.context.port(AppliedRevision).report()
            await step(world, name, ACTIVE)
            await until_signs(world, name)
    roots = [(await world.admin.get(SigningKey, name)).status for name in ("web-1", "web-2")]

    verifier = Verifier(tmp_path)
    assert verifier.accepts(old, roots[0].certificate)
    assert verifier.accepts(new, roots[0].certificate)
    assert verifier.accepts(new, roots[1].certificate)


# The package complains when it ends a search in a session that is gone.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_hsm_that_fails_is_a_condition(world: Beside, soft: SoftHsm) -> None:
    """The authority is not Ready, with the problem; afterwards it issues again."""
    async with world.running(KEEPER, ROTATION, SIGNING):
        await create(world, key=IN_HSM)
        await until_ready(world)
    hidden = soft.pin_file.rename(soft.pin_file.with_suffix(".away"))
    soft.generate("other")  # ends the session

    found = await looked_at(world)
    ready = next(one for one in found.status.conditions if one.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "HsmUnavailable")
    assert str(soft.pin_file) in ready.message

    hidden.rename(soft.pin_file)
    assert (await looked_at(world)).is_ready


async def test_a_server_without_the_module_says_so(tmp_path: Path) -> None:
    """At the creation of a key: 422; for an authority that names one: a condition."""
    flags = {"pkcs11_module": "/none/hsm.so", "pkcs11_token": "t", "pkcs11_pin_file": "/none/pin"}
    for given, text in (({}, "--pkcs11-module"), (flags, "/none/pin")):
        async with beside(tmp_path / f"data{len(given)}", **given) as world:
            async with world.running(KEEPER):
                await create(world, key=IN_HSM)
                found = await until_not_ready(world, "NoKey")
            ready = next(one for one in found.status.conditions if one.type == "Ready")
            assert text in ready.message


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"pkcs11": {"label": "web-9"}}, "has no private key web-9"),
        ({"pkcs11": {"label": "web-1"}}, "web-1 has the same key"),
        ({"pkcs11": {"label": ""}}, "label"),
        ({"pkcs11": {"label": "a\nb"}}, "must be printable"),
        ({"pkcs11": {"label": "x"}, "algorithm": "ECDSA-P256"}, "exactly one of"),
    ],
)
async def test_a_key_that_cannot_be_is_refused(
    world: Beside, spec: dict[str, Any], text: str
) -> None:
    """Also a key that another authority has: it could issue in that one's place."""
    async with world.running(KEEPER):
        await create(world, key=IN_HSM)
        await world.until_like(SigningKey, "web-1")
        await create(world, "shop", signerName="example.com/shop")
        await until_ready(world, "shop")

    with pytest.raises(Invalid, match=text):
        await new_key(world, "shop-2", "shop", **spec)


async def test_token_keys_are_not_in_an_hsm(world: Beside) -> None:
    """Every server signs with them, for each request of a token."""
    with pytest.raises(Invalid, match="only keys of authorities"):
        await new_key(world, "tokens-3", "", pkcs11={"label": "web-1"})


async def test_the_cluster_ca_moves_into_the_hsm_and_back(
    server_files: Path, soft: SoftHsm, tmp_path: Path
) -> None:
    """Requests and the server's own certificates are signed there; clients notice nothing."""
    async with beside(tmp_path / "data", **soft.flags) as world:
        before = signer(world)
        old_client = client_of(before, world)
        async with world.running(KEEPER, ROTATION, SIGNING):
            await new_key(world, "cluster-2", "cluster", pkcs11={"label": "web-1"})
            await activated(world, "cluster-2")
            served, leaf = serving(world), await client(world, "new")
            in_hsm = signer(world)
            await new_key(world, "cluster-3", "cluster")
            await activated(world, "cluster-3")
            last = await client(world, "last")
            key = await world.admin.get(SigningKey, "cluster-2")
            secret = await world.admin.find(Secret, key.secret_name, HOME)
        found = [accepts(world, one) for one in (old_client, leaf, last)]
        verifier, anchors = Verifier(tmp_path), [before, in_hsm]
        old, new = (pem(one.certificate) for one in anchors)

    assert key.status.source == PKCS11
    assert secret is None
    assert found == [True, True, True]
    assert [verifier.accepts(served, anchor) for anchor in (old, new)] == [True, True]
    assert issuer_key_id(served[0]) == subject_key_id(in_hsm.certificate)


async def activated(world: Beside, name: str) -> None:
    """Have a key of `cluster` sign, for requests and for the server itself."""
    await make_activatable(world, name)
    await step(world, name, ACTIVE)
    await world.server.feed.fresh()
    await world.server.context.port(OwnCertificates).renew(world.clock)
    await until_signs(world, name, "cluster")


async def client(world: Beside, name: str) -> bytes:
    found = await issued(world, name, signer=ORCH.client_signer, usages=CLIENT_USAGES)
    return pem(*found).encode()


async def test_a_server_without_the_hsm_does_not_report_its_cluster_key(
    tmp_path: Path, soft: SoftHsm
) -> None:
    """So it blocks the step: it could not renew its own certificate. Trust does not wait for it."""
    store, data = Kept(MemoryStore()), tmp_path / "data"
    async with beside(data, store=store, **soft.flags) as world:
        made = await new_key(world, "cluster-2", "cluster", pkcs11={"label": "web-1"})
        await world.server.feed.fresh()
        reported = world.server.context.port(AuthorityKeyIndex).waiting
    async with beside(data, store=store) as world:
        without = world.server.context.port(AuthorityKeyIndex).waiting
        await world.server.context.port(OwnCertificates).renew(world.clock)
        trusted = roots(world)

    assert reported == [made.key_id]
    assert without == []
    assert trusted == ["CN=orchid-ca", "CN=orchid-ca 2"]


async def test_a_lost_hsm_stops_no_server(tmp_path: Path, soft: SoftHsm) -> None:
    """It serves with the certificate that it has, and new roots still reach ca.crt."""
    store, data = Kept(MemoryStore()), tmp_path / "data"
    async with beside(data, store=store, **soft.flags) as world:
        async with world.running(KEEPER):
            await new_key(world, "cluster-2", "cluster", pkcs11={"label": "web-1"})
            await activated(world, "cluster-2")
        served = serving(world)
    soft.destroy("web-1")
    async with beside(data, store=store, **soft.flags) as world:
        await new_key(world, "cluster-3", "cluster")
        await world.server.feed.fresh()
        renewed = await world.server.context.port(OwnCertificates).renew_files(world.clock)
        after, trusted = serving(world), roots(world)

    assert not renewed
    assert after == served
    assert trusted == ["CN=orchid-ca 2", "CN=orchid-ca 3", "CN=orchid-ca"]


@pytest.mark.parametrize("spec", [{"rotation": "Automatic"}, {"key": {**IN_HSM, "algorithm": "x"}}])
async def test_an_authority_that_cannot_be_is_refused(world: Beside, spec: dict[str, Any]) -> None:
    """The server creates no keys in an HSM."""
    with pytest.raises(Invalid, match="HSM"):
        await create(world, **{"key": IN_HSM, **spec})


async def test_naming_a_key_of_the_hsm_takes_the_right_to_import(world: Beside) -> None:
    """A user who may only create authorities and keys cannot use any key there."""
    rules = [
        {"verbs": ["create"], "apiGroups": [ORCH.identity], "resources": ["*"]},
        {
            "verbs": ["sign", "attest"],
            "apiGroups": [ORCH.certificates],
            "resources": ["signers"],
            "resourceNames": [SIGNER],
        },
    ]
    await grant(world, rules)
    person = world.server.clients.of_user(UserInfo(username="mallory"))
    spec = {"signerName": SIGNER, "key": IN_HSM, "subject": {"commonName": "Web CA"}}
    wanted = convert({"metadata": {"name": "web"}, "spec": spec}, CertificateAuthority)
    with pytest.raises(Forbidden, match="import keys"):
        await person.create(wanted)

    async with world.running(KEEPER):
        await create(world)
        await until_ready(world)
    key = {"authority": "web", "pkcs11": {"label": "web-1"}}
    with pytest.raises(Forbidden, match="import keys"):
        await person.create(convert({"metadata": {"name": "web-2"}, "spec": key}, SigningKey))


async def grant(world: Beside, rules: list[dict[str, Any]]) -> None:
    role = {"metadata": {"name": "mallory"}, "rules": rules}
    await world.admin.create(convert(role, ClusterRole))
    binding = {
        "metadata": {"name": "mallory"},
        "roleRef": {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "mallory"},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": ORCH.rbac}],
    }
    await world.admin.create(convert(binding, ClusterRoleBinding))


async def test_an_intermediate_in_the_hsm_is_signed_elsewhere(
    world: Beside, tmp_path: Path
) -> None:
    """The request is signed in the HSM; the chain of the offline root is checked with the key."""
    root = Authority.create("Offline Root", now=world.clock.now())
    async with world.running(KEEPER, ROTATION, SIGNING):
        await create(world, key=IN_HSM, parent={"external": True})
        waiting = await until_not_ready(world, "ChainMissing")
        with pytest.raises(Invalid, match="does not match"):
            await install(world, "web-1", root.chain_pem.decode())
        await install(world, "web-1", signed_elsewhere(waiting.status.request, root))
        await until_ready(world)
        leaf = await issued(world)
        await create(world, "shop", signerName="example.com/shop")
        await until_ready(world, "shop")
        # The other authority chooses the identifier of the key; the key is what counts.
        with pytest.raises(Invalid, match="web-1 has the same key"):
            await new_key(world, "shop-2", "shop", **IN_HSM)

    assert Verifier(tmp_path).accepts(leaf, root.chain_pem.decode())
