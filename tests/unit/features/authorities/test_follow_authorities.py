"""The authority of a signer, and its key: of two authorities, of earlier ones, of other keys."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.authorities.controllers.follow_authorities import (
    AuthoritiesBySigner,
    AuthorityFollower,
    AuthorityKeys,
    SecretMissing,
    cross_certificates,
    read_authority,
)
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.key_selection import KeySelection
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    RETIRED,
    VERIFYING,
    SigningKey,
    authority_public_key,
)
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.refusals import KeyMismatch, Refusal
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.meta import Object, ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import HsmKeyReference, SecretReference
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.credentials.samples import CLIENT, NOW

HOME = ORCH.system_namespace
WEB, NODES, CLIENTS = "example.com/web", "orch.io/nodes", "orch.io/clients"


def authority(
    name: str = "web", uid: str = "u1", age: int = 0, **spec: Any
) -> CertificateAuthority:
    wanted = {"signerName": WEB, "key": {"algorithm": "ECDSA-P256"}, **spec}
    made = convert({"metadata": {"name": name, "uid": uid}, "spec": wanted}, CertificateAuthority)
    return made.with_meta(creation_timestamp=NOW - timedelta(seconds=age), resource_version="1")


def platform(name: str = "cluster", **spec: Any) -> CertificateAuthority:
    return authority(name, signerName="", signerNames=[NODES, CLIENTS], **spec)


def index(*found: CertificateAuthority) -> AuthoritiesBySigner:
    made = AuthoritiesBySigner()
    for one in found:
        made.take(change(one, "ADDED"))
    return made


# -- the index ------------------------------------------------------------------------------------


def test_the_oldest_authority_of_a_signer_signs() -> None:
    """Several are there after a race of two servers; of the same age, the uid decides."""
    old, new = authority("new", "a", age=1), authority("old", "b", age=2)
    twin = authority("twin", "0", age=1)

    assert [one.name for one in index(old, new, twin).claims(WEB)] == ["old", "twin", "new"]
    assert index(old).claims("example.com/other") == []


def test_the_signer_passes_on_when_its_authority_is_deleted() -> None:
    first, second = authority("first", "a", age=2), authority("second", "b", age=1)
    made = index(first, second)

    made.take(change(first, "DELETED"))
    assert made.claims(WEB) == [second]
    made.take(change(second, "DELETED"))
    assert (made.claims(WEB), made.signers) == ([], [])


def test_a_change_replaces_what_was_there() -> None:
    made = index(authority())
    newer = authority().with_meta(resource_version="2")

    made.take(change(newer))

    assert made.claims(WEB) == [newer]


def test_authorities_of_files_sign_nothing_here() -> None:
    """Nor one that becomes such an authority."""
    made = index(platform(), authority())

    made.take(change(platform(key=None)))

    assert made.signers == [WEB]


def test_an_authority_of_the_platform_has_several_signers() -> None:
    made = index(platform())

    assert sorted(made.signers) == [CLIENTS, NODES]
    made.take(change(platform(), "DELETED"))
    assert made.signers == []


def test_intermediates_are_found_by_the_name_of_their_parent() -> None:
    """As long as they are there; those of another parent, and roots, are not among them."""
    below = authority("below", parent={"authority": "web"}, signerName="example.com/below")
    other = authority("other", parent={"authority": "root"}, signerName="example.com/other")
    made = index(authority(), below, other)

    assert made.below("web") == ["below"]
    assert made.parent(below) == authority()
    assert made.parent(other) is None
    made.take(change(below, "DELETED"))
    assert made.below("web") == []
    made.take(change(authority(), "DELETED"))
    assert made.parent(below) is None


def test_trust_domains_count_while_their_authority_is_there() -> None:
    one = authority("a", trustDomain="example.org")
    two = authority("b", trustDomain="example.org", signerName="example.com/two")
    made = index(one, two, authority("c", signerName="example.com/three"))

    assert made.with_trust_domain == {"a", "b"}
    made.take(change(one, "DELETED"))
    assert made.with_trust_domain == {"b"}


def test_nothing_is_left_after_a_new_start() -> None:
    below = authority("below", parent={"authority": "web"}, signerName="example.com/below")
    made = index(authority(trustDomain="example.org"), below)

    made.clear()

    assert (made.signers, made.below("web"), made.parent(below)) == ([], [], None)
    assert made.with_trust_domain == set()


# -- the follower ---------------------------------------------------------------------------------


async def followed(*found: CertificateAuthority) -> AuthorityFollower:
    client: Any = SmallClient()
    client.batches = [[change(one, "ADDED") for one in found], []]
    made = AuthorityFollower(client)
    await made.follow(lambda _: None)
    return made


def ready(found: CertificateAuthority, status: str = "True", **more: Any) -> CertificateAuthority:
    said = convert({"status": {"conditions": [{"type": "Ready", "status": status}]}}, type(found))
    return replace(found, status=replace(said.status, **more))


async def test_nothing_is_signed_before_all_authorities_are_loaded() -> None:
    """One that is loaded later might be the older one."""
    client: Any = SmallClient()
    client.batches = [[change(authority(), "ADDED")]]
    made = AuthorityFollower(client)
    await made.follow(lambda _: None)

    for use in (lambda: made.of(WEB), lambda: made.terms(WEB), lambda: made.ready):
        with pytest.raises(TryAgain):
            use()


async def test_after_a_new_start_all_are_loaded_again() -> None:
    made = await followed(authority())
    assert made.of(WEB) == authority()

    made.forget()

    with pytest.raises(TryAgain):
        made.of(WEB)
    await made.follow(lambda _: None)
    assert made.of(WEB) == authority()
    made.forget()
    made.all_loaded.set()
    assert made.of(WEB) is None


async def test_changes_are_reported_and_the_first_list_is_not() -> None:
    client: Any = SmallClient()
    first, later = authority(), authority("later", signerName="example.com/later")
    client.batches = [
        [change(first, "ADDED")],
        [],
        [change(later, "ADDED"), change(first, "DELETED")],
    ]
    reported: list[CertificateAuthority] = []

    await AuthorityFollower(client).follow(reported.append)

    assert reported == [later, first]


async def test_of_those_that_can_sign_each_is_named_once() -> None:
    """Not those without Ready, and not the second one of a signer."""
    made = await followed(
        ready(platform()),
        ready(authority("second", "b", age=1)),
        authority("first", "a", age=2),
        ready(authority("not", signerName="example.com/not"), "False"),
    )

    assert [one.name for one in made.ready] == ["cluster"]


async def test_the_platform_has_no_terms_of_its_own() -> None:
    made = await followed(platform(), authority())

    terms = made.terms(WEB)

    assert terms is not None
    assert terms.profile.signer_name == WEB
    assert made.terms(WEB) is terms
    assert made.terms(NODES) is None
    assert made.terms("example.com/none") is None


async def test_changed_terms_count_from_their_change() -> None:
    short = authority(issues={"maxDuration": "1h"})
    made = await followed(short)
    before = made.terms(WEB)

    made._index.take(
        change(authority(issues={"maxDuration": "2h"}).with_meta(resource_version="2"))
    )
    after = made.terms(WEB)

    assert before is not None
    assert after is not None
    assert before.profile.max_duration * 2 == after.profile.max_duration


@pytest.mark.parametrize(("domain", "there"), [("", False), ("example.org", True)])
async def test_svids_are_issued_where_there_is_a_trust_domain(domain: str, there: bool) -> None:
    assert (await followed(authority(trustDomain=domain))).any_trust_domain is there


# -- the keys -------------------------------------------------------------------------------------

ONE, TWO = (Authority.create(name, now=NOW, algorithm="ECDSA-P256") for name in ("one", "two"))


def signing_key(of: Authority, owner: str = "u1", **status: Any) -> SigningKey:
    reference = OwnerReference(
        api_version="v1", kind="CertificateAuthority", name="web", uid=owner, controller=True
    )
    meta = ObjectMeta(name="web-1", uid="k1", owner_references=(reference,))
    key = SigningKey(metadata=meta)
    public = authority_public_key(of.chain_pem.decode())
    status = {"revocation_list": "web", "certificate": of.chain_pem.decode(), **status}
    shown = replace(key.status, public_key=public, **status)
    return replace(key, status=shown, spec=replace(key.spec, authority="web", state=ACTIVE))


def secret(of: Authority, chain: bytes = b"") -> Secret:
    data = {"tls.crt": chain or of.chain_pem, "tls.key": of.key_pem().reveal()}
    return Secret(metadata=ObjectMeta(name="signing-key-k1", namespace=HOME), data=data)


def shown(of: Authority = ONE, status: str = "True", **more: Any) -> CertificateAuthority:
    reference = {"name": "web-1", "revocationList": "web"}
    keys = convert({"status": {"keys": [reference]}}, CertificateAuthority).status.keys
    given = {"keys": keys, "certificate": of.chain_pem.decode(), **more}
    return ready(authority(), status, **given)


async def keys_of(
    found: CertificateAuthority, *stored: Object
) -> tuple[AuthorityKeys, SmallClient]:
    client = SmallClient(*stored)
    parts: Any = client, ORCH, await followed(found), "http://crl.example/crl"
    return AuthorityKeys(*parts, platform={NODES: CLIENT}), client


async def test_a_signer_has_the_key_profile_and_list_of_its_authority() -> None:
    keys, _ = await keys_of(shown(), signing_key(ONE), secret(ONE))

    signer = await keys.signer(WEB)

    assert signer is not None
    assert signer.authority().chain_pem == ONE.chain_pem
    assert (signer.profile.signer_name, signer.list_name) == (WEB, "web")
    assert signer.crl_url.startswith("http://crl.example/crl")
    assert "web" in signer.crl_url


async def test_a_signer_of_the_platform_has_the_profile_of_the_platform() -> None:
    """Nobody writes its terms."""
    found = replace(shown(), spec=platform().spec)
    keys, _ = await keys_of(found, signing_key(ONE), secret(ONE))

    signer = await keys.signer(NODES)

    assert signer is not None
    assert signer.profile is CLIENT


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (shown(status="False"), WEB),
        (shown(), "example.com/other"),
        (ready(platform(), keys=shown().status.keys), CLIENTS),
    ],
)
async def test_others_have_no_signer(found: CertificateAuthority, name: str) -> None:
    """One that is not Ready, an unknown one, and one of the platform that is not signed for."""
    keys, _ = await keys_of(found, signing_key(ONE), secret(ONE))

    assert await keys.signer(name) is None


async def test_an_authority_without_keys_is_tried_again() -> None:
    keys, _ = await keys_of(shown(keys=()), signing_key(ONE), secret(ONE))

    with pytest.raises(TryAgain, match="not known yet"):
        await keys.signer(WEB)


@pytest.mark.parametrize("stored", [(), (signing_key(ONE, owner="u0"),)])
async def test_the_key_of_an_earlier_authority_does_not_sign(
    stored: tuple[SigningKey, ...],
) -> None:
    """It has the name, but belongs to an authority that was deleted; nor does a missing one."""
    keys, _ = await keys_of(shown(), *stored, secret(ONE))

    with pytest.raises(TryAgain, match="has no SigningKey web-1"):
        await keys.signer(WEB)


@pytest.mark.parametrize(
    ("state", "why"), [(VERIFYING, "is Verifying"), (RETIRED, "has no SigningKey web-1 in use")]
)
async def test_a_status_makes_no_key_sign_again(state: str, why: str) -> None:
    """A user may write it: a key that signs no more, or was retired, does not for her."""
    key = signing_key(ONE)
    keys, _ = await keys_of(shown(), replace(key, spec=replace(key.spec, state=state)), secret(ONE))

    with pytest.raises(TryAgain, match=why):
        await keys.signer(WEB)


async def test_certificates_point_to_the_list_of_the_key_that_signs() -> None:
    """Whatever list somebody wrote into the status of the authority."""
    reference = {"name": "web-1", "revocationList": "of-another"}
    names = convert({"status": {"keys": [reference]}}, CertificateAuthority).status.keys
    keys, _ = await keys_of(shown(keys=names), signing_key(ONE), secret(ONE))

    signer = await keys.signer(WEB)

    assert signer is not None
    assert signer.list_name == "web"


async def test_a_missing_secret_is_named() -> None:
    keys, _ = await keys_of(shown(), signing_key(ONE))

    with pytest.raises(SecretMissing, match=f"{HOME}/signing-key-k1"):
        await keys.signer(WEB)


async def test_another_key_in_the_secret_signs_nothing() -> None:
    keys, _ = await keys_of(shown(), signing_key(ONE), secret(TWO))

    with pytest.raises(KeyMismatch):
        await keys.signer(WEB)


async def test_a_status_of_another_key_is_older_or_newer() -> None:
    """Certificates must be of the chain that verifiers see."""
    keys, _ = await keys_of(shown(TWO), signing_key(ONE), secret(ONE))

    with pytest.raises(TryAgain, match="newer than its status"):
        await keys.signer(WEB)


async def test_a_key_is_read_once_until_its_status_changes() -> None:
    keys, client = await keys_of(shown(), signing_key(ONE), secret(ONE))
    before = await keys.signer(WEB)
    client.stored.clear()

    again = await keys.signer(WEB)
    assert before is not None
    assert again is not None
    assert again.authority() is before.authority()

    keys._authorities._index.take(change(shown(TWO)))
    with pytest.raises(TryAgain):
        await keys.signer(WEB)


async def test_a_key_is_read_again_after_a_time_without_ready() -> None:
    """Its Secret may have been taken away in between."""
    keys, client = await keys_of(shown(), signing_key(ONE), secret(ONE))
    await keys.signer(WEB)
    client.stored.clear()
    keys._authorities._index.take(change(shown(status="False")))
    assert await keys.signer(WEB) is None
    keys._authorities._index.take(change(shown()))

    with pytest.raises(TryAgain, match="has no SigningKey"):
        await keys.signer(WEB)


async def test_the_chain_of_a_key_that_another_authority_certified_is_in_its_status() -> None:
    """Otherwise it is that of the Secret, which its owner may renew."""
    there = secret(ONE, TWO.chain_pem)
    certified, _ = await keys_of(shown(), signing_key(ONE, request="a request"), there)
    own, _ = await keys_of(shown(), signing_key(ONE), there)

    assert await certified.signer(WEB) is not None
    with pytest.raises(Refusal):
        await own.signer(WEB)


async def test_an_imported_key_stays_in_the_secret_of_its_owner() -> None:
    key = signing_key(ONE)
    place = SecretReference(name="mine", namespace="team")
    key = replace(key, spec=replace(key.spec, secret_ref=place))
    mine = secret(ONE).with_meta(name="mine", namespace="team")
    keys, _ = await keys_of(shown(), key, mine, secret(TWO))

    assert await keys.signer(WEB) is not None


async def test_a_key_in_an_hsm_is_used_by_its_label() -> None:
    """There is no Secret, and the chain is in the status of the key."""
    key = signing_key(ONE)
    key = replace(key, spec=replace(key.spec, pkcs11=HsmKeyReference(label="web")))
    hsm: Any = SimpleNamespace(key={"web": ONE._private}.__getitem__)
    client: Any = SmallClient()

    found = await read_authority(client, key, ORCH, hsm=hsm)

    assert found.chain_pem == ONE.chain_pem


@pytest.mark.parametrize("signer", [None, 1])
def test_without_an_earlier_key_there_are_no_cross_certificates(signer: int | None) -> None:
    key = signing_key(ONE) if signer else None
    chosen = KeySelection((key,) if key else (), (key,) if key else ())

    assert cross_certificates(chosen) == ""
