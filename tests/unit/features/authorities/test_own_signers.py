"""Creating an authority needs sign and attest on its signer, and the right to read its Secret."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.authorities.authority_spec import AuthorityKeySpec, CertificateAuthoritySpec
from orchid.features.authorities.kinds import certificate_authority
from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    SecretReference,
)
from orchid.features.authorities.policies.own_signers import OwnSigners
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import ApiError, Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import HsmKeyReference
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import NOW, Rights, a_request
from tests.unit.kernel.access.world import World
from tests.unit.kernel.access.world import world as empty_world

SIGNER = "example.com/web"
SIGN, ATTEST = ("sign", "signers", SIGNER), ("attest", "signers", SIGNER)
READ, READ_OTHER = ("get", "secrets", "ca"), ("get", "secrets", "other")
KIND: Any = certificate_authority.declare(ORCH)
TARGET = Target(verb="create", is_resource=True, resource="certificateauthorities", name="web")

MADE = CertificateAuthority(
    metadata=ObjectMeta(name="web", uid="uid-web"),
    spec=CertificateAuthoritySpec(signer_name=SIGNER, key=AuthorityKeySpec()),
)


def brought(secret: str = "ca", namespace: str = "pki") -> CertificateAuthority:
    reference = SecretReference(name=secret, namespace=namespace)
    return replace(MADE, spec=replace(MADE.spec, key=None, secret_ref=reference))


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with empty_world() as made:
        yield made


async def review(here: World, rights: Rights, new: Any, old: Any = None) -> None:
    authorities = SignerAuthorities(here.feed.of(CertificateAuthority), ORCH)
    policy = OwnSigners(ORCH, rights, here.feed, authorities.of)
    await policy.review(a_request(TARGET), KIND, new, old)


async def refusal(here: World, rights: Rights, new: Any, old: Any = None) -> str:
    try:
        await review(here, rights, new, old)
    except ApiError as problem:
        return str(problem)
    return ""


async def keep(here: World, name: str = "ca", **data: bytes) -> None:
    """Put an authority into a Secret; `data` replaces parts of it."""
    made = Authority.create("own", now=NOW, lifetime=timedelta(days=30))
    good = {"crt": made.chain_pem, "key": made.key_pem().reveal().encode()}
    held = {f"tls.{part}": value for part, value in {**good, **data}.items()}
    meta = ObjectMeta(name=name, namespace="pki", uid=f"uid-{name}")
    await here.put(Secret(metadata=meta, data=held))


@pytest.mark.parametrize(
    ("held", "refused"),
    [
        ((), "not permitted to sign requests"),
        ((ATTEST,), "not permitted to sign requests"),
        ((SIGN,), "not permitted to attest"),
        ((SIGN, ATTEST), ""),
        ((("sign", "signers", "example.com/*"), ("attest", "signers", "example.com/*")), ""),
        ((("sign", "signers", "example.com/other"), ATTEST), "not permitted to sign requests"),
        ((SIGN, ("attest", "signers", "example.com/other")), "not permitted to attest"),
    ],
)
async def test_an_authority_takes_both_rights_on_its_signer(
    here: World, held: Any, refused: str
) -> None:
    """The controllers sign and attest for its maker, so neither right alone does."""
    said = await refusal(here, Rights(*held), MADE)

    assert refused in said
    assert bool(said) == bool(refused)


@pytest.mark.parametrize(
    ("name", "refused"), [("web-1", ""), ("web", "to import keys"), ("", "to import keys")]
)
async def test_a_key_in_an_hsm_takes_the_right_to_import_it(
    here: World, name: str, refused: str
) -> None:
    """Under the name of the first key of the authority."""
    key = AuthorityKeySpec(pkcs11=HsmKeyReference(label="web"))
    new = replace(MADE, spec=replace(MADE.spec, key=key))

    said = await refusal(here, Rights(SIGN, ATTEST, ("import", "signingkeys", name)), new)

    assert refused in said
    assert bool(said) == bool(refused)


@pytest.mark.parametrize("held", [(), (SIGN,), (ATTEST,)])
async def test_other_terms_take_both_rights_too(here: World, held: Any) -> None:
    """Otherwise a user could extend what it issues beyond their own rights."""
    changed = replace(MADE, spec=replace(MADE.spec, duration="48h"))

    with pytest.raises(Forbidden):
        await review(here, Rights(*held), changed, MADE)
    await review(here, Rights(SIGN, ATTEST), changed, MADE)


async def test_deletion_and_metadata_take_no_right_on_the_signer(here: World) -> None:
    """Nobody signs more for it than before."""
    rights = Rights()

    await review(here, rights, None, MADE)
    await review(here, rights, MADE.with_meta(labels={"a": "b"}), MADE)

    assert rights.asked == []


async def test_a_secret_is_named_by_who_may_read_it(here: World) -> None:
    """In its own namespace, under its own name."""
    await keep(here)
    rights = Rights(SIGN, ATTEST, READ)

    refused = await refusal(here, Rights(SIGN, ATTEST, READ_OTHER), brought())
    await review(here, rights, brought())

    assert refused.endswith('user not permitted to get the Secret "pki/ca"')
    assert (rights.asked[-1].namespace, rights.asked[-1].group) == ("pki", "")


async def test_an_update_that_names_another_secret_is_checked_like_a_new_authority(
    here: World,
) -> None:
    """The right to read it, that it exists, and that it holds an authority."""
    await keep(here)
    every = (SIGN, ATTEST, READ, READ_OTHER)
    other = brought("other")

    not_there = await refusal(here, Rights(*every), other, brought())
    await keep(here, "other", key=b"no key")
    bad = await refusal(here, Rights(*every), other, brought())
    await keep(here, "other")
    unread = await refusal(here, Rights(SIGN, ATTEST, READ), other, brought())
    await review(here, Rights(*every), other, brought())

    assert 'spec.secretRef: Not found: "pki/other"' in not_there
    assert "spec.secretRef: Invalid value" in bad
    assert 'not permitted to get the Secret "pki/other"' in unread


async def test_the_same_name_in_another_namespace_is_another_secret(here: World) -> None:
    """It is looked up, and read with the right there."""
    await keep(here)
    moved = brought(namespace="elsewhere")

    said = await refusal(here, Rights(SIGN, ATTEST, READ), moved, brought())

    assert 'spec.secretRef: Not found: "elsewhere/ca"' in said


async def test_an_update_that_keeps_its_secret_does_not_read_it(here: World) -> None:
    """Its terms change although the Secret is gone: the condition Ready says that."""
    changed = replace(brought(), spec=replace(brought().spec, duration="48h"))
    rights = Rights(SIGN, ATTEST)

    await review(here, rights, changed, brought())

    assert {target.resource for target in rights.asked} == {"signers"}


async def test_a_key_of_another_certificate_is_refused(here: World) -> None:
    """Before anything is stored."""
    other = Authority.create("other", now=NOW)
    await keep(here, key=other.key_pem().reveal().encode())

    with pytest.raises(Invalid, match="private key does not match public key"):
        await review(here, Rights(SIGN, ATTEST, READ), brought())


async def test_an_expired_chain_is_refused(here: World) -> None:
    """By the time of the request."""
    past = Authority.create("past", now=NOW - timedelta(days=2), lifetime=timedelta(days=1))
    await keep(here, crt=past.chain_pem, key=past.key_pem().reveal().encode())

    with pytest.raises(Invalid, match="has expired"):
        await review(here, Rights(SIGN, ATTEST, READ), brought())


async def test_a_signer_has_one_authority(here: World) -> None:
    """A second is refused, by creation and by update; the first may be written again."""
    await here.put(MADE)
    second = MADE.with_meta(name="second", uid="2")
    rights = Rights(SIGN, ATTEST)
    changed = replace(MADE, spec=replace(MADE.spec, duration="48h"))

    with pytest.raises(Invalid, match="Duplicate value"):
        await review(here, rights, second)
    await review(here, rights, changed, MADE)


async def test_an_authority_that_another_server_has_just_made_counts(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at others waits for everything that is acknowledged by now."""
    other = replace(MADE, metadata=ObjectMeta(name="other", uid="uid-other"))

    async def fresh() -> None:
        monkeypatch.undo()
        await here.put(other)  # until now, this server had not seen it
        await here.feed.fresh()

    monkeypatch.setattr(here.feed, "fresh", fresh)

    assert "Duplicate value" in await refusal(here, Rights(SIGN, ATTEST), MADE)
