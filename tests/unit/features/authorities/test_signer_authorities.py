"""Authorities are found by signer and by Secret, as the feed has them now."""

from datetime import UTC, datetime, timedelta

from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import SecretReference
from tests.unit.kernel.access.world import World

SIGNER = "example.com/web"
BORN = datetime(2026, 1, 1, tzinfo=UTC)


def authority(
    name: str, signer: str = SIGNER, secret: str = "", age: int = 0
) -> CertificateAuthority:
    reference = SecretReference(name=secret, namespace="pki") if secret else None
    return CertificateAuthority(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", creation_timestamp=BORN - timedelta(days=age)
        ),
        spec=CertificateAuthoritySpec(signer_name=signer, secret_ref=reference),
    )


def index(here: World) -> SignerAuthorities:
    return SignerAuthorities(here.feed.of(CertificateAuthority), ORCH)


async def test_the_oldest_authority_of_a_signer_comes_first(here: World) -> None:
    """There are two authorities for one signer only after a race."""
    found = index(here)
    await here.put(authority("young"))
    await here.put(authority("old", age=1))
    await here.put(authority("other", "example.com/other"))

    assert [one.name for one in found.of(SIGNER)] == ["old", "young"]
    assert found.of("example.com/none") == []


async def test_a_deleted_authority_is_not_found(here: World) -> None:
    """Neither by its signer nor by its Secret; another with the same ones stays."""
    found = index(here)
    await here.put(authority("a", secret="ca"))
    await here.put(authority("b", secret="ca"))
    place = SecretReference(name="ca", namespace="pki")

    await here.delete(authority("a"))
    one_left = ([one.name for one in found.of(SIGNER)], found.is_named(place))
    await here.delete(authority("b"))

    assert one_left == (["b"], True)
    assert (found.of(SIGNER), found.is_named(place)) == ([], False)


async def test_a_secret_that_is_named_no_more_is_not_found(here: World) -> None:
    """After an update the new Secret counts, and only that."""
    await here.put(authority("a", secret="old"))
    found = index(here)
    before = found.is_named(SecretReference(name="old", namespace="pki"))

    await here.put(authority("a", secret="new"))

    assert before
    assert not found.is_named(SecretReference(name="old", namespace="pki"))
    assert found.is_named(SecretReference(name="new", namespace="pki"))


async def test_a_key_that_the_server_made_is_in_the_system_namespace(here: World) -> None:
    """Under a name with the uid of its authority."""
    await here.put(authority("a"))

    assert index(here).is_named(
        SecretReference(name="authority-uid-a", namespace=ORCH.system_namespace)
    )
