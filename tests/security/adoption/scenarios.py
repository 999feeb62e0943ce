"""Objects of Alice, and what the next owner of their name, Bob, must not get.

Each scenario creates an owner and what belongs to it (`first`), creates the owner again as somebody
else (`again`), and checks that Bob has nothing of Alice (`check`). How Alice's owner goes, and what
of hers is there again afterwards, is decided in `test_nothing_is_adopted.py`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from cryptography import x509

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.acme.kinds.acme_account import AcmeAccount
from orchid.features.acme.kinds.acme_order import AcmeOrder
from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revoking.revocation_lists import RevocationLists
from orchid.features.token_keys.kinds.signing_key import ACTIVE, SigningKey
from orchid.features.trust_bundles import stored_edition
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.features.trust_bundles.server import TrustServer
from orchid.features.trust_bundles.stored_edition import ConsumerList, SeenConsumer
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.jwk import read_jwk_text
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.conditions import is_true
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.user import MASTERS, UserInfo
from tests.api.world import ISSUER, Api
from tests.security.adoption import table
from tests.security.exchanging import review
from tests.unit.features.accounts.test_accounts import token_secret
from tests.unit.features.acme.acme_client import AcmeClient, public
from tests.unit.features.acme.conftest import KEY_TYPE, SECRET
from tests.unit.features.authorities.test_authority_rotation import make_activatable, new_key, step
from tests.unit.features.authorities.test_keep_authorities import (
    DAY,
    KEEPER,
    SIGNING,
    issued,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside
from tests.unit.features.trust_bundles.test_publish_bundles import PUBLISHER, edition, publish, root
from tests.unit.kernel.credentials import samples

HOME = ORCH.system_namespace
SIGNER_OF = {"alice": "alice.example.com/web", "bob": "bob.example.com/web"}
LISTS, ROTATION, TOKENS = (
    "revocation-list-publisher",
    "authority-key-rotation",
    "serviceaccount-token",
)


def acting(world: Beside, name: str) -> Client:
    return world.server.clients.of_user(UserInfo(username=name, groups=(MASTERS,)))


def authority(user: str, name: str = "web", **spec: Any) -> CertificateAuthority:
    subject = {"commonName": user}
    full = {"signerName": SIGNER_OF.get(name, SIGNER_OF[user]), "key": {}, "subject": subject}
    return convert({"metadata": {"name": name}, "spec": {**full, **spec}}, CertificateAuthority)


def pair_of(user: str, world: Beside) -> dict[str, bytes]:
    made = Authority.create(user, now=world.clock.now(), lifetime=30 * DAY)
    return {"tls.crt": made.chain_pem, "tls.key": made.key_pem().reveal().encode()}


class Scenario:
    """An owner, and what belongs to it."""

    name: ClassVar[str]
    of: ClassVar[type[Object]]
    owner: ClassVar[str]
    namespace: ClassVar[str] = ""
    controllers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, world: Beside) -> None:
        self.world = world
        self.api = Api(world.server)
        self.alice, self.bob = acting(world, "alice"), acting(world, "bob")
        self.left: list[Object] = []  # what belongs to the owner of Alice

    async def first(self) -> None:
        """Create the owner and all that belongs to it."""
        raise NotImplementedError

    async def again(self) -> None:
        """Create another owner of this name."""
        raise NotImplementedError

    async def check(self) -> None:
        """Nothing that Alice had counts for Bob."""
        raise NotImplementedError

    async def keep(self, *found: tuple[type[Object], str, str]) -> None:
        for type_, name, namespace in found:
            self.left.append(await self.world.admin.get(type_, name, namespace))


class AuthorityAgain(Scenario):
    """Keys, roots, the bundle and revocation lists of an authority."""

    name, of, owner = table.AUTHORITY, CertificateAuthority, "web"
    controllers = (KEEPER, PUBLISHER, SIGNING, ROTATION, LISTS)

    async def first(self) -> None:
        await self.alice.create(authority("alice"))
        ready = await until_ready(self.world)
        await issued(self.world, "of-alice", signer=SIGNER_OF["alice"])
        bundle = await edition(self.world, 1, "web")
        key = await self.world.admin.get(SigningKey, "web-1")
        await self.keep(
            (SigningKey, "web-1", ""),
            (Secret, key.secret_name, HOME),
            (ClusterTrustBundle, ready.status.trust_bundle, ""),
            (PublishedBundle, "web", ""),
            (ConfigMap, stored_edition.edition_name("web", bundle.status.sequence), HOME),
        )
        self.root = x509.load_pem_x509_certificate(ready.status.certificate.encode())

    async def again(self) -> None:
        self.made = await self.bob.create(authority("bob"))

    async def check(self) -> None:
        ready = await until_ready(self.world)
        (leaf,) = await issued(self.world, "of-bob", signer=SIGNER_OF["bob"])
        own = x509.load_pem_x509_certificate(ready.status.certificate.encode())
        leaf.verify_directly_issued_by(own)
        assert own.public_key() != self.root.public_key()
        names = [key.name for key in ready.status.keys]
        keys = [await self.world.admin.get(SigningKey, name) for name in names]
        assert all(belongs_to(key, self.made) for key in keys)
        published = await self.world.admin.find(PublishedBundle, "web")
        if published is not None and not belongs_to(published, self.made):
            await until_not_ready(self.world, "BundleTaken")
        bundles = [one async for one in self.world.admin.scan(ListSelection(ClusterTrustBundle))]
        roots = [one for one in bundles if one.spec.signer_name == SIGNER_OF["bob"]]
        assert {one.spec.trust_bundle for one in roots} == {ready.status.certificate}
        await self.world.until(lambda: self._lists_are_of(own))

    async def _lists_are_of(self, own: x509.Certificate) -> bool:
        names = self.world.server.context.port(AuthorityKeyIndex).lists("web")
        stored = RevocationLists(self.world.server.feed, ORCH)
        lists = [stored.find(name) for name in names]
        found = [x509.load_der_x509_crl(one) for one in lists if one is not None]
        public: Any = own.public_key()
        return bool(found) and all(one.is_signature_valid(public) for one in found)


class IntermediateAgain(Scenario):
    """The keys of an intermediate are certified by its parent, and by no other of its name.

    The parent is never deleted before it, so only a restore leads here.
    """

    name, of, owner = table.INTERMEDIATE, CertificateAuthority, "corp"
    controllers = (KEEPER, PUBLISHER, ROTATION)

    async def first(self) -> None:
        await self.alice.create(authority("alice", "corp"))
        await until_ready(self.world, "corp")
        await self.alice.create(
            authority("alice", signerName="corp.example.com/web", parent={"authority": "corp"})
        )
        below = await until_ready(self.world)
        await edition(self.world, 1, "corp")
        self.roots = x509.load_pem_x509_certificates(below.status.certificate.encode())[1:]
        web = await self.world.admin.get(CertificateAuthority, "web")
        key = await self.world.admin.get(SigningKey, "web-1")
        await self.keep(
            (CertificateAuthority, "web", ""),
            (SigningKey, "web-1", ""),
            (Secret, key.secret_name, HOME),
        )
        await self.world.admin.delete(CertificateAuthority, web.name)
        await self.world.until_gone(SigningKey, "web-1")
        await self.world.until_gone(PublishedBundle, "web")

    async def again(self) -> None:
        await self.bob.create(authority("bob", "corp"))

    async def check(self) -> None:
        above = await until_ready(self.world, "corp")
        if await self.world.admin.find(CertificateAuthority, "web") is None:
            return  # its parent could be deleted only after it
        await until_not_ready(self.world, "ParentReplaced")
        chain = (await self.world.admin.get(CertificateAuthority, "web")).status.certificate
        assert x509.load_pem_x509_certificates(chain.encode())[1:] == self.roots
        assert above.status.certificate not in chain


class SecretOfKeyAgain(Scenario):
    """A key that was imported from a Secret stays that key, whatever the Secret contains."""

    name, of, owner, namespace = table.SECRET_OF_KEY, Secret, "next", "pki"
    controllers = (KEEPER, SIGNING)

    async def first(self) -> None:
        await self.world.namespace("pki")
        await self.alice.create(authority("alice"))
        await until_ready(self.world)
        meta = ObjectMeta(name="next", namespace="pki")
        await self.alice.create(Secret(metadata=meta, data=pair_of("alice", self.world)))
        reference = {"namespace": "pki", "name": "next"}
        self.key = await new_key(self.world, "web-2", secretRef=reference)

    async def again(self) -> None:
        self.data = pair_of("bob", self.world)
        meta = ObjectMeta(name="next", namespace="pki")
        await self.bob.create(Secret(metadata=meta, data=self.data))

    async def check(self) -> None:
        await make_activatable(self.world, "web-2")
        await step(self.world, "web-2", ACTIVE)
        found = await until_not_ready(self.world, "KeyMismatch")
        key = await self.world.admin.get(SigningKey, "web-2")
        bundles = [one async for one in self.world.admin.scan(ListSelection(ClusterTrustBundle))]
        assert not is_true(found.status.conditions, "Ready")
        assert key.status.public_key == self.key.status.public_key
        assert self.data["tls.crt"].decode() not in {one.spec.trust_bundle for one in bundles}


class BundleAgain(Scenario):
    """Editions and consumers of a published bundle."""

    name, of, owner = table.BUNDLE, PublishedBundle, "pay"
    controllers = (PUBLISHER,)

    async def first(self) -> None:
        await self._roots("alice")
        made = await publish(self.world, {"name": "alice"})
        first = await edition(self.world, 1)
        version = self.world.server.catalog.of(PublishedBundle).api_version
        seen = SeenConsumer(first.status.sequence, int(self.world.clock.now().timestamp()))
        text = stored_edition.write_consumers(ConsumerList({"client-of-alice": seen}))
        name, data = stored_edition.consumers_name("pay"), {stored_edition.CONSUMERS: text}
        await self.alice.create(stored_edition.owned_map(made, version, ORCH, name, data=data))
        self.sequence = first.status.sequence
        await self.keep(
            (ConfigMap, stored_edition.edition_name("pay", self.sequence), HOME),
            (ConfigMap, name, HOME),
        )

    async def _roots(self, user: str) -> None:
        spec = {"trustBundle": root(self.world, user)}
        await acting(self.world, user).create(
            convert({"metadata": {"name": user}, "spec": spec}, ClusterTrustBundle)
        )

    async def again(self) -> None:
        await self._roots("bob")
        spec = {"sources": [{"name": "bob"}]}
        await self.bob.create(convert({"metadata": {"name": "pay"}, "spec": spec}, PublishedBundle))

    async def check(self) -> None:
        async with serving(self.world):
            found = await edition(self.world, 1)
            served = await self.world.until(self._served)
            self.world.server.context.port(TrustServer).consumers.seen(
                "pay", "client-of-bob", found.status.sequence, self.world.clock.now(), sent=True
            )
            await self.world.until(self._consumers)
        bundle = await self.world.admin.get(ClusterTrustBundle, "bob")
        assert served == bundle.spec.trust_bundle
        earlier = await self.api.call("GET", f"/trust/pay/{self.sequence}.pem", token=None)
        assert self.sequence == found.status.sequence or earlier.status == 404
        assert [one.sequence for one in found.status.editions] == [found.status.sequence]

    async def _served(self) -> str:
        answer = await self.api.call("GET", "/trust/pay.pem", token=None)
        return answer.text if answer.status == 200 else ""

    async def _consumers(self) -> bool:
        """The consumers are written, and are those of Bob alone."""
        await self.world.server.context.port(TrustServer).consumers.write()
        name = stored_edition.consumers_name("pay")
        stored = await self.world.admin.find(ConfigMap, name, HOME)
        named = stored_edition.read_consumers(stored).named
        return named.keys() == {"client-of-bob"}


@asynccontextmanager
async def serving(world: Beside) -> AsyncIterator[None]:
    """The pages of published bundles."""
    running = asyncio.create_task(world.server.context.port(TrustServer).run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


class AcmeScenario(Scenario):
    async def authority(self, user: str) -> None:
        await acting(self.world, user).create(authority(user, acme={}))

    async def client(self, account: str, name: str) -> AcmeClient:
        """A client that acts as a service account of the namespace `ci`."""
        found = await self.world.admin.find(ServiceAccount, account, "ci")
        found = found or await self.world.account(account, "ci")
        made = AcmeClient(self.api, "web")
        answer = await made.register(await external_key(self.world, found, name), SECRET)
        assert answer.status == 201, answer.text
        return made


async def external_key(world: Beside, account: ServiceAccount, name: str) -> str:
    marks = {
        ORCH.account_name_annotation: account.name,
        ORCH.account_uid_annotation: account.metadata.uid,
    }
    ends = (world.clock.now() + DAY).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    meta = ObjectMeta(name=name, namespace="ci", annotations=marks)
    data = {"key": SECRET, "expiration": ends}
    await world.admin.create(Secret(metadata=meta, type=KEY_TYPE, data=data))
    return f"ci.{name}"


class AcmeAuthorityAgain(AcmeScenario):
    """Accounts of ACME clients at an authority."""

    name, of, owner = table.ACME_AUTHORITY, CertificateAuthority, "web"
    controllers = (KEEPER,)

    async def first(self) -> None:
        await self.world.namespace("ci")
        await self.authority("alice")
        await until_ready(self.world)
        self.member = await self.client("frontend", "eab")

    async def again(self) -> None:
        await self.authority("bob")

    async def check(self) -> None:
        await until_ready(self.world)
        for page in ("new-order", self.member.kid):
            answer = await self.member.post(page, {})
            assert "accountDoesNotExist" in answer.text
        self.member.kid = ""
        found = await self.member.post("new-account", {"onlyReturnExisting": True})
        assert "accountDoesNotExist" in found.text
        assert (await self.member.register("ci.eab", SECRET)).status == 201


class AcmeAccountAgain(AcmeScenario):
    """Orders of an account of an ACME client."""

    name, of, namespace = table.ACME_ACCOUNT, AcmeAccount, "ci"
    controllers = (KEEPER,)

    async def first(self) -> None:
        await self.world.namespace("ci")
        await self.authority("alice")
        await until_ready(self.world)
        member = await self.client("frontend", "eab")
        self.order = await member.order("a.example.com")
        self.kid = member.kid
        vars(self)["owner"] = member.kid.rpartition("/")[2]
        name = (self.order.header("location") or "").rpartition("/")[2]
        await self.keep((AcmeOrder, name, "ci"))

    async def again(self) -> None:
        """With another key and another service account."""
        account = await self.world.account("other", "ci")
        self.second = AcmeClient(self.api, "web", kid=self.kid)
        key = read_jwk_text(json.dumps(public(self.second.key)))
        spec = {
            "serviceAccountName": "other",
            "serviceAccountUID": account.metadata.uid,
            "authority": "web",
            "authorityUID": (await self.bob.get(CertificateAuthority, "web")).metadata.uid,
            "jwk": key.text,
            "thumbprint": key.thumbprint,
            "state": "valid",
        }
        meta = {"name": self.owner, "namespace": "ci"}
        await self.bob.create(convert({"metadata": meta, "spec": spec}, AcmeAccount))

    async def check(self) -> None:
        location = self.order.header("location") or ""
        own = await self.second.order("b.example.com")
        assert own.status == 201, own.text
        for page in (location, *self.order.json["authorizations"]):
            answer = await self.second.post(page)
            assert "no such order" in answer.text, answer.text


class AccountAgain(AcmeScenario):
    """Tokens, external keys, ACME accounts and records of a service account."""

    name, of, owner, namespace = table.ACCOUNT, ServiceAccount, "deployer", "ci"
    controllers = (KEEPER, TOKENS)

    async def first(self) -> None:
        await self.world.namespace("ci")
        await self.authority("alice")
        await until_ready(self.world)
        await self.world.account("deployer", "ci")
        self.token = await self.api.token("deployer", "ci", audiences=[ISSUER])
        await token_secret(self.world, "stored", "deployer", "ci")
        filled = await self.world.until_like(
            Secret, "stored", "ci", lambda one: bool(one.data.get("token"))
        )
        self.stored = filled.data["token"].decode()
        self.member = await self.client("deployer", "eab")
        name = self.member.kid.rpartition("/")[2]
        await self.keep((Secret, "stored", "ci"), (AcmeAccount, name, "ci"))
        for token in (self.token, self.stored):
            assert (await review(self.api, token, ISSUER))["authenticated"]

    async def again(self) -> None:
        meta = ObjectMeta(name="deployer", namespace="ci")
        await self.bob.create(ServiceAccount(metadata=meta))

    async def check(self) -> None:
        for token in (self.token, self.stored):
            assert not (await review(self.api, token, ISSUER)).get("authenticated")
        answer = await self.member.post("new-order", {})
        assert answer.status in (400, 401, 403), answer.text
        stranger = AcmeClient(self.api, "web")
        assert (await stranger.register("ci.eab", SECRET)).status in (401, 403)


class BoundObjectAgain(Scenario):
    """Tokens that are bound to a Pod."""

    name, of, owner, namespace = table.BOUND, Pod, "web", "default"

    async def first(self) -> None:
        await self.world.account("runner")
        await self._pod(self.alice)
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "web"}
        self.token = await self.api.token("runner", audiences=[ISSUER], boundObjectRef=bound)
        assert (await review(self.api, self.token, ISSUER))["authenticated"]

    async def _pod(self, user: Client) -> None:
        spec = {"serviceAccountName": "runner", "containers": [{"name": "c", "image": "i"}]}
        meta = {"name": "web", "namespace": "default"}
        await user.create(convert({"metadata": meta, "spec": spec}, Pod))

    async def again(self) -> None:
        await self._pod(self.bob)

    async def check(self) -> None:
        assert not (await review(self.api, self.token, ISSUER)).get("authenticated")


class RequestAgain(Scenario):
    """The approval of a certificate request, and the certificate that it led to."""

    name, of, owner = table.REQUEST, CertificateSigningRequest, "mine"
    controllers = (KEEPER, SIGNING)

    async def first(self) -> None:
        await self.alice.create(authority("alice"))
        await until_ready(self.world)
        names = (x509.DNSName("web.example.com"),)
        self.request = samples.request("", (), alternative_names=names)
        await issued(self.world, "mine", request=self.request, signer=SIGNER_OF["alice"])

    async def again(self) -> None:
        user = UserInfo(username="bob", groups=(MASTERS,))
        names = (x509.DNSName("bob.example.com"),)
        request = samples.request("", (), alternative_names=names)
        await self.world.request("mine", request, signer=SIGNER_OF["alice"], usages=(), user=user)

    async def check(self) -> None:
        await issued(self.world, "other", request=self.request, signer=SIGNER_OF["alice"])
        found = await self.world.admin.get(CertificateSigningRequest, "mine")
        assert not found.status.conditions
        assert not found.status.certificate


SCENARIOS: dict[str, Callable[[Beside], Scenario]] = {
    one.name: one
    for one in (
        AuthorityAgain,
        IntermediateAgain,
        SecretOfKeyAgain,
        BundleAgain,
        AcmeAuthorityAgain,
        AcmeAccountAgain,
        AccountAgain,
        BoundObjectAgain,
        RequestAgain,
    )
}
