"""Keys of an authority: the first one, successors, cross certificates, lists, retirement.

The controllers run against a real server in memory. openssl judges chains and lists.
"""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.controllers.rotate_authority_keys import schedule_of
from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    parent_reference,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.event import Event
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.rights.kinds.role import ClusterRole
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    PUBLISHED,
    RETIRED,
    VERIFYING,
    SigningKey,
)
from orchid.features.trust_bundles.controllers.publish_trust_bundles import bundle_name
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedCertificate, RevokedKey
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.security.left_behind import put
from tests.system_packages import require_program
from tests.unit.features.authorities.test_keep_authorities import (
    DAY,
    KEEPER,
    SIGNER,
    SIGNING,
    bring_authority,
    create,
    from_secret,
    issued,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside
from tests.unit.features.revoking.test_published_lists import fetched, list_of

ROTATION, LISTS = "authority-key-rotation", "revocation-list-publisher"
HOME = ORCH.system_namespace
DAWN = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def timed(world: Beside, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """The server has the clock of its controllers, which a test may move."""
    monkeypatch.setattr(world.server.clock, "now", world.clock.now)
    return world


async def state(world: Beside, name: str, wanted: str) -> SigningKey:
    return await world.until_like(SigningKey, name, condition=lambda key: key.state == wanted)


async def new_key(
    world: Beside, name: str, authority: str = "web", *, is_present: bool = False, **spec: Any
) -> SigningKey:
    """A successor; or `is_present`: the key that the authority has now."""
    given = {"authority": authority, **({} if is_present else spec or {"algorithm": "ECDSA-P256"})}
    return await world.admin.create(
        convert({"metadata": {"name": name}, "spec": given}, SigningKey)
    )


async def step(world: Beside, name: str, wanted: str) -> None:
    key = await world.admin.get(SigningKey, name)
    await world.admin.update(replace(key, spec=replace(key.spec, state=wanted)))


async def make_activatable(world: Beside, name: str) -> None:
    """Let a key be published for two days, and known to every server."""
    await world.server.context.port(AppliedRevision).report()
    key = await world.admin.get(SigningKey, name)
    published = (world.clock.now() - 2 * DAY).replace(microsecond=0)
    times = replace(key.status.times, published=published)
    await world.admin.update_status(replace(key, status=replace(key.status, times=times)))


async def until_signs(world: Beside, name: str, authority: str = "web") -> CertificateAuthority:
    """Wait until the authority issues with a key."""

    def signs(found: CertificateAuthority) -> bool:
        return bool(found.status.keys) and found.status.keys[0].name == name

    return await world.until_like(CertificateAuthority, authority, condition=signs)


@asynccontextmanager
async def rotated(world: Beside, *more: str) -> AsyncIterator[list[list[x509.Certificate]]]:
    """An authority that was rotated once; the chains that it issued before and after."""
    async with world.running(KEEPER, SIGNING, *more):
        await create(world)
        await until_ready(world)
        old = await issued(world, "old")
        await new_key(world, "web-2")
        await make_activatable(world, "web-2")
        await step(world, "web-2", ACTIVE)
        await until_signs(world, "web-2")
        yield [old, await issued(world, "new")]


def pem(*found: x509.Certificate) -> str:
    return b"".join(one.public_bytes(Encoding.PEM) for one in found).decode()


def number_of(found: x509.CertificateRevocationList) -> int:
    return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


class Verifier:
    """`openssl verify` with some trust anchors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._openssl = require_program("openssl")

    def accepts(self, chain: list[x509.Certificate], anchors: str, lists: bytes = b"") -> bool:
        files = {"leaf": pem(chain[0]), "above": pem(*chain[1:]), "anchors": anchors}
        for name, text in files.items():
            (self._directory / name).write_text(text)
        (self._directory / "lists").write_bytes(lists)
        command = [self._openssl, "verify", "-CAfile", self._directory / "anchors"]
        if chain[1:]:
            command += ["-untrusted", self._directory / "above"]
        if lists:
            command += ["-crl_check_all", "-CRLfile", self._directory / "lists"]
        done = subprocess.run(
            [*command, self._directory / "leaf"], capture_output=True, text=True, check=False
        )
        return done.returncode == 0


async def anchors(world: Beside) -> dict[str, str]:
    """The certificate of each key, but for those of the platform."""
    keys = [key async for key in world.admin.scan(ListSelection(SigningKey))]
    custom = (key for key in keys if key.spec.authority not in ("", "cluster"))
    return {key.name: key.status.certificate for key in custom}


async def test_the_first_key_of_an_authority_is_an_active_object(world: Beside) -> None:
    """It has the list of the authority's name, and is deleted with the authority."""
    async with world.running(KEEPER):
        await create(world)
        ready = await until_ready(world)
    key = await world.admin.get(SigningKey, "web-1")

    assert (key.state, key.status.source, key.status.revocation_list) == (ACTIVE, "Made", "web")
    assert key.status.certificate == ready.status.certificate
    assert key.status.cross_certificate == ready.status.cross_certificates == ""
    assert [owner.uid for owner in key.metadata.owner_references] == [ready.metadata.uid]
    assert [(one.name, one.state) for one in ready.status.keys] == [("web-1", ACTIVE)]


async def test_an_authority_of_an_earlier_version_keeps_its_key_and_bundle(world: Beside) -> None:
    """A user imports its key as the first SigningKey, and nothing changes for clients."""
    before = await create(world)
    made = Authority.create("Web CA", now=world.clock.now())
    kind = world.server.catalog.of(CertificateAuthority)
    owner = OwnerReference(
        api_version=kind.api_version, kind=kind.name, name="web", uid=before.metadata.uid
    )
    meta = ObjectMeta(
        name=f"authority-{before.metadata.uid}", namespace=HOME, owner_references=(owner,)
    )
    secret = {"namespace": HOME, "name": meta.name}
    data = {"tls.crt": made.chain_pem, "tls.key": made.key_pem().reveal().encode()}
    await world.admin.create(Secret(metadata=meta, data=data))
    status = replace(before.status, certificate=made.chain_pem.decode())
    await world.admin.update_status(replace(before, status=status))

    async with world.running(KEEPER, SIGNING):
        await until_not_ready(world, "KeyLost")
        await new_key(world, "web-1", secretRef=secret)
        ready = await until_ready(world)
        (leaf,) = await issued(world)

    key = await world.admin.get(SigningKey, "web-1")
    leaf.verify_directly_issued_by(made.certificate)
    assert ready.status.certificate == key.status.certificate == made.chain_pem.decode()
    assert key.key_id == made.key_id.hex()
    # Some of its certificates may be revoked: only the publisher knows them all.
    assert await world.admin.find(ConfigMap, "crl.web", HOME) is None


async def test_a_successor_has_its_own_name_and_a_cross_certificate(world: Beside) -> None:
    """The cross certificate has the key and the name of the successor, and ends with the first."""
    async with world.running(KEEPER):
        await create(world, subject={"commonName": "Web CA", "organizations": ["Example"]})
        await until_ready(world)
    second = await new_key(world, "web-2")

    first = await world.admin.get(SigningKey, "web-1")
    (root,) = x509.load_pem_x509_certificates(second.status.certificate.encode())
    (cross,) = x509.load_pem_x509_certificates(second.status.cross_certificate.encode())
    (old,) = x509.load_pem_x509_certificates(first.status.certificate.encode())
    assert second.state == PUBLISHED
    assert root.subject.rfc4514_string() == "CN=Web CA 2,O=Example"
    assert (cross.subject, cross.issuer) == (root.subject, old.subject)
    assert cross.public_key() == root.public_key()
    assert cross.not_valid_after_utc == old.not_valid_after_utc
    cross.verify_directly_issued_by(old)
    secret = await world.admin.get(Secret, f"signing-key-{second.metadata.uid}", HOME)
    assert set(secret.data) == {"tls.crt", "tls.key"}


async def test_a_successor_is_trusted_before_it_signs(world: Beside) -> None:
    """Its root is in a bundle of the signer, and its activation waits for verifiers."""
    async with world.running(KEEPER, ROTATION):
        await create(world)
        await until_ready(world)
        second = await new_key(world, "web-2")
        await world.server.context.port(AppliedRevision).report()
        await world.until_like(
            SigningKey, "web-2", condition=lambda key: key.status.times.published is not None
        )

        async def both() -> list[ClusterTrustBundle]:
            found = [one async for one in world.admin.scan(ListSelection(ClusterTrustBundle))]
            ours = [one for one in found if one.spec.signer_name == SIGNER]
            return ours if len(ours) == 2 else []

        bundles = await world.until(both)
        with pytest.raises(Invalid) as rejected:
            await step(world, "web-2", ACTIVE)

    texts = {one.spec.trust_bundle for one in bundles}
    assert second.status.certificate in texts
    assert "verifiers have it only after the publish time, from" in str(rejected.value)


async def test_a_server_that_does_not_know_a_key_blocks_it(world: Beside) -> None:
    """The rejection names the server, for example one of an earlier version."""
    async with world.running(KEEPER):
        await create(world)
        await until_ready(world)
    await world.server.context.port(AppliedRevision).report()  # it does not know web-2
    world.server.context.port(AuthorityKeyIndex).changed.clear()
    await new_key(world, "web-2")

    with pytest.raises(Invalid) as rejected:
        await step(world, "web-2", ACTIVE)

    assert "1 of 1 live server without it: orch-server-" in str(rejected.value)


async def test_chains_of_the_successor_verify_with_either_root(
    world: Beside, tmp_path: Path
) -> None:
    """An old certificate only with the old root. Lists of the whole chain are checked, too."""
    verifier = Verifier(tmp_path)
    async with rotated(world, LISTS) as (old, new):
        await list_of(world, 0, "web")
        await list_of(world, 0, "web-2")
        lists = await fetched(world, "/crl/web.pem")
        one_list = await fetched(world, "/crl/web-2.pem")
    found = await anchors(world)
    first, second = found["web-1"], found["web-2"]

    assert [len(old), len(new)] == [1, 2]
    assert lists.count(b"BEGIN X509 CRL") == 2
    for trusted in (first, second, first + second):
        assert verifier.accepts(new, trusted)
        assert verifier.accepts(new, trusted, lists)
    assert verifier.accepts(old, first, lists)
    assert not verifier.accepts(old, second)
    assert not verifier.accepts(new[:1], first)  # without the cross certificate
    assert not verifier.accepts(new, first, one_list)  # the cross certificate is in the other list


async def test_a_key_has_its_list_from_the_beginning(world: Beside, tmp_path: Path) -> None:
    """Also if the leader is killed before it signs one: verifiers that check lists accept it."""
    async with rotated(world) as (old, new):  # nobody publishes lists
        lists = await fetched(world, "/crl/web.pem")
        assert b"X509 CRL" in await fetched(world, "/crl/web-2.pem")
    roots = [await world.admin.get(SigningKey, name) for name in ("web-1", "web-2")]
    anchors = "".join(one.status.certificate for one in roots)

    verifier = Verifier(tmp_path)
    assert lists.count(b"BEGIN X509 CRL") == 2
    assert verifier.accepts(old, anchors, lists)
    assert verifier.accepts(new, anchors, lists)

    async with world.running(LISTS):  # it takes over, and numbers grow
        first = x509.load_der_x509_crl(await fetched(world, "/crl/web-2.crl"))
        spec = CredentialRevocationSpec(
            certificate=RevokedCertificate(request_name="new"), reason="superseded"
        )
        meta = ObjectMeta(name="new")
        await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))
        second = await list_of(world, 1, "web-2")

    assert number_of(second) > number_of(first)


async def test_a_revoked_certificate_stays_in_the_list_of_its_key(world: Beside) -> None:
    """The key that does not sign certificates any more still signs its list."""
    async with rotated(world, LISTS) as (old, new):
        for name in ("old", "new"):
            spec = CredentialRevocationSpec(
                certificate=RevokedCertificate(request_name=name), reason="superseded"
            )
            meta = ObjectMeta(name=name)
            await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))
        (of_old,) = await list_of(world, 1, "web")
        (of_new,) = await list_of(world, 1, "web-2")

    assert of_old.serial_number == old[0].serial_number
    assert of_new.serial_number == new[0].serial_number


async def test_a_hurry_takes_the_right_to_activate(world: Beside) -> None:
    """It may be set, changed and taken away; tokens have none."""
    await world.admin.create(
        convert(
            {
                "metadata": {"name": "updates"},
                "rules": [
                    {
                        "verbs": ["get", "update"],
                        "apiGroups": [ORCH.identity],
                        "resources": ["signingkeys"],
                    }
                ],
            },
            ClusterRole,
        )
    )
    binding = {
        "metadata": {"name": "updates"},
        "roleRef": {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "updates"},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": ORCH.rbac}],
    }
    await world.admin.create(convert(binding, ClusterRoleBinding))
    async with rotated(world):
        pass
    key = await world.admin.get(SigningKey, "web-1")
    wanted = replace(key, spec=replace(key.spec, renew_by=DAWN))
    with pytest.raises(Forbidden, match="not permitted to activate"):
        await world.server.clients.of_user(UserInfo(username="mallory")).update(wanted)
    await world.admin.update(wanted)
    await world.admin.update(await world.admin.get(SigningKey, "web-1"))

    token = await world.admin.get(SigningKey, "tokens-1")
    with pytest.raises(Invalid, match="tokens have no time of renewal"):
        await world.admin.update(replace(token, spec=replace(token.spec, renew_by=DAWN)))


async def test_a_key_is_retired_when_no_certificate_depends_on_it(timed: Beside) -> None:
    """The rejection counts them. Then its bundle, its private key and the cross certificate go."""
    world = timed
    async with rotated(world, ROTATION, "revocation-marker"):
        await state(world, "web-1", VERIFYING)
        world.clock.ahead = timedelta(minutes=3)
        with pytest.raises(Invalid) as rejected:
            await step(world, "web-1", RETIRED)
        first = await world.admin.get(SigningKey, "web-1")
        spec = CredentialRevocationSpec(
            certificate=RevokedCertificate(request_name="old"), reason="superseded"
        )
        revocation = CredentialRevocation(metadata=ObjectMeta(name="old"), spec=spec)
        await world.admin.create(revocation)

        async def retirable() -> SigningKey | None:
            found = await world.admin.get(SigningKey, "web-1")
            try:
                await step(world, "web-1", RETIRED)
            except Invalid:
                return None
            return found

        await world.until(retirable)
        after = await world.until_like(
            CertificateAuthority, "web", condition=lambda one: not one.status.cross_certificates
        )
        await world.until_gone(Secret, first.secret_name, HOME)
        chain = await issued(world, "alone")
        bundles = [one async for one in world.admin.scan(ListSelection(ClusterTrustBundle))]

    assert "1 certificate depends on web-1, the last until" in str(rejected.value)
    assert [one.name for one in after.status.keys] == ["web-2"]
    assert len(chain) == 1
    assert first.status.certificate not in {one.spec.trust_bundle for one in bundles}


async def test_keys_are_retired_in_order(timed: Beside, tmp_path: Path) -> None:
    """A key that issued nothing waits for the one before it, whose verifiers need its cross
    certificate: they accept what the third key issues.
    """
    world = timed
    async with rotated(world, ROTATION):
        first = (await anchors(world))["web-1"]
        await new_key(world, "web-3")
        await make_activatable(world, "web-3")
        await step(world, "web-3", ACTIVE)
        await until_signs(world, "web-3")
        await state(world, "web-2", VERIFYING)
        await revoke(world, "new")
        world.clock.ahead = timedelta(minutes=3)
        with pytest.raises(Invalid, match="trust only an earlier key: web-1"):
            await step(world, "web-2", RETIRED)
        chain = await issued(world, "third")

    assert len(chain) == 3
    assert Verifier(tmp_path).accepts(chain, first)


async def revoke(world: Beside, request: str) -> None:
    spec = CredentialRevocationSpec(
        certificate=RevokedCertificate(request_name=request), reason="superseded"
    )
    await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name=request), spec=spec))


async def test_an_authority_gets_its_successor_in_time(timed: Beside) -> None:
    """It is published a twelfth of the life before it becomes Active, in the last third."""
    world = timed
    async with world.running(KEEPER, SIGNING, ROTATION):
        authority = await create(world, duration="2400h")  # a hundred days
        await until_ready(world)
        first = await world.admin.get(SigningKey, "web-1")
        planned = schedule_of(first, authority)
        assert planned is not None
        world.clock.ahead = planned.publish - datetime.now(UTC) + timedelta(minutes=1)
        await world.admin.patch(
            CertificateAuthority, "web", "", {"metadata": {"labels": {"a": "b"}}}
        )
        await state(world, "web-2", PUBLISHED)
        await make_activatable(world, "web-2")
        world.clock.ahead = planned.activate - datetime.now(UTC) + timedelta(minutes=1)
        await world.server.context.port(AppliedRevision).report()
        await world.admin.patch(
            CertificateAuthority, "web", "", {"metadata": {"labels": {"a": "c"}}}
        )
        await state(world, "web-2", ACTIVE)
        await state(world, "web-1", VERIFYING)
        await until_signs(world, "web-2")

    assert planned.activate - planned.publish == timedelta(days=100, minutes=5) / 12


async def test_a_manual_authority_is_not_rotated_by_itself(timed: Beside) -> None:
    """An operator may rotate it, as one with a key of the user."""
    world = timed
    async with world.running(KEEPER, ROTATION):
        await create(world, rotation="Manual", duration="2400h")
        await until_ready(world)
        world.clock.ahead = 99 * DAY
        await world.admin.patch(
            CertificateAuthority, "web", "", {"metadata": {"labels": {"a": "b"}}}
        )
        await world.until_like(
            SigningKey, "web-1", condition=lambda key: len(key.status.conditions) == 3
        )

    assert await world.admin.find(SigningKey, "web-2") is None


async def test_a_revoked_key_is_replaced_at_once(world: Beside) -> None:
    """The next key signs without a wait, and nobody trusts the old one any more."""
    async with world.running(KEEPER, SIGNING, ROTATION):
        await create(world)
        await until_ready(world)
        first = await world.admin.get(SigningKey, "web-1")
        spec = CredentialRevocationSpec(key=RevokedKey(name="web-1"), reason="keyCompromise")
        stolen = CredentialRevocation(metadata=ObjectMeta(name="stolen"), spec=spec)
        await world.admin.create(stolen)
        after = await until_signs(world, "web-2")
        await state(world, "web-1", RETIRED)
        chain = await issued(world)
        await world.until_gone(ClusterTrustBundle, _bundle_of(after, first))

    assert len(chain) == 1
    assert [one.name for one in after.status.keys] == ["web-2"]


def _bundle_of(authority: CertificateAuthority, key: SigningKey) -> str:
    return bundle_name(authority.spec.signer_name, key.status.certificate)


async def test_an_imported_authority_is_rotated_with_another_secret(
    world: Beside, tmp_path: Path
) -> None:
    """The key stays in the Secret of the user; the old key certifies it all the same."""
    async with world.running(KEEPER, SIGNING):
        await bring_authority(world, "Brought CA")
        await from_secret(world)
        await until_ready(world)
        made = Authority.create("Brought CA 2", now=world.clock.now(), lifetime=30 * DAY)
        data = {"tls.crt": made.chain_pem, "tls.key": made.key_pem().reveal().encode()}
        meta = ObjectMeta(name="next", namespace="pki")
        await world.admin.create(Secret(metadata=meta, data=data))
        key = await new_key(world, "web-2", secretRef={"namespace": "pki", "name": "next"})
        with pytest.raises(Invalid, match="keys of this authority are in Secrets"):
            await new_key(world, "web-3")
        await make_activatable(world, "web-2")
        await step(world, "web-2", ACTIVE)
        await until_signs(world, "web-2")
        chain = await issued(world)
    found = await anchors(world)

    assert key.status.source == "Imported"
    assert key.status.dependents is not None
    assert key.status.dependents.unknown_until is not None
    assert await world.admin.find(Secret, key.secret_name, HOME) is None
    verifier = Verifier(tmp_path)
    assert all(verifier.accepts(chain, trusted) for trusted in found.values())


@pytest.mark.parametrize(
    ("name", "spec", "text"),
    [
        ("web-3", {}, 'the next key is "web-2"'),
        ("other-1", {"authority": "other"}, "spec.authority: Not found"),
        ("web-2", {"secretRef": {"namespace": "pki", "name": "none"}}, "there is no Secret"),
        ("web-2", {"is_present": True}, "exactly one of"),
    ],
)
async def test_a_key_that_cannot_be_is_refused(
    world: Beside, name: str, spec: dict[str, Any], text: str
) -> None:
    """Each with its field and the reason; nothing is stored."""
    async with world.running(KEEPER):
        await create(world)
        await until_ready(world)

    with pytest.raises(Invalid) as refused:
        await new_key(world, name, **spec)

    assert text in str(refused.value)
    assert await world.admin.find(SigningKey, name) is None


async def test_an_authority_does_not_have_the_name_of_a_key(world: Beside) -> None:
    """Their revocation lists would have the same name; a number that is taken is skipped."""
    async with world.running(KEEPER):
        await create(world)
        made = await until_ready(world)
        await put(world, made.with_meta(name="web-2", uid="other"))  # by an earlier version
    with pytest.raises(Invalid, match="a SigningKey has this name"):
        await create(world, "web-1", signerName="example.com/third")
    with pytest.raises(Invalid, match='the next key is "web-3"'):
        await new_key(world, "web-2")
    with pytest.raises(Invalid, match="keys of this name sign tokens"):
        await create(world, "tokens", signerName="example.com/third")


async def test_keys_are_deleted_with_their_authority(world: Beside) -> None:
    """Before that, an Active key is not deleted."""
    async with world.running(KEEPER, "garbagecollector"):
        await create(world)
        await until_ready(world)
        with pytest.raises(Forbidden, match="it is Active"):
            await world.admin.delete(SigningKey, "web-1")
        await world.admin.delete(CertificateAuthority, "web")
        await world.until_gone(SigningKey, "web-1")


async def test_a_blocked_successor_is_an_event(timed: Beside) -> None:
    """A step that is due and not possible is reported with its reasons."""
    world = timed
    async with world.running(KEEPER, ROTATION):
        await create(world, duration="2400h")
        await until_ready(world)
        world.clock.ahead = 90 * DAY
        await world.admin.patch(
            CertificateAuthority, "web", "", {"metadata": {"labels": {"a": "b"}}}
        )
        await state(world, "web-2", PUBLISHED)

        async def blocked() -> Event | None:
            found = [one async for one in world.admin.scan(ListSelection(Event))]
            return next((one for one in found if one.reason == "NotActivated"), None)

        event = await world.until(blocked)

    assert event.involved_object.name == "web-2"


# -- intermediates -----------------------------------------------------------------------------


async def test_an_authority_below_another_issues_chains_to_its_root(
    world: Beside, tmp_path: Path
) -> None:
    """The chain of a leaf has the intermediate; the bundle of its signer is the root."""
    async with world.running(KEEPER, SIGNING, ROTATION, LISTS):
        await create(world, "root", signerName="example.com/root", subject={"commonName": "Root"})
        await until_ready(world, "root")
        await create(world, parent={"authority": "root"})
        ready = await until_ready(world)
        leaf, between = await issued(world)
        await state(world, "web-1", ACTIVE)
        await list_of(world, 0, "web")
        await list_of(world, 0, "root")
        lists = await fetched(world, "/crl/web.pem") + await fetched(world, "/crl/root.pem")
    root = await world.admin.get(CertificateAuthority, "root")
    bundle = await world.admin.get(ClusterTrustBundle, ready.status.trust_bundle)

    assert between.subject.rfc4514_string() == "CN=Web CA"
    assert between.issuer.rfc4514_string() == "CN=Root"
    assert bundle.spec.trust_bundle == root.status.certificate
    assert Verifier(tmp_path).accepts([leaf, between], bundle.spec.trust_bundle, lists)


async def test_an_intermediate_is_in_the_inventory_and_can_be_revoked(
    world: Beside, tmp_path: Path
) -> None:
    """By its serial number, with an entry in the list of the parent's key."""
    async with world.running(KEEPER, SIGNING, LISTS):
        await create(world, "root", signerName="example.com/root", subject={"commonName": "Root"})
        await until_ready(world, "root")
        await create(world, parent={"authority": "root"})
        ready = await until_ready(world)
        leaf, between = await issued(world)
        record = await world.admin.get(IssuedCertificate, f"{between.serial_number:x}")
        before = (await world.admin.get(SigningKey, "root-1")).status.dependents
        named = RevokedCertificate(
            serial_number=record.name, signer_name="example.com/root", sha256=record.spec.sha256
        )
        spec = CredentialRevocationSpec(certificate=named, reason="cACompromise")
        await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="x"), spec=spec))
        found = await list_of(world, 1, "root")
        await list_of(world, 0, "web")
        lists = await fetched(world, "/crl/web.pem") + await fetched(world, "/crl/root.pem")
    bundle = await world.admin.get(ClusterTrustBundle, ready.status.trust_bundle)

    assert record.spec.signer_name == "example.com/root"
    assert record.spec.intermediate == "web-1"
    assert record.spec.authority_key == (await world.admin.get(SigningKey, "root-1")).key_id
    assert before is None or before.live == 0, "the key below counts, not its certificate"
    assert [one.serial_number for one in found] == [between.serial_number]
    assert not Verifier(tmp_path).accepts([leaf, between], bundle.spec.trust_bundle, lists)


async def test_a_root_key_is_not_retired_while_an_intermediate_depends_on_it(
    timed: Beside, tmp_path: Path
) -> None:
    """After the rotation of both, chains verify with either root."""
    world = timed
    async with world.running(KEEPER, SIGNING, ROTATION):
        await create(world, "root", signerName="example.com/root", subject={"commonName": "Root"})
        await until_ready(world, "root")
        await create(world, parent={"authority": "root"})
        await until_ready(world)
        await new_key(world, "root-2", "root")
        await make_activatable(world, "root-2")
        await step(world, "root-2", ACTIVE)
        await state(world, "root-1", VERIFYING)
        world.clock.ahead = timedelta(minutes=3)
        with pytest.raises(Invalid) as rejected:
            await step(world, "root-1", RETIRED)
        await new_key(world, "web-2")
        await make_activatable(world, "web-2")
        await step(world, "web-2", ACTIVE)
        found = await world.until_like(
            CertificateAuthority,
            "web",
            condition=lambda one: (
                bool(one.status.cross_certificates) and one.status.keys[0].name == "web-2"
            ),
        )
        chain = await issued(world)
    anchors_found = await anchors(world)

    assert "keys of intermediate authorities depend on it: web-1" in str(rejected.value)
    assert found.status.cross_certificates
    assert len(chain) == 3  # the intermediate, and the cross certificate of the new root
    world.clock.ahead = timedelta()
    verifier = Verifier(tmp_path)
    for root in ("root-1", "root-2"):
        assert verifier.accepts(chain, anchors_found[root]), root


def signed_elsewhere(request: str, root: Authority, *, ca: bool = True) -> str:
    """The certificate that an offline root makes of a request, and the root."""
    asked = x509.load_pem_x509_csr(request.encode())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(asked.subject)
        .issuer_name(root.certificate.subject)
        .public_key(asked.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + 300 * DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(asked.public_key()), False)
    )
    private: Any = load_pem_private_key(root.key_pem().reveal().encode(), None)
    made = builder.sign(private, hashes.SHA256())
    return pem(made) + root.chain_pem.decode()


async def install(world: Beside, name: str, chain: str) -> None:
    key = await world.admin.get(SigningKey, name)
    await world.admin.update(replace(key, spec=replace(key.spec, chain=chain)))


async def test_an_offline_root_signs_the_request_of_an_authority(
    world: Beside, tmp_path: Path
) -> None:
    """Until then it is not Ready, and says so; the chain is checked before it is used."""
    root = Authority.create("Offline Root", now=world.clock.now())
    async with world.running(KEEPER, SIGNING, ROTATION):
        await create(world, parent={"external": True})
        waiting = await until_not_ready(world, "ChainMissing")
        other = Authority.create("Other", now=world.clock.now())
        request = waiting.status.request
        for bad, text in (
            ("nothing", "at least one CERTIFICATE PEM block"),
            (signed_elsewhere(request, root, ca=False), "does not have the CA bit set"),
            (other.chain_pem.decode(), "private key does not match public key"),
            (signed_elsewhere(request, root) + other.chain_pem.decode(), "do not form a chain"),
        ):
            with pytest.raises(Invalid, match=r"spec\.chain: Invalid value") as refused:
                await install(world, "web-1", bad)
            assert text in str(refused.value)
        with pytest.raises(Invalid, match="it has no certificate"):
            await step(world, "web-1", ACTIVE)
        await install(world, "web-1", signed_elsewhere(request, root))
        ready = await until_ready(world)
        chain = await issued(world)

    bundle = await world.admin.get(ClusterTrustBundle, ready.status.trust_bundle)
    assert ready.status.request == ""
    assert bundle.spec.trust_bundle == root.chain_pem.decode()
    assert Verifier(tmp_path).accepts(chain, bundle.spec.trust_bundle)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"parent": {}}, "exactly one of authority and external"),
        ({"parent": {"authority": "a", "external": True}}, "exactly one of authority and external"),
        ({"parent": {"authority": "none"}}, "spec.parent.authority: Not found"),
        ({"parent": {"authority": "leaving"}}, "spec.parent.authority: Not found"),
    ],
)
async def test_a_parent_that_cannot_be_is_refused(
    world: Beside, spec: dict[str, Any], text: str
) -> None:
    """With the field and the reason."""
    leaving = await create(world, "leaving", signerName="example.com/leaving")
    await world.admin.update(leaving.with_meta(finalizers=("example.com/stay",)))
    await world.admin.delete(CertificateAuthority, "leaving")
    with pytest.raises(Invalid) as refused:
        await create(world, **spec)

    assert text in str(refused.value)


async def test_the_server_records_the_parent_whatever_a_client_sends(world: Beside) -> None:
    """From the beginning, not only when a controller runs."""
    root = await create(world, "root", signerName="example.com/root")
    plain = {
        "metadata": {"name": "web"},
        "spec": {
            "signerName": SIGNER,
            "key": {},
            "subject": {"commonName": "Web CA"},
            "parent": {"authority": "root"},
        },
        "status": {"parent": {"uid": "of-alice", "signerName": "x"}, "certificate": "x"},
    }

    made = await world.admin.create(convert(plain, CertificateAuthority))

    assert made.status.parent == parent_reference(root)
    assert made.status.certificate == ""
